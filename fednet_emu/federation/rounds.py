"""The count of the rounds of a run, their records, and the end of a run in which nothing ever arrives."""

from __future__ import annotations

from typing import final

from fednet_emu.errors import Deadlock
from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.records.ledger import Ledger

MAX_FRUITLESS_ROUNDS = 1000
"""A run ends after this many rounds in a row in which nothing arrives, because it would never end otherwise."""

AWAY_S = 86_400.0
"""Where devices move, they may come back into reach: a run then also goes on for this long without anything."""


def is_standstill(fruitless: int, lasted_s: float, *, moving: bool) -> bool:
    """Whether nothing will ever arrive, after so many attempts in a row, and so long, in which nothing has."""
    return fruitless >= MAX_FRUITLESS_ROUNDS and (not moving or lasted_s >= AWAY_S)


@final
class Rounds:
    """Counts rounds and records each.

    Args:
        clock: simulated time.
        ledger: records.
        moving: whether devices move.

    Attributes:
        ended: rounds ended so far.
        deadline_s: the deadline of the latest round, if it had one, for messages.
    """

    def __init__(self, clock: Clock, ledger: Ledger, *, moving: bool = False) -> None:
        self._clock, self._ledger, self._moving = clock, ledger, moving
        self.ended = 0
        self.deadline_s: float | None = None
        self._started_ns = 0
        self._fruitless = self._fruitful_ns = 0

    def end(self, *, invited: int, arrived: int) -> None:
        """Record a round that ends now; the next one starts.

        Raises:
            Deadlock: nothing has arrived for too many rounds.
        """
        now_ns = self._clock.now
        self._ledger.add_round(self.ended + 1, self._started_ns, now_ns, invited, arrived)
        self.ended += 1
        self._watch_for_standstill(fruitless=arrived == 0, took_s=(now_ns - self._started_ns) / NS_PER_S)
        self._started_ns = now_ns

    def _watch_for_standstill(self, *, fruitless: bool, took_s: float) -> None:
        """Detect runs that would never end because all their transfers fail or miss their deadline."""
        if not fruitless:
            self._fruitless, self._fruitful_ns = 0, self._clock.now
            return
        self._fruitless += 1
        lasted_s = (self._clock.now - self._fruitful_ns) / NS_PER_S
        if not is_standstill(self._fruitless, lasted_s, moving=self._moving):
            return
        waits = f"{self._fruitless} rounds in a row brought nothing, the last of them in {took_s:g} s"
        if self.deadline_s is not None:
            waits += f"; nobody meets algorithm.deadline_s, {self.deadline_s:g} s: give more time"
        raise Deadlock(self._clock.now_s, waits)

"""Counting and recording of the rounds of a run, and detection of runs that would never end."""

from __future__ import annotations

from typing import final

from fednet_emu.errors import AlgorithmError, Deadlock
from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.network.air.transfer import Unheard
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.rows import RoundRow

MAX_FRUITLESS_ROUNDS = 1000
"""Minimum number of successive rounds without an arriving reply at which a run fails with a `Deadlock`."""

MAX_TURNS = 1000
"""Maximum number of iterations of the loop over `Federation.rounds` in one round; more raise an `AlgorithmError`."""
MAX_REQUESTS = 10_000
"""Maximum number, per device, of transfers and computations in one round; more raise an `AlgorithmError`."""
PAUSE = 0.01
"""Weight of a pause, relative to a transfer or computation, in `MAX_REQUESTS`; it is small because algorithms may poll.
"""

AWAY_S = 86_400.0
"""Minimum time in s without an arriving reply before a run with moving devices fails, because they may move into range.
"""
MAX_FRUITLESS_AWAY = 100_000
"""Number of failed attempts at which a run with moving devices fails before this time, as its deadline is too short."""


def is_standstill(fruitless: int, lasted_s: float, *, moving: bool) -> bool:
    """Return True if no message is likely ever to arrive, after `fruitless` failed attempts in `lasted_s` seconds."""
    return fruitless >= (MAX_FRUITLESS_AWAY if moving and lasted_s < AWAY_S else MAX_FRUITLESS_ROUNDS)


@final
class Rounds:
    """Counts and records rounds.

    `ended` is the number of completed rounds, and `deadline_s` the deadline of the latest round in s, if any, for error
    messages. `requests` is the number of transfers and computations since the end of the latest round, and `most` its
    maximum before the end of the round, which each wait reduces. `trusted` is True if the algorithm is known to end its
    rounds, however long they are.
    """

    def __init__(
        self, clock: Clock, ledger: Ledger, n_devices: int, *, moving: bool = False, ends_by_time: bool = False
    ) -> None:
        self._clock, self._ledger, self._moving = clock, ledger, moving
        self.ended = 0
        self.deadline_s: float | None = None
        self.trusted = False
        self._started_ns = 0
        self._answered: tuple[int, int] | None = None  # numbers of invited devices and arrived replies
        self._fruitless = self._fruitful_ns = 0
        self._limit, self._ends_by_time = MAX_REQUESTS * max(n_devices, 1), ends_by_time
        self._start_count()

    def _start_count(self) -> None:
        self.requests, self.most = 0, float(self._limit)
        self._turns, self._counted_ns = 0, self._clock.now

    def turn(self) -> None:
        """Count an iteration of `Federation.rounds`; raise an `AlgorithmError` after `MAX_TURNS` in one round."""
        self._turns += 1
        if self._turns > MAX_TURNS:
            self._refuse_endless("fed.rounds", f"{MAX_TURNS} turns of the loop")

    def request(self, count: int = 1) -> None:
        """Count requested transfers and computations; raise an `AlgorithmError` after too many in one round."""
        self.requests += count
        if self.requests > self.most:
            self.refuse_requests()

    def wait(self, part: float = 1.0) -> None:
        """Count a wait for a cohort, or a pause, as `part` requests; raise an `AlgorithmError` after too many."""
        self.most -= part
        if self.requests > self.most:
            self.refuse_requests()

    def refuse_requests(self) -> None:
        """Raise an `AlgorithmError`, because a round has too many requests and waits."""
        self._refuse_endless("fed.end_of_round", f"{self._limit} transfers, computations and cohorts")

    def _refuse_endless(self, verb: str, what: str) -> None:
        """Raise an `AlgorithmError`, unless the algorithm is trusted or the limit on simulated time ends the run."""
        since_s = self._counted_ns / NS_PER_S
        if self.trusted or (self._ends_by_time and self._clock.now > self._counted_ns):
            self._start_count()
            return
        got = f"got {what} between t={since_s:.6g} s and t={self._clock.now_s:.6g} s without its end"
        remedy = "call fed.end_of_round at the end of each round, or limit stop.simulated_s"
        raise AlgorithmError(verb, f"round {self.ended + 1} would never end, {got}", remedy)

    @staticmethod
    def refuse_unheard(transfers: list[Unheard]) -> None:
        """Raise an `AlgorithmError` if no process has waited for the result of one of the ended transfers."""
        for transfer in transfers:
            if transfer.is_forgotten:
                what = f"no process waits for its delivery, got {transfer.describe()} at the end of a round"
                remedy = "write `yield` before the verb that sends, or let a process that is started wait for it"
                raise AlgorithmError("transfer", what, remedy)

    def answered(self, invited: int, arrived: int) -> None:
        known = self._answered or (0, 0)
        self._answered = known[0] + invited, known[1] + arrived

    def end(self, *, invited: int | None = None, arrived: int | None = None) -> None:
        """Record the end of a round and start the next; by default, `invited` and `arrived` are those of exchanges.

        An `AlgorithmError` is raised if the round has requests, but none can have ended at time 0, or if `invited` or
        `arrived` is None and no exchange has been counted. A `Deadlock` is raised if no reply has arrived for
        `MAX_FRUITLESS_ROUNDS` rounds or more, and none is likely to arrive.
        """
        now_ns, counted = self._clock.now, self._answered
        if not now_ns and self.requests and not (len(self._ledger.transfers) or len(self._ledger.computes)):
            what = f"round {self.ended + 1} ends at 0 s, got {self.requests} transfers and computations not waited for"
            remedy = "write `yield` before the verbs that send, compute and gather"
            raise AlgorithmError("fed.end_of_round", what, remedy)
        if counted is None and (invited is None or arrived is None):
            what = f"who was invited in round {self.ended + 1} is unknown, got no exchange and no numbers"
            raise AlgorithmError("fed.end_of_round", what, "give invited= and arrived=, or use fed.exchange")
        invited = counted[0] if counted and invited is None else invited or 0
        arrived = counted[1] if counted and arrived is None else arrived or 0
        self._ledger.add_round(RoundRow(self.ended + 1, self._started_ns, now_ns, invited, arrived))
        self.ended += 1
        if arrived:
            self._fruitless, self._fruitful_ns = 0, now_ns
        else:
            self._watch_for_standstill((now_ns - self._started_ns) / NS_PER_S)
        self._started_ns, self._answered = now_ns, None
        self._start_count()

    def _watch_for_standstill(self, took_s: float) -> None:
        """Raise a `Deadlock` if the run would never end because all its transfers fail or miss the deadline."""
        self._fruitless += 1
        lasted_s = (self._clock.now - self._fruitful_ns) / NS_PER_S
        if not is_standstill(self._fruitless, lasted_s, moving=self._moving):
            return
        waits = f"{self._fruitless} rounds in a row brought nothing, the last of them in {took_s:g} s"
        if self.deadline_s is not None:
            waits += f"; no device meets algorithm.deadline_s, {self.deadline_s:g} s: give more time"
        raise Deadlock(self._clock.now_s, waits)

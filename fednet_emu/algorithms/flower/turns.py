"""The rounds of an app: a round begins with messages that ask for training, and ends at the next ones."""

from __future__ import annotations

from typing import final

from fednet_emu.federation import Federation


class Over(Exception):  # noqa: N818  (what has happened)
    """A stop rule ends the app."""


@final
class Turns:
    """Counts the rounds of an app and records them.

    Attributes:
        going_on: whether a round has begun and not ended.
    """

    def __init__(self, fed: Federation) -> None:
        self._fed = fed
        self.going_on = False
        self._invited = self._arrived = 0
        self._began_ns = -1

    @property
    def number(self) -> int:
        """The round that is going on, or that has ended last; 0 before the first."""
        return self._fed.round + self.going_on

    def begin(self, invited: int) -> None:
        """Messages that ask this many devices for training are about to be sent.

        Messages sent one by one in the same instant belong to the same round.

        Raises:
            Over: the round before them has ended, and a stop rule ends the run.
        """
        if self.going_on and (self._fed.clock.now > self._began_ns or self._arrived):
            self.end()
        if not self.going_on:
            if self._fed.stopped:
                raise Over
            self.going_on, self._began_ns = True, self._fed.clock.now
        self._invited += invited

    def arrived(self, count: int) -> None:
        """The app has got this many replies to messages that asked for training."""
        self._arrived += count

    def end(self) -> None:
        """Record the round that is going on, if there is one."""
        if self.going_on:
            self.going_on = False
            invited, arrived, self._invited, self._arrived = self._invited, self._arrived, 0, 0
            self._fed.end_of_round(None, invited=invited, arrived=arrived)

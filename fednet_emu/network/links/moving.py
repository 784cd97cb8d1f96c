"""Links of moving devices: recomputed for all devices at once when they are used in a new period."""

from __future__ import annotations

from collections.abc import Callable

from fednet_emu.kernel.clock import NS_PER_S, Clock, to_ns
from fednet_emu.network.links.links import Links


class MovingLinks:
    """Links as they were at the start of the present period; they are computed only when used.

    A transfer keeps the link that it started with. Ignored here: movement during a transfer, except for its fading.

    Args:
        clock: simulated time.
        period_s: time in s for which links are kept constant; short compared to the time in which distances change.
        links_at: computes the links at a time in seconds.
    """

    def __init__(self, clock: Clock, period_s: float, links_at: Callable[[float], Links]) -> None:
        self._clock = clock
        self._period_ns = max(to_ns(period_s), 1)
        self._links_at = links_at
        self._period = -1
        self._links: Links

    def now(self) -> Links:
        """The links of this period."""
        period = self.period()
        if period != self._period:
            self._links = self._links_at(period * self._period_ns / NS_PER_S)
            self._period = period
        return self._links

    def period(self) -> int:
        """The number of this period."""
        return self._clock.now // self._period_ns

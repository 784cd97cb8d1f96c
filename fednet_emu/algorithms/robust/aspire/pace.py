"""ASPIRE-ADP: the master waits for all workers while none is slow, and for a few while one is."""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.component.component import Component

MAX_LOOKS = 10_000
"""How often the master looks at the delays, at most, before they pass a threshold in seconds."""

SHORTEST_TICK_S = 1e-3
"""Shortest time between two looks where the threshold follows the delays."""


class Adaptive(Component):
    """When the master switches between all workers and `active` of them."""

    threshold_s: float | None = Field(10.0, gt=0)
    """The paper's beta_1: the longest delay without a straggler; null takes twice the mean delay."""
    tick_s: float = Field(1.0, gt=0)
    """How often the master looks at the delays while it waits: at most 10,000 times until they pass the threshold, so
    not below a ten-thousandth of it, and without one not below 0.001 s."""

    @model_validator(mode="after")
    def _looks_are_few(self) -> Adaptive:
        least_s = SHORTEST_TICK_S if self.threshold_s is None else self.threshold_s / MAX_LOOKS
        if self.tick_s < least_s:
            raise ValueError(f"tick_s: too fine, got {self.tick_s:g} s; give {least_s:g} s or more")
        return self


class Pace:
    """How many workers the master waits for: `few`, or by eqs. (36) and (37) all N while no delay exceeds a threshold.

    The branches of (36) are printed the other way round, against the text and Figure 5. A delay is measured from the
    master's last reply, and grows while the worker is awaited, so that a straggler shows before it reports.
    """

    def __init__(self, count: int, few: int, adaptive: Adaptive | None) -> None:
        self._few, self._adaptive = few, adaptive
        self._delay_s = np.zeros(count)
        self._since_s = np.full(count, np.inf)  # of the last reply; never, while the worker is not awaited

    def replied(self, worker: int, now_s: float) -> None:
        """The worker is awaited from now on."""
        self._since_s[worker] = now_s

    def heard(self, worker: int, now_s: float) -> None:
        self._delay_s[worker] = now_s - self._since_s[worker]
        self._since_s[worker] = np.inf

    def active(self, now_s: float) -> int:
        """The number now; with `adaptive` it depends on the delays as they are now."""
        if self._adaptive is None:
            return self._few
        delay_s = np.maximum(self._delay_s, now_s - self._since_s)
        threshold_s = self._adaptive.threshold_s or 2.0 * float(delay_s.mean())
        return len(delay_s) if float(delay_s.max()) <= threshold_s else self._few

    def may_ease(self, now_s: float) -> bool:
        """Whether time alone, without a report, can make the master wait for fewer.

        Not when `few` is the number now, and not when twice the mean delay will grow as fast as the longest does.

        That is the case when half of the workers are awaited. Their delays grow once they exceed those before, so that
        such a moment is the only one at which the longest may be ahead.
        """
        awaited = np.isfinite(self._since_s)
        if self._adaptive is None or self.active(now_s) == self._few or not awaited.any():
            return False
        if self._adaptive.threshold_s is not None or 2 * np.count_nonzero(awaited) < len(awaited):
            return True
        grows_s = (self._since_s + self._delay_s)[awaited]
        return any(self.active(float(time_s)) == self._few for time_s in grows_s[grows_s > now_s])

    def until(self, missing: int, heard: int, now_s: float) -> tuple[int, float | None]:
        """After how many reports, or seconds, to look at the delays again; while S is small, when all are in."""
        if self._adaptive is None or missing + heard <= self._few:
            return max(missing, 1), None
        return (max(missing, 1), self._adaptive.tick_s) if self.may_ease(now_s) else (1, None)

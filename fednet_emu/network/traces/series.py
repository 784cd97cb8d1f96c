"""A rate over time, constant between edges and repeated for ever; what it carries is found without stepping."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fednet_emu.arrays import Array


@dataclass(frozen=True, eq=False)
class RateSeries:
    """A piecewise-constant rate that starts again from its beginning when it ends.

    Every question is one search in cumulative sums, however long the time or large the payload: O(log n).

    Attributes:
        edges_s: Increasing times [n + 1] in seconds from 0 to the period.
        rate_bps: Rates [n] in bit/s, 0 or more and not all 0; `rate_bps[i]` holds from `edges_s[i]` on.
    """

    edges_s: Array
    rate_bps: Array
    _edges_s: list[float] = field(init=False, repr=False)
    _rate_bps: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        edges_s, rate_bps = np.asarray(self.edges_s, np.float64), np.asarray(self.rate_bps, np.float64)
        if edges_s.shape != (len(rate_bps) + 1,) or edges_s[0] != 0 or not np.all(np.diff(edges_s) > 0):
            raise ValueError(f"edges_s: must increase from 0 and be one more than the rates, got {edges_s}")
        if not (
            np.isfinite(edges_s).all() and np.isfinite(rate_bps).all() and (rate_bps >= 0).all() and rate_bps.any()
        ):
            raise ValueError(f"rate_bps: must be finite, 0 or more, and not all 0, got {rate_bps}")
        object.__setattr__(self, "edges_s", edges_s)
        object.__setattr__(self, "rate_bps", rate_bps)
        # lists: scalar questions are the hot path, and bisect is twice as fast on them
        object.__setattr__(self, "_edges_s", edges_s.tolist())
        object.__setattr__(self, "_rate_bps", rate_bps.tolist())

    @cached_property
    def _carried_bit(self) -> list[float]:
        """Bits [n + 1] from the beginning until each edge."""
        carried: list[float] = np.append(0.0, np.cumsum(self.rate_bps * np.diff(self.edges_s))).tolist()
        return carried

    @property
    def period_s(self) -> float:
        """How long the series is before it repeats."""
        return self._edges_s[-1]

    @property
    def mean_bps(self) -> float:
        """Mean rate over time."""
        return self._carried_bit[-1] / self.period_s

    def rate_at_bps(self, time_s: float) -> float:
        """The rate at a time; at an edge, the rate that begins there."""
        return self._rate_bps[bisect_right(self._edges_s, time_s % self.period_s) - 1]

    def next_edge_s(self, time_s: float) -> float:
        """The first edge after a time: the rate of this time holds at least until then."""
        turns, phase_s = divmod(time_s, self.period_s)
        edge = bisect_right(self._edges_s, phase_s)
        while (edge_s := turns * self.period_s + self._edges_s[edge]) <= time_s:  # rounding, late in a long run
            turns, edge = (turns, edge + 1) if edge + 1 < len(self._edges_s) else (turns + 1, 1)
        return edge_s

    def bits_between(self, start_s: float, end_s: float) -> float:
        """Bits carried from one time to a later one."""
        start_turns, start_phase_s = divmod(start_s, self.period_s)
        end_turns, end_phase_s = divmod(end_s, self.period_s)
        if start_turns == end_turns:
            edge = bisect_right(self._edges_s, start_phase_s)
            if end_phase_s <= self._edges_s[edge]:
                return self._rate_bps[edge - 1] * (end_s - start_s)
        whole_bit = (end_turns - start_turns) * self._carried_bit[-1]
        return whole_bit + self._bits_until(end_phase_s) - self._bits_until(start_phase_s)

    def time_to_carry(self, size_bit: float, start_s: float) -> float:
        """Seconds from a time on until so many bits are carried, the least such time; 0 for no bits."""
        if size_bit <= 0:
            return 0.0
        phase_s = start_s % self.period_s
        edge = bisect_right(self._edges_s, phase_s)
        rate_bps = self._rate_bps[edge - 1]
        if size_bit <= rate_bps * (self._edges_s[edge] - phase_s):
            return size_bit / rate_bps
        turns, rest_bit = divmod(self._bits_until(phase_s) + size_bit, self._carried_bit[-1])
        if rest_bit == 0 and turns > 0:
            turns, rest_bit = turns - 1, self._carried_bit[-1]
        return max(turns * self.period_s + self._phase_after_s(rest_bit) - phase_s, 0.0)

    def averaged(self, window_s: float) -> RateSeries:
        """The same bits in windows of this length, the last one perhaps shorter; fewer edges, coarser in time."""
        count = int(np.ceil(self.period_s / window_s - 1e-9))
        edges_s = np.append(np.arange(max(count, 1)) * window_s, self.period_s)
        carried_bit = np.interp(edges_s, self.edges_s, self._carried_bit)
        return RateSeries(edges_s, np.maximum(np.diff(carried_bit), 0.0) / np.diff(edges_s))

    def scaled(self, factor: float) -> RateSeries:
        """The same series with every rate times a factor above 0."""
        return RateSeries(self.edges_s, self.rate_bps * factor)

    def _bits_until(self, phase_s: float) -> float:
        edge = bisect_right(self._edges_s, phase_s) - 1
        if edge == len(self._rate_bps):
            return self._carried_bit[-1]
        return self._carried_bit[edge] + self._rate_bps[edge] * (phase_s - self._edges_s[edge])

    def _phase_after_s(self, carried_bit: float) -> float:
        """The first phase by which so many bits, above 0 and at most one period's, are carried."""
        edge = max(bisect_left(self._carried_bit, carried_bit) - 1, 0)
        exact_s = self._edges_s[edge] + (carried_bit - self._carried_bit[edge]) / self._rate_bps[edge]
        return min(exact_s, self._edges_s[edge + 1])

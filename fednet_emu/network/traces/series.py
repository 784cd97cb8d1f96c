"""Rate traces: piecewise-constant link rates over time, repeated endlessly, and the base class of their sources."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.errors import DataError
from fednet_emu.files.lines import LEAST_BPS, MOST_BPS
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import Streams, mixes, uniforms
from fednet_emu.kernel.work import BIT, done_ns, work_per_ns

BIT_PER_MBIT = 1e6
BIT_PER_KBIT = 1e3


class RateTraces(Component):
    """Recorded rates of links (traces), and the assignment of traces to devices."""

    assignment: Literal["in-turn", "random"] = "in-turn"
    """Assignment of traces to devices. in-turn: devices get the traces in the order of the traces' names, which starts
    again after the last trace. random: a trace is drawn for each device."""
    start: Literal["random", "beginning"] = "random"
    """Time in the trace at which a device starts. random: at a random time. beginning: at the start of the trace."""
    scale: float = Field(1.0, gt=0)
    """Factor by which all rates are multiplied."""

    @abstractmethod
    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        """Return the traces by name, sorted by name; their rates are not yet multiplied by `scale`.

        Args:
            data_dir: the data folder; None means the folder in the environment variable FEDNET_DATA.

        Raises:
            DataError: a file is missing or cannot be used.
        """


def holding_until_next(where: str, time_s: Array, rate_bps: Array, last_s: float | None = None) -> RateSeries:
    """Return a series in which the rate of each row [rows] in bit/s applies until the time of the next row in s.

    The times must not decrease. The series starts at the first row. The rates of rows with equal times are averaged.
    The last rate applies for `last_s`. If `last_s` is None, the last rate applies as long as the rate before it, or for
    1 s if there is only one row.

    Raises:
        DataError: all rates are 0.
    """
    starts_s, group = np.unique(time_s, return_inverse=True)
    mean_bps = np.bincount(group, rate_bps) / np.bincount(group)
    if last_s is None:
        last_s = float(starts_s[-1] - starts_s[-2]) if len(starts_s) > 1 else 1.0
    return _series(where, np.append(starts_s, starts_s[-1] + last_s) - starts_s[0], mean_bps)


def holding_since_last(where: str, time_s: Array, rate_bps: Array) -> RateSeries:
    """Return a series in which the rate of each row [rows] applies from the previous row's time to the row's time.

    The series starts at the time of the first row; the rate of the first row is not used.

    Raises:
        DataError: there is only one row, times do not increase, or all rates are 0.
    """
    if len(time_s) < 2 or not np.all(np.diff(time_s) > 0):
        raise DataError(where, "has no two rows of increasing time", "drop rows of the same time")
    return _series(where, time_s - time_s[0], rate_bps[1:])


def _series(where: str, edges_s: Array, rate_bps: Array) -> RateSeries:
    if not rate_bps.any():
        raise DataError(where, "never carries a bit", "leave this trace out: a transfer over it would never end")
    return RateSeries(edges_s, rate_bps)


class RateSeries:
    """A piecewise-constant rate over time, repeated endlessly.

    Each query is one search in cumulative sums. It takes O(log n) for any duration and any payload size.

    Attributes:
        edges_s: [n + 1] increasing times in s from 0 to the period.
        rate_bps: [n] rates in bit/s, 0 or more and not all 0; `rate_bps[i]` applies from `edges_s[i]` on.
    """

    def __init__(self, edges_s: Array, rate_bps: Array) -> None:
        edges_s, rate_bps = np.asarray(edges_s, np.float64), np.asarray(rate_bps, np.float64)
        if edges_s.shape != (len(rate_bps) + 1,) or edges_s[0] != 0 or not np.all(np.diff(edges_s) > 0):
            raise ValueError(f"edges_s: must increase from 0 and be one more than the rates, got {edges_s}")
        if not (
            np.isfinite(edges_s).all() and np.isfinite(rate_bps).all() and (rate_bps >= 0).all() and rate_bps.any()
        ):
            raise ValueError(f"rate_bps: must be finite, 0 or more, and not all 0, got {rate_bps}")
        self.edges_s, self.rate_bps = edges_s, rate_bps
        # scalar queries are the hot path, and bisect is twice as fast on lists as on arrays
        self._edges_s: list[float] = edges_s.tolist()
        self._rate_bps: list[float] = rate_bps.tolist()

    @cached_property
    def _edges_ns(self) -> list[int]:
        """Edges [n + 1] in whole ns, each at least 1 ns after the previous edge."""
        edges_ns = [0]
        for edge_s in self._edges_s[1:]:
            edges_ns.append(max(round(edge_s * NS_PER_S), edges_ns[-1] + 1))
        return edges_ns

    @cached_property
    def _per_ns(self) -> list[int]:
        """Bits per ns [n] at each rate, in the integer units of `kernel.work`."""
        return [work_per_ns(rate_bps) for rate_bps in self._rate_bps]

    @cached_property
    def _done(self) -> list[int]:
        """Bits carried from the start of the series to each interval edge [n + 1], in units of `kernel.work`."""
        spans_ns = (end_ns - start_ns for start_ns, end_ns in pairwise(self._edges_ns))
        return [0, *accumulate(per_ns * span_ns for per_ns, span_ns in zip(self._per_ns, spans_ns, strict=True))]

    @cached_property
    def _carried_bit(self) -> list[float]:
        carried: list[float] = np.append(0.0, np.cumsum(self.rate_bps * np.diff(self.edges_s))).tolist()
        return carried

    @property
    def period_s(self) -> float:
        return self._edges_s[-1]

    @property
    def mean_bps(self) -> float:
        return self._carried_bit[-1] / self.period_s

    def rate_at_bps(self, time_s: float) -> float:
        """Return the rate in bit/s at a time in s; at an edge, the rate after the edge."""
        return self._rate_bps[bisect_right(self._edges_s, time_s % self.period_s) - 1]

    def bits_between(self, start_ns: int, end_ns: int) -> float:
        return (self._done_until(end_ns) - self._done_until(start_ns)) / BIT

    def needed_ns(self, size_bit: int, start_ns: int) -> int:
        """Return the time in ns from `start_ns` until `size_bit` bits are carried; 0 if `size_bit` is 0.

        The calculation uses integers, so that the result remains accurate at late times of a long run.
        """
        if size_bit <= 0:
            return 0
        turns, rest = divmod(self._done_until(start_ns) + size_bit * BIT, self._done[-1])
        if not rest:  # the transfer ends with the period; the next period may begin with a rate of 0
            turns, rest = turns - 1, self._done[-1]
        edge = bisect_left(self._done, rest) - 1
        phase_ns = self._edges_ns[edge] + done_ns(rest - self._done[edge], self._per_ns[edge])
        return turns * self._edges_ns[-1] + phase_ns - start_ns

    def _done_until(self, time_ns: int) -> int:
        turns, phase_ns = divmod(time_ns, self._edges_ns[-1])
        edge = bisect_right(self._edges_ns, phase_ns) - 1
        return turns * self._done[-1] + self._done[edge] + self._per_ns[edge] * (phase_ns - self._edges_ns[edge])

    def averaged(self, window_s: float) -> RateSeries:
        """Return the series averaged over windows of `window_s` s; the last window may be shorter.

        The total number of bits does not change.
        """
        count = int(np.ceil(self.period_s / window_s - 1e-9))
        edges_s = np.append(np.arange(max(count, 1)) * window_s, self.period_s)
        carried_bit = np.interp(edges_s, self.edges_s, self._carried_bit)
        return RateSeries(edges_s, np.maximum(np.diff(carried_bit), 0.0) / np.diff(edges_s))

    def scaled(self, factor: float) -> RateSeries:
        return RateSeries(self.edges_s, self.rate_bps * factor)


_DRAWS = np.arange(2)[:, None]


class DeviceRates:
    """Rates of the devices' links over time; several devices may use the same trace with different offsets.

    Attributes:
        names: names of the traces; `trace` has indices in this list.
        trace: [devices] index of each device's trace.
        offset_s: [devices] time in s in the trace at which each device starts.
    """

    def __init__(
        self, names: tuple[str, ...], series: tuple[RateSeries, ...], trace: IntArray, offset_s: Array
    ) -> None:
        self.names, self.trace, self.offset_s = names, trace, offset_s
        self._series = series
        self._offset_ns: list[int] = np.rint(offset_s * NS_PER_S).astype(np.int64).tolist()

    def rate_bps(self, device: int, time_s: float) -> float:
        return self._series[self.trace.item(device)].rate_at_bps(self.offset_s.item(device) + time_s)

    def rates_bps(self, devices: IntArray, time_s: float) -> Array:
        return np.array([self.rate_bps(device, time_s) for device in devices.tolist()])

    def bits_between(self, device: int, start_ns: int, end_ns: int) -> float:
        """Return the number of bits that a device's link carries between two times in ns."""
        series, offset_ns = self._series[self.trace.item(device)], self._offset_ns[device]
        return series.bits_between(offset_ns + start_ns, offset_ns + end_ns)

    def needed_ns(self, device: int, size_bit: int, start_ns: int) -> int:
        """Return the time in ns that a device's link needs for `size_bit` bits from the time `start_ns` in ns on."""
        return self._series[self.trace.item(device)].needed_ns(size_bit, self._offset_ns[device] + start_ns)


def device_rates(traces: RateTraces, count: int, streams: Streams, data_dir: Path | None = None) -> DeviceRates:
    """Load the traces, and assign one trace and one offset to each of `count` devices.

    Random draws are keyed by device, so that more devices in a run do not change the traces of the first devices.
    Uplink and downlink use the same draws: if the recordings of both directions are in the same order, a device gets
    matching recordings.

    Raises:
        DataError: there is no trace, or a file is missing or cannot be used.
    """
    loaded = traces.load(data_dir)
    if not loaded:
        raise DataError(str(getattr(traces, "path", "traces")), "holds no trace", "correct `select` or `path`")
    series = tuple(one if traces.scale == 1 else one.scaled(traces.scale) for one in loaded.values())
    for name, one in zip(loaded, series, strict=True):
        if not (LEAST_BPS <= (max_bps := float(one.rate_bps.max())) <= MOST_BPS):
            how = f"the highest rate of a trace is from {LEAST_BPS:g} to {MOST_BPS:g} bit/s; correct `scale`"
            raise DataError(name, f"times {traces.scale:g} is too slow or too fast, got {max_bps:g} bit/s at most", how)
    which, phase = uniforms(mixes(streams.key("rate trace"), np.arange(count)), _DRAWS)
    in_turn = np.arange(count) % len(series)
    trace = in_turn if traces.assignment == "in-turn" else (which * len(series)).astype(np.int64)
    period_s = np.array([one.period_s for one in series])
    offset_s = phase * period_s[trace] if traces.start == "random" else np.zeros(count)
    return DeviceRates(tuple(loaded), series, trace, offset_s)

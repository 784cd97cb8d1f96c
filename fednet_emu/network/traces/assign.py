"""Assignment of rate traces to devices, with the offset in the trace at which each device starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.lines import LEAST_BPS, MOST_BPS
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import Streams, mixes, uniforms
from fednet_emu.network.traces.series import RateSeries, RateTraces

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
        series, offset_s = self._of(device)
        return series.rate_at_bps(offset_s + time_s)

    def rates_bps(self, devices: IntArray, time_s: float) -> Array:
        return np.array([self.rate_bps(device, time_s) for device in devices.tolist()])

    def bits_between(self, device: int, start_ns: int, end_ns: int) -> float:
        """Number of bits that a device's link carries between two times in ns."""
        series, offset_ns = self._series[self.trace.item(device)], self._offset_ns[device]
        return series.bits_between(offset_ns + start_ns, offset_ns + end_ns)

    def needed_ns(self, device: int, size_bit: int, start_ns: int) -> int:
        """Time in ns that a device's link needs for `size_bit` bits from `start_ns` on."""
        return self._series[self.trace.item(device)].needed_ns(size_bit, self._offset_ns[device] + start_ns)

    def _of(self, device: int) -> tuple[RateSeries, float]:
        return self._series[self.trace.item(device)], self.offset_s.item(device)


def device_rates(traces: RateTraces, count: int, streams: Streams, data_dir: Path | None = None) -> DeviceRates:
    """Load the traces, and assign one trace and one offset to each of `count` devices.

    Random draws are keyed by device, so that more devices in a run do not change the traces of the first devices.
    Uplink and downlink use the same draws: if the recordings of both directions are in the same order, a device gets
    matching recordings.
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

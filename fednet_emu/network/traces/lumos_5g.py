"""Lumos5G traces: throughput of one phone per second, on 4G or millimetre-wave 5G."""

from __future__ import annotations

from pathlib import Path

from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_columns, read_texts
from fednet_emu.network.traces.base import BIT_PER_MBIT, RateTraces, holding_until_next
from fednet_emu.network.traces.series import RateSeries

_SAMPLE_S = 1.0


class Lumos5gTraces(RateTraces):
    """Lines "t_s Mbps": downlink throughput in Mbit/s of the second that begins at t_s.

    From Narayanan et al., "A variegated look at 5G in the wild", SIGCOMM 2021. A few lines miss or repeat a second: a
    line holds until the next time, and lines of the same second are averaged.
    """

    kind = "lumos-5g"
    path: str = "net_5g_umn/lumos5g_4g_5g_traces.tar.gz"
    """A folder or archive of them; a relative path is sought in the data folder first."""
    select: str = "*/5G/*"
    """Which files: `*/5G/*` or `*/4G/*`."""

    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        """One trace per file."""
        path = locate(self.path, data_dir)
        traces = {}
        for name, text in read_texts(path, self.select):
            where = f"{path}:{name}"
            time_s, rate_mbps = read_columns(where, text, 2)
            traces[name] = holding_until_next(where, time_s, rate_mbps * BIT_PER_MBIT, last_s=_SAMPLE_S)
        return traces

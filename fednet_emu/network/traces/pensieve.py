"""Traces in the form of Pensieve: Norwegian 3G on the move, and American broadband."""

from __future__ import annotations

from pathlib import Path

from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_columns, read_texts
from fednet_emu.network.traces.base import BIT_PER_MBIT, RateTraces, holding_since_last
from fednet_emu.network.traces.series import RateSeries


class PensieveTraces(RateTraces):
    """Lines "t_s<TAB>Mbps": throughput in Mbit/s since the line before, as Pensieve's simulator uses them.

    Mao, Netravali and Alizadeh, SIGCOMM 2017; the first line's rate is not used. The data are HSDPA downloads in buses,
    cars, ferries, metros, trains and trams around Oslo (Riiser et al., MMSys 2013) and fixed lines of the FCC.
    """

    kind = "pensieve"
    path: str = "net_fcc_norway3g/comyco_traces.tar.gz"
    """A folder or archive of them; a relative path is sought in the data folder first."""
    select: str = "cooked_traces/*.log"
    """Which files: by default the 68 of Norway; `cooked_traces/trace_*` are those of the FCC, and
    `cooked_traces/tram*` those in trams, for example."""

    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        """One trace per file."""
        path = locate(self.path, data_dir)
        traces = {}
        for name, text in read_texts(path, self.select):
            where = f"{path}:{name}"
            time_s, rate_mbps = read_columns(where, text, 2)
            traces[name] = holding_since_last(where, time_s, rate_mbps * BIT_PER_MBIT)
        return traces

"""File formats of recorded link rates: CSV files of the user, and formats of public data sets."""

from __future__ import annotations

import re
from abc import abstractmethod
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.flash import link_speeds
from fednet_emu.files.lines import header_rows, in_time, rate, rows, seconds, whole
from fednet_emu.files.recordings import read_texts
from fednet_emu.network.traces.series import (
    BIT_PER_KBIT,
    BIT_PER_MBIT,
    RateSeries,
    RateTraces,
    holding_since_last,
    holding_until_next,
)

_HOW_CSV = (
    "write a first line that names the columns time_s and rate_bps, and one line of seconds and bit/s for each change "
    "of the rate, in the order of time, with decimal points"
)
_HOW_COLUMNS = "write lines of two numbers, seconds and Mbit/s, in the order of time, separated by blanks or a tab"


class FileTraces(RateTraces):
    """Traces of link rates from files, each of which contains one trace."""

    path: str
    """A trace file, or a folder or archive with trace files. A relative path is looked up in the data folder first."""
    select: str
    """Pattern for the names of the trace files in a folder or archive."""

    @override
    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        path = locate(self.path, data_dir)
        return {
            name: self.series(name if path.name == name else f"{path}:{name}", text)
            for name, text in read_texts(path, self.select)
        }

    @abstractmethod
    def series(self, where: str, text: str) -> RateSeries:
        """Return the trace in the text of a file; `where` is the name of the file in error messages."""


class CsvTraces(FileTraces):
    """CSV files with the columns `time_s`, in s, and `rate_bps`, in bit/s; further columns are ignored.

    Separators are commas, semicolons or tabs; lines that begin with `#` are comments. A rate applies from the time of
    its row until the time of the next row; the last rate applies for the same duration as the rate before it. The
    trace starts at the time of the first row.
    """

    kind = "csv"
    select: str = "*.csv*"
    """Pattern for the names of the trace files in a folder or archive."""

    @override
    def series(self, where: str, text: str) -> RateSeries:
        fields = {"time_s": seconds, "rate_bps": rate(1.0)}
        time_s, rate_bps = in_time(where, header_rows(where, text, fields, _HOW_CSV), _HOW_CSV)
        return holding_until_next(where, time_s, rate_bps)


class FlashTraces(RateTraces):
    """Mean Wi-Fi rates of the 19 users of FLASH: one trace per user, whose rate is constant over time.

    From Yang et al., "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone data",
    WWW 2021. Uplink and downlink list the users in the same order, so that a device gets both rates of one user.
    Ignored here: differences between the rates of one user. FLASH itself draws a rate for each transfer (see
    `link_speeds`).
    """

    kind = "flash"
    path: str = "device_flash"
    """Folder of FLASH's files: a path in the data folder, or an absolute path."""
    direction: Literal["up", "down"]
    """Direction of the rates: `up` for an uplink, `down` for a downlink."""

    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        folder = locate(self.path, data_dir)
        speeds = link_speeds(folder)
        mean_bps = speeds.up_mean_bps if self.direction == "up" else speeds.down_mean_bps
        wrong = np.flatnonzero(~(np.isfinite(mean_bps) & (mean_bps > 0)))
        if len(wrong):
            problem = f"user {speeds.users[wrong[0]]} has its {self.direction} speed at {mean_bps[wrong[0]]:g} bit/s"
            raise DataError(str(folder / "speed_distri.json"), problem, "speeds are finite and above 0")
        edges_s = np.array([0.0, 1.0])
        return {user: RateSeries(edges_s, mean_bps[k : k + 1]) for k, user in enumerate(speeds.users)}


_HOW_IRISH = "select files of the Irish 5G data set only"
_COLUMNS = {"down": "DL_bitrate", "up": "UL_bitrate"}
_TIME = "%Y.%m.%d_%H.%M.%S"
_SAMPLE_S = 1.0


class Irish5gTraces(FileTraces):
    """CSV files that the G-NetTrack Pro app has recorded in Ireland (Raca, Leahy, Sreenan and Quinlan, MMSys 2020).

    `Timestamp` is local time in whole seconds; `DL_bitrate` and `UL_bitrate` are in kbit/s. A rate applies until the
    next time stamp. Rates of the same second are averaged. The last rate applies for 1 s.
    """

    kind = "irish-5g"
    path: str = "net_5g_irish/5G-production-dataset.zip"
    select: str = "*/Download/*.csv"
    """Pattern for the names of the trace files. The downloads in `*/Download/Driving/*` and `*/Download/Static/*` use
    the full link, and therefore measure its capacity. In all other folders, a video player limits the rate."""
    direction: Literal["down", "up"] = "down"
    """Direction of the rates. The uplink rates do not measure the capacity, because the uplink of a download carries
    mostly acknowledgements."""

    @override
    def series(self, where: str, text: str) -> RateSeries:
        fields = {"Timestamp": _stamp_s, _COLUMNS[self.direction]: rate(BIT_PER_KBIT)}
        time_s, rate_bps = in_time(where, header_rows(where, text, fields, _HOW_IRISH), _HOW_IRISH)
        return holding_until_next(where, time_s, rate_bps, last_s=_SAMPLE_S)


def _stamp_s(text: str) -> float:
    try:
        return (datetime.strptime(text, _TIME) - datetime(1970, 1, 1)).total_seconds()
    except ValueError as error:
        raise ValueError("is no time like 2019.12.16_13.40.04") from error


class Lumos5gTraces(FileTraces):
    """Lines "t_s Mbps": downlink throughput in Mbit/s during the second that starts at the time t_s in s.

    From Narayanan et al., "A variegated look at 5G in the wild", SIGCOMM 2021. Some seconds are missing or repeated: a
    rate applies until the time of the next line, and rates of the same second are averaged.
    """

    kind = "lumos-5g"
    path: str = "net_5g_umn/lumos5g_4g_5g_traces.tar.gz"
    select: str = "*/5G/*"
    """Pattern for the names of the trace files: `*/5G/*` or `*/4G/*`."""

    @override
    def series(self, where: str, text: str) -> RateSeries:
        time_s, rate_bps = _two_columns(where, text)
        return holding_until_next(where, time_s, rate_bps, last_s=_SAMPLE_S)


def _two_columns(where: str, text: str) -> Array:
    fields = {"time": seconds, "rate": rate(BIT_PER_MBIT)}
    return in_time(where, rows(where, text, fields, _HOW_COLUMNS), _HOW_COLUMNS)


_MS = 1e-3
_LONGEST_MS = 10**9
_PLAIN = re.compile(r"(?:\d{1,9}\n)*\d{0,9}", re.ASCII)
_HOW_MAHIMAHI = f"write one whole number of milliseconds per line, in rising order from 0 to at most {_LONGEST_MS}"
_BIT_PER_BYTE = 8


class MahimahiTraces(FileTraces):
    """Lines that state the times in ms at which a link can deliver a packet, as in the emulator mahimahi.

    The data are from Winstein, Sivaraman and Balakrishnan, NSDI 2013. A line with the whole number t permits one packet
    in the millisecond that ends at t, and the trace repeats after its last line: a file with the single line "1" is a
    link with one packet per millisecond. A line 0 counts for the first millisecond.
    """

    kind = "mahimahi"
    path: str = "net_mahimahi_cellular"
    select: str = "*.down*"
    """Pattern for the names of the trace files in the folder; `*.up*` selects uplinks."""
    packet_byte: int = Field(1504, gt=0)
    """Packet size in bytes. mahimahi sends 1504 bytes per line: an IP packet of 1500 bytes, and 4 bytes of its tunnel's
    header. With 1500, which is the size of the IP packet only, all rates are 0.27 % lower."""
    window_s: float = Field(0.1, ge=0.001)
    """Length in s of the windows over which rates are averaged; the total number of bits does not change. With 0.001,
    the trace is used as recorded."""

    @override
    def series(self, where: str, text: str) -> RateSeries:
        exact = packet_series(where, text, self.packet_byte * _BIT_PER_BYTE)
        return exact.averaged(self.window_s) if self.window_s > _MS else exact


def packet_series(where: str, text: str, packet_bit: float) -> RateSeries:
    """Return a series with one rate per millisecond, from a text with the time in ms of one packet per line.

    Raises:
        DataError: the lines are not integers in non-decreasing order, or the last integer is 0.
    """
    plain = _PLAIN.fullmatch(text)  # matches nearly every file; parsing is then a hundred times as fast
    line_ms = np.array(text.split() if plain else [], np.int64)
    if not len(line_ms) or (np.diff(line_ms) < 0).any():
        found = rows(where, text, {"time": lambda field: whole(field, high=_LONGEST_MS)}, _HOW_MAHIMAHI)
        line_ms = in_time(where, found, _HOW_MAHIMAHI)[0].astype(np.int64)
    end_ms = int(line_ms[-1])
    if not end_ms:
        raise DataError(where, "ends at 0, got no millisecond", _HOW_MAHIMAHI)
    ms, packets = np.unique(np.maximum(line_ms - 1, 0), return_counts=True)
    edges = np.unique(np.concatenate([[0], ms, ms + 1, [end_ms]]))
    held = np.zeros(len(edges) - 1, np.int64)
    held[np.searchsorted(edges, ms)] = packets
    starts = np.append(0, np.flatnonzero(np.diff(held)) + 1)
    return RateSeries(np.append(edges[starts], end_ms) * _MS, held[starts] * (packet_bit / _MS))


class PensieveTraces(FileTraces):
    """Lines "t_s<TAB>Mbps": throughput in Mbit/s since the previous line, as in Pensieve's simulator.

    From Mao, Netravali and Alizadeh, SIGCOMM 2017. The rate of the first line is not used. The data are HSDPA downloads
    in buses, cars, ferries, metros, trains and trams around Oslo (Riiser et al., MMSys 2013), and FCC measurements of
    fixed lines.
    """

    kind = "pensieve"
    path: str = "net_fcc_norway3g/comyco_traces.tar.gz"
    select: str = "cooked_traces/*.log"
    """Pattern for the names of the trace files: by default the 68 files from Norway; `cooked_traces/trace_*` selects
    the FCC files, and `cooked_traces/tram*`, for example, the files recorded in trams."""

    @override
    def series(self, where: str, text: str) -> RateSeries:
        return holding_since_last(where, *_two_columns(where, text))

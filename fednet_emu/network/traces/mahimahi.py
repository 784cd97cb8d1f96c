"""Traces of the mahimahi link emulator: the milliseconds at which a packet may leave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_texts
from fednet_emu.network.traces.base import RateTraces
from fednet_emu.network.traces.series import RateSeries

_MS = 1e-3
_BIT_PER_BYTE = 8


class MahimahiTraces(RateTraces):
    """Packet opportunities, one whole number of milliseconds per line.

    The data are of Winstein, Sivaraman and Balakrishnan, NSDI 2013. A line t lets one packet cross in the
    millisecond that ends at t, and the trace repeats after its last line, as in mahimahi: a file of the one line "1"
    is a link of one packet per millisecond. A line 0 counts in the first millisecond.
    """

    kind = "mahimahi"
    path: str = "net_mahimahi_cellular"
    """A folder or archive of them; a relative path is sought in the data folder first."""
    select: str = "*.down*"
    """Which files of the folder: uplinks are `*.up*`."""
    packet_byte: int = Field(1504, gt=0)
    """Bytes of a packet: 1504 is what mahimahi drains per line, an IP packet of 1500 and 4 of its tunnel's header; 1500
    counts IP bytes only, and every rate is 0.27 % lower."""
    window_s: float = Field(0.1, ge=0.001)
    """Opportunities are averaged over windows of this length; the bits stay the same. 0.001 is as recorded."""

    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        """One trace per file."""
        path = locate(self.path, data_dir)
        traces = {}
        for name, text in read_texts(path, self.select):
            exact = packet_series(f"{path}:{name}", text, self.packet_byte * _BIT_PER_BYTE)
            traces[name] = exact.averaged(self.window_s) if self.window_s > _MS else exact
        return traces


def packet_series(where: str, text: str, packet_bit: float) -> RateSeries:
    """The rate, constant over each run of milliseconds with equally many packets, of lines of milliseconds.

    Raises:
        DataError: The lines are no whole numbers in rising order that end above 0.
    """
    how = "one whole number of milliseconds per line, in rising order, is right"
    try:
        line_ms = np.array(text.split(), dtype=np.int64)
    except ValueError as error:
        raise DataError(where, f"is no mahimahi trace ({error})", how) from error
    if len(line_ms) == 0 or line_ms[-1] <= 0 or line_ms[0] < 0 or (np.diff(line_ms) < 0).any():
        raise DataError(where, "is empty, goes back in time or ends at 0", how)
    packets = np.bincount(np.maximum(line_ms - 1, 0), minlength=line_ms[-1])
    return RateSeries(*_merged(packets, packet_bit / _MS))


def _merged(packets: IntArray, one_bps: float) -> tuple[Array, Array]:
    starts = np.append(0, np.flatnonzero(np.diff(packets)) + 1)
    return np.append(starts, len(packets)) * _MS, packets[starts] * one_bps

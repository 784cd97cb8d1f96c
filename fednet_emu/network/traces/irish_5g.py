"""The Irish 5G production data set: what phones of one operator got, once per second."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np

from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_texts
from fednet_emu.network.traces.base import BIT_PER_KBIT, RateTraces, holding_until_next
from fednet_emu.network.traces.series import RateSeries

_COLUMNS = {"down": "DL_bitrate", "up": "UL_bitrate"}
_TIME = "%Y.%m.%d_%H.%M.%S"
_SAMPLE_S = 1.0


class Irish5gTraces(RateTraces):
    """CSV files of the G-NetTrack Pro app (Raca, Leahy, Sreenan and Quinlan, MMSys 2020).

    `Timestamp` is local time in whole seconds, `DL_bitrate` and `UL_bitrate` are kbit/s. A row holds until the next
    time; rows of the same second are averaged; the last one holds for 1 s.
    """

    kind = "irish-5g"
    path: str = "net_5g_irish/5G-production-dataset.zip"
    """A folder or archive of them; a relative path is sought in the data folder first."""
    select: str = "*/Download/*.csv"
    """Which files: downloads fill the link and so measure its capacity; in the other folders a video player is the
    limit. `*/Download/Driving/*` and `*/Download/Static/*` are the two halves."""
    direction: Literal["down", "up"] = "down"
    """The uplink of a download carries little but acknowledgements: its rates are no capacities."""

    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        """One trace per file."""
        path = locate(self.path, data_dir)
        column = _COLUMNS[self.direction]
        return {name: _series(f"{path}:{name}", text, column) for name, text in read_texts(path, self.select)}


def _series(where: str, text: str, column: str) -> RateSeries:
    rows = csv.DictReader(text.splitlines())
    times, rates_kbps = [], []
    for row in rows:
        try:
            times.append(datetime.strptime(row["Timestamp"], _TIME))
            rates_kbps.append(float(row[column]))
        except (KeyError, TypeError, ValueError) as error:
            problem = f"line {rows.line_num} lacks a time like 2019.12.16_13.40.04 or a number for {column} ({error})"
            raise DataError(where, problem, "select files of the Irish 5G data set only") from error
    if not times:
        raise DataError(where, "has no rows", "select files of the Irish 5G data set only")
    time_s = np.array([(time - times[0]).total_seconds() for time in times])
    return holding_until_next(where, time_s, np.array(rates_kbps) * BIT_PER_KBIT, last_s=_SAMPLE_S)

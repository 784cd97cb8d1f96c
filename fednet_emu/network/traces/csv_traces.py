"""The user's own traces: CSV files with the columns time_s and rate_bps."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_texts
from fednet_emu.network.traces.base import RateTraces, holding_until_next
from fednet_emu.network.traces.series import RateSeries


class CsvTraces(RateTraces):
    """CSV files whose header names `time_s`, seconds, and `rate_bps`, bit/s; further columns are ignored.

    A rate holds from the time of its row until that of the next row; the last one for as long as the one before it.
    Times count from the first row.
    """

    kind = "csv"
    path: str
    """A file, or a folder or archive of them."""
    select: str = "*.csv*"
    """Which files of a folder or archive."""

    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        """One trace per file."""
        path = locate(self.path, data_dir)
        traces = {}
        for name, text in read_texts(path, self.select):
            where = name if path.name == name else f"{path}:{name}"
            time_s, rate_bps = csv_columns(where, text, ("time_s", "rate_bps"))
            traces[name] = holding_until_next(where, time_s, rate_bps)
        return traces


def csv_columns(where: str, text: str, names: tuple[str, ...]) -> Array:
    """The numbers [names, rows] of these columns of a CSV text with a header.

    Raises:
        DataError: A column is missing, or a line lacks a finite number; the line is named.
    """
    rows = csv.DictReader(text.splitlines())
    missing = [name for name in names if name not in (rows.fieldnames or ())]
    if missing:
        got = ", ".join(rows.fieldnames or ()) or "nothing"
        raise DataError(
            where, f"lacks the column {', '.join(missing)}, got {got}", "name the columns in the first line"
        )
    table = []
    for row in rows:
        try:
            values = [float(row[name]) for name in names]
        except (TypeError, ValueError) as error:
            problem = f"line {rows.line_num} has no number for {' or '.join(names)}"
            raise DataError(where, problem, "mend or drop the line") from error
        if not np.isfinite(values).all():
            raise DataError(where, f"line {rows.line_num} is not finite, got {values}", "mend or drop the line")
        table.append(values)
    if not table:
        raise DataError(where, "has no rows", "write one row for each change of the rate")
    return np.array(table).T.copy()

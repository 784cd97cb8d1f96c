"""Polylines through recorded points; devices move along them."""

from __future__ import annotations

from typing import final

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.files.lines import LONGEST_S


@final
class Polylines:
    """Polylines through arrays [rows, 3] of time in s, x and y in m, with linear interpolation between the rows.

    The times of a line must not decrease, and the last two times must differ. All lines are placed one after the other
    on a common time axis, one second apart. The total length of the axis is limited so that times are exact to two
    microseconds.
    """

    def __init__(self, lines: list[Array]) -> None:
        lengths = np.array([len(rows) for rows in lines])
        last = np.cumsum(lengths) - 1
        self.duration_s = np.array([rows[-1, 0] - rows[0, 0] for rows in lines])
        self.length_m = np.array([float(np.hypot(*np.diff(rows[:, 1:], axis=0).T).sum()) for rows in lines])
        if not (whole_s := float(self.duration_s.sum())) + len(lines) <= LONGEST_S:
            what = f"{len(lines)} recorded ways are too long, got {whole_s:.3g} s in all"
            raise ScenarioError(f"devices.mobility: {what}; give ways of at most {LONGEST_S:g} s in all")
        # on a common time axis, one search serves devices on different lines
        self._base_s = np.cumsum(self.duration_s + 1.0) - self.duration_s
        self._time_s = np.concatenate(
            [rows[:, 0] - rows[0, 0] + start_s for rows, start_s in zip(lines, self._base_s, strict=True)]
        )
        self._xy_m = np.concatenate([rows[:, 1:] for rows in lines])
        self._first, self._last = last - lengths + 1, last

    def at_m(self, line: IntArray, time_s: Array) -> Array:
        """Coordinates [k, 2] in m on lines [k] at times [k] in s since the first row, clipped to the end points."""
        clock_s = self._base_s[line] + time_s
        row = np.searchsorted(self._time_s, clock_s, side="right") - 1
        row = np.minimum(np.maximum(row, self._first[line]), self._last[line] - 1)
        start_s = self._time_s[row]
        along = np.minimum(np.maximum((clock_s - start_s) / (self._time_s[row + 1] - start_s), 0.0), 1.0)[:, None]
        return np.asarray(self._xy_m[row] * (1 - along) + self._xy_m[row + 1] * along)

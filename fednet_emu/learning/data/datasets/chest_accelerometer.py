"""Activities of fifteen people, from one accelerometer on the chest."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples
from fednet_emu.learning.data.datasets.held_out import last_of_each, windows_of_people

PARTICIPANTS = 15
ACTIVITIES = 7
_COLUMNS = ["number", "x", "y", "z", "activity"]


class ChestAccelerometer(Dataset):
    """Casale, Pujol, Radeva (2012): 15 participants, 7 activities, 3 axes at 52 Hz; groups are participants 0 to 14.

    Windows x [n, 3, window] are cut from stretches of one activity; the rest of a stretch, and rows without an
    activity, are dropped. The same share of each participant's windows of each activity is used for testing. Axes are
    standardised over the training windows. Activities are numbered from 0: working at a computer; standing up, walking
    and going up or down stairs; standing; walking; stairs; walking and talking; talking while standing.
    """

    path: str = "chest_accelerometer"
    """Folder of the files 1.csv.gz to 15.csv.gz: a full path, or a path inside the data folder."""
    window: int = Field(104, gt=0, le=10_000)
    """Length of a window in rows; 52 rows are one second."""
    stride: int | None = Field(None, gt=0)
    """Rows between the starts of two successive windows; null takes `window`, for no gaps and no overlap."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of each participant's windows of an activity that is used for testing."""
    test_windows: Literal["last", "random"] = "last"
    """Which windows are for testing. last: the last ones in time; random: drawn from all windows, so that their
    neighbours in time may be training windows."""
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Share of each participant's training windows of an activity that is held out at random and evaluated on instead
    of the test windows, which are then not used at all: for choosing settings without them. 0 evaluates on the test
    windows."""

    def extent(self, data_dir: Path | None) -> Extent:
        """The shape of a window; how many there are depends on the files."""
        return Extent((3, self.window), ACTIVITIES)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Read the files of all participants, and select the windows to evaluate on."""
        folder = locate(self.path, data_dir)
        parts = [self._windows(folder / f"{number}.csv.gz") for number in range(1, PARTICIPANTS + 1)]
        x = np.concatenate([windows for windows, _ in parts])
        y = np.concatenate([labels for _, labels in parts])
        group = np.repeat(np.arange(PARTICIPANTS), [len(labels) for _, labels in parts])
        order = rng.permutation(len(y)) if self.test_windows == "random" else np.arange(len(y))
        test = last_of_each(group * ACTIVITIES + y, order, self.test_share)
        if self.validation_share:
            x, y, group = x[~test], y[~test], group[~test]
            test = last_of_each(group * ACTIVITIES + y, rng.permutation(len(y)), self.validation_share)
        return windows_of_people(x, y, group, test, ACTIVITIES)

    def _windows(self, path: Path) -> tuple[NDArray[np.float32], IntArray]:
        """Windows [n, 3, window] of one participant and their activities [n] from 0, in the order of time."""
        import pandas as pd

        try:
            rows = pd.read_csv(path, header=None, names=_COLUMNS, dtype=np.float32)
        except (OSError, ValueError) as error:
            remedy = "use the files of the UCI repository, compressed by gzip"
            raise DataError(str(path), f"cannot be read as five columns of numbers ({error})", remedy) from error
        axes, activity = rows[["x", "y", "z"]].to_numpy(), rows["activity"].to_numpy().astype(np.int64)
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(activity)) + 1, [len(activity)]])
        starts = [
            start
            for first, end in pairwise(bounds)
            if 1 <= activity[first] <= ACTIVITIES
            for start in range(first, end - self.window + 1, self.stride or self.window)
        ]
        index = np.array(starts, dtype=np.int64)
        return axes[index[:, None] + np.arange(self.window)].transpose(0, 2, 1), activity[index] - 1

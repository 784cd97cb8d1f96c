"""Data sets with windows of signals from wearable sensors: UCI HAR and a chest accelerometer."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.npz import read_arrays
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples, last_of_each, windows_of_people

_ACTIVITIES = 6
SIGNALS = ("body_acc_x", "body_acc_y", "body_acc_z", "body_gyro_x", "body_gyro_y", "body_gyro_z",
           "total_acc_x", "total_acc_y", "total_acc_z")  # fmt: skip
"""The signals, in the order of the channels of a sample."""
LENGTH, SAMPLES = 128, 10_299
OFFICIAL_TEST = (2, 4, 9, 10, 12, 13, 18, 20, 24)
"""The subjects of the official test set, numbered from 1."""
PACKED, PACKED_UNIT = "uci_har_i16.npz.xz", 2e-4
"""Name of a file that contains all windows as 16-bit integers, and the signal value of one integer step."""


class UciHar(Dataset):
    """UCI HAR: smartphone signals of 30 subjects during six activities (Anguita et al., ESANN 2013).

    Authors: Anguita, Ghio, Oneto, Parra, Reyes-Ortiz. Groups are the subjects, numbered from 0 to 29. Samples [n, 9,
    128] are windows of 2.56 s at a sampling rate of 50 Hz. The channels are the acceleration of the body (without
    gravity), the angular velocity of the body, and the total acceleration, each along three axes. Channels are
    standardised over the training windows. The classes, numbered from 0, are the activities walking, walking upstairs,
    walking downstairs, sitting, standing and lying.
    """

    path: str = "uci_har"
    """Folder that contains the published folders `train` and `test`, or the file `uci_har_i16.npz.xz`. Either a full
    path, or a path inside the data folder."""
    test: Literal["windows", "subjects"] = "windows"
    """Samples that are used for testing. windows: the last windows of each subject and activity, in the order of the
    files, so that every subject can be a device; subjects: all windows of the nine subjects in the official test set,
    so that the devices of these subjects have no training samples."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of the windows of each subject and activity that is used for testing if `test` is `windows`."""

    def extent(self, data_dir: Path | None) -> Extent:
        return Extent((len(SIGNALS), LENGTH), _ACTIVITIES, SAMPLES)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        folder = locate(self.path, data_dir)
        packed = folder / PACKED
        parts = [_packed(packed)] if packed.is_file() else [_part(folder / name, name) for name in ("train", "test")]
        x, y, subject = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        in_time = np.arange(len(y))
        official, last = np.isin(subject, OFFICIAL_TEST), last_of_each(subject * 10 + y, in_time, self.test_share)
        test = official if self.test == "subjects" else last
        return windows_of_people(x, y, subject - 1, test, _ACTIVITIES)


_Windows = tuple[NDArray[np.float32], IntArray, IntArray]
"""Windows [n, 9, 128], activities [n] from 0, and subjects [n] from 1."""


def _packed(path: Path) -> _Windows:
    how = "use the published files"
    arrays = read_arrays(path, how, ("x", "y", "subject"))
    if len(arrays) < 3:
        raise DataError(str(path), f"lacks windows x, activities y or subjects, got {', '.join(arrays) or 'none'}", how)
    x, y, subject = arrays["x"], arrays["y"], arrays["subject"]
    return (x * np.float32(PACKED_UNIT)).astype(np.float32), y.astype(np.int64), subject.astype(np.int64)


def _part(folder: Path, name: str) -> _Windows:
    signals = [_numbers(folder / "Inertial Signals" / f"{signal}_{name}.txt", np.float32) for signal in SIGNALS]
    y, subject = (_numbers(folder / f"{what}_{name}.txt", np.int64)[:, 0] for what in ("y", "subject"))
    for signal, values in zip(SIGNALS, signals, strict=True):
        if values.shape != (len(y), LENGTH) or len(subject) != len(y):
            place = str(folder / "Inertial Signals" / f"{signal}_{name}.txt")
            problem = f"must have {len(y)} rows of {LENGTH} numbers, got shape {values.shape}"
            raise DataError(place, problem, "use the files of one release")
    return np.stack(signals, axis=1), y - 1, subject


def _numbers(path: Path, dtype: Any) -> NDArray[Any]:
    import pandas as pd

    try:
        return pd.read_csv(path, sep=r"\s+", header=None, dtype=dtype).to_numpy()
    except (OSError, ValueError) as error:
        remedy = "use the folder `UCI HAR Dataset` of the UCI repository"
        raise DataError(str(path), f"cannot be read as rows of numbers ({error})", remedy) from error


PARTICIPANTS = 15
_MOVES = 7
_COLUMNS = ["number", "x", "y", "z", "activity"]


class ChestAccelerometer(Dataset):
    """Chest acceleration of 15 participants during seven activities (Casale, Pujol, Radeva, 2012).

    The acceleration is measured along three axes at 52 Hz. Groups are the participants, numbered from 0 to 14. Samples
    [n, 3, window] are windows that are cut from intervals of a single activity. Rows of a file that fill no window, or
    that have no activity, are dropped. Axes are standardised over the training windows. The classes, numbered from 0,
    are the activities: working at a computer; standing up, walking and going up or down stairs; standing; walking;
    going up or down stairs; walking while talking; talking while standing.
    """

    path: str = "chest_accelerometer"
    """Folder with the files 1.csv.gz to 15.csv.gz. Either a full path, or a path inside the data folder."""
    window: int = Field(104, gt=0, le=10_000)
    """Length of a window in rows; 52 rows are one second."""
    stride: int | None = Field(None, gt=0)
    """Distance between the starts of two successive windows, in rows. Null uses `window`, so that windows neither
    overlap nor leave gaps."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of the windows of each participant and activity that is used for testing."""
    test_windows: Literal["last", "random"] = "last"
    """Windows that are used for testing. last: the last windows in time; random: windows drawn at random, so that the
    windows before and after a test window may be training windows."""
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Share of the training windows of each participant and activity that is held out at random as a validation set. If
    the share is positive, models are evaluated on the validation set. The test windows are then not used at all, so
    that settings can be chosen without them. If the share is 0, models are evaluated on the test windows."""

    def extent(self, data_dir: Path | None) -> Extent:
        return Extent((3, self.window), _MOVES)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        folder = locate(self.path, data_dir)
        parts = [self._windows(folder / f"{number}.csv.gz") for number in range(1, PARTICIPANTS + 1)]
        x = np.concatenate([windows for windows, _ in parts])
        y = np.concatenate([labels for _, labels in parts])
        group = np.repeat(np.arange(PARTICIPANTS), [len(labels) for _, labels in parts])
        order = rng.permutation(len(y)) if self.test_windows == "random" else np.arange(len(y))
        test = last_of_each(group * _MOVES + y, order, self.test_share)
        if self.validation_share:
            x, y, group = x[~test], y[~test], group[~test]
            test = last_of_each(group * _MOVES + y, rng.permutation(len(y)), self.validation_share)
        return windows_of_people(x, y, group, test, _MOVES)

    def _windows(self, path: Path) -> tuple[NDArray[np.float32], IntArray]:
        """Return the windows [n, 3, window] of one participant in order of time, and their activities [n] from 0."""
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
            if 1 <= activity[first] <= _MOVES
            for start in range(first, end - self.window + 1, self.stride or self.window)
        ]
        index = np.array(starts, dtype=np.int64)
        return axes[index[:, None] + np.arange(self.window)].transpose(0, 2, 1), activity[index] - 1

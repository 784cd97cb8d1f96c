"""Activities of thirty people with a smartphone at the waist (UCI HAR)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.npz import read_arrays
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples
from fednet_emu.learning.data.datasets.held_out import last_of_each, windows_of_people

ACTIVITIES = 6
SIGNALS = ("body_acc_x", "body_acc_y", "body_acc_z", "body_gyro_x", "body_gyro_y", "body_gyro_z",
           "total_acc_x", "total_acc_y", "total_acc_z")  # fmt: skip
"""The signals, in the order of the channels of a sample."""
LENGTH, SAMPLES = 128, 10_299
OFFICIAL_TEST = (2, 4, 9, 10, 12, 13, 18, 20, 24)
"""The subjects, numbered from 1, of the official test set."""
PACKED, PACKED_UNIT = "uci_har_i16.npz.xz", 2e-4
"""One file with all windows as 16-bit integers, and what a unit of them is."""


class UciHar(Dataset):
    """Anguita, Ghio, Oneto, Parra, Reyes-Ortiz (ESANN 2013): 30 subjects, 6 activities; groups are subjects 0 to 29.

    Samples [n, 9, 128] are windows of 2.56 s at 50 Hz: acceleration without and angular velocity of the body, then
    total acceleration, each along three axes, standardised over the training windows. Activities are numbered from 0:
    walking, walking upstairs, walking downstairs, sitting, standing, laying.
    """

    path: str = "uci_har"
    """Folder of the data: as published, with the folders `train` and `test`, or with the file `uci_har_i16.npz.xz`; a
    full path, or a path inside the data folder."""
    test: Literal["windows", "subjects"] = "windows"
    """What is for testing. windows: a share of each subject's windows of an activity, the last in the order of the
    files, so that every subject can be a device; subjects: the nine of the official test set, so that their devices
    have no training samples."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """With `test: windows`, the share of each subject's windows of an activity."""

    def extent(self, data_dir: Path | None) -> Extent:
        """The published sizes."""
        return Extent((len(SIGNALS), LENGTH), ACTIVITIES, SAMPLES)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Read all windows; the random stream is not used."""
        folder = locate(self.path, data_dir)
        packed = folder / PACKED
        x, y, subject = _packed(packed) if packed.is_file() else _published(folder)
        in_time = np.arange(len(y))
        official, last = np.isin(subject, OFFICIAL_TEST), last_of_each(subject * 10 + y, in_time, self.test_share)
        test = official if self.test == "subjects" else last
        return windows_of_people(x, y, subject - 1, test, ACTIVITIES)


_Windows = tuple[NDArray[np.float32], IntArray, IntArray]
"""Windows [n, 9, 128], activities [n] from 0, and subjects [n] from 1."""


def _packed(path: Path) -> _Windows:
    how = "use the published files"
    arrays = read_arrays(path, how, ("x", "y", "subject"))
    if len(arrays) < 3:
        raise DataError(str(path), f"lacks windows x, activities y or subjects, got {', '.join(arrays) or 'none'}", how)
    x, y, subject = arrays["x"], arrays["y"], arrays["subject"]
    return (x * np.float32(PACKED_UNIT)).astype(np.float32), y.astype(np.int64), subject.astype(np.int64)


def _published(folder: Path) -> _Windows:
    parts = [_part(folder / name, name) for name in ("train", "test")]
    x, y, subject = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return x, y, subject


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

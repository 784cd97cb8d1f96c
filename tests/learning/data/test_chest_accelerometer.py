"""Claims about the chest accelerometer: windows by hand on small files, and the published counts on the real ones."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fednet_emu.learning.data.datasets import ChestAccelerometer

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[4] / "shared" / "data"))
RNG = np.random.default_rng(0)
needs_chest = pytest.mark.skipif(not (DATA / "chest_accelerometer").is_dir(), reason="no accelerometer data")

STRETCHES = (1,) * 12 + (0,) * 3 + (2,) * 7 + (1,) * 8 + (7,) * 4
"""Activities of one participant, row by row; 0 is none."""


def files(folder: Path, activities: tuple[int, ...] = STRETCHES) -> Path:
    """Fifteen small files: x counts the rows, y is ten times the participant, z alternates."""
    for number in range(1, 16):
        rows = [f"{i},{i},{10 * number},{i % 2},{activity}\n" for i, activity in enumerate(activities)]
        (folder / f"{number}.csv.gz").write_bytes(gzip.compress("".join(rows).encode()))
    return folder


def test_windows_are_cut_out_of_stretches(tmp_path: Path) -> None:
    """Windows of four rows: three, one, two and one per participant; rests and rows without an activity go."""
    samples = ChestAccelerometer(path=str(files(tmp_path)), window=4, test_share=0.2).load(None, RNG)
    x = samples.train_x[samples.train_group == 3][:, 0]

    assert samples.input_shape == (3, 4)
    assert np.bincount(samples.train_y).tolist() == [4 * 15, 15, 0, 0, 0, 0, 15]
    assert np.bincount(samples.test_y).tolist() == [15]
    assert np.bincount(samples.train_group).tolist() == [6] * 15
    assert np.allclose(np.diff(x), np.diff(x)[0, 0])
    assert np.allclose(x[:, 0] - x[0, 0], np.array([0, 4, 8, 15, 22, 30]) * np.diff(x)[0, 0], atol=1e-5)


def test_the_last_windows_are_for_testing(tmp_path: Path) -> None:
    """The only test window of a participant is its latest of activity 1, later than all others of that activity."""
    samples = ChestAccelerometer(path=str(files(tmp_path)), window=4).load(None, RNG)
    own, test = (y == 0 for y in (samples.train_y, samples.test_y))

    assert samples.test_x[test][:, 0].min() > samples.train_x[own][:, 0].max()


def test_a_stride_sets_the_windows_apart(tmp_path: Path) -> None:
    """Stretches of 12 and 8 rows have windows of two rows, five apart: three and two of activity 1."""
    samples = ChestAccelerometer(path=str(files(tmp_path)), window=2, stride=5, test_share=0.4).load(None, RNG)

    assert np.bincount(torch.cat([samples.train_y, samples.test_y])).tolist() == [5 * 15, 2 * 15, 0, 0, 0, 0, 15]


def test_random_test_windows_are_as_many_and_others(tmp_path: Path) -> None:
    """The share of each activity of each participant is kept, and another stream draws others."""
    path = str(files(tmp_path))
    last, one, other = (
        ChestAccelerometer(path=path, window=4, test_windows=which).load(None, np.random.default_rng(seed))
        for which, seed in (("last", 0), ("random", 1), ("random", 2))
    )

    assert np.bincount(last.test_y).tolist() == np.bincount(one.test_y).tolist() == [15]
    assert np.bincount(one.test_group).tolist() == [1] * 15
    assert not torch.equal(one.test_x, last.test_x)
    assert not torch.equal(one.test_x, other.test_x)


def test_validation_windows_come_out_of_the_training_windows(tmp_path: Path) -> None:
    """Of five windows of activity 1, at rows 0, 4, 8, 22 and 26, the last is for testing and seen by nobody.

    One of the other four is for validation, in place of the test window, and not always the same one.
    """
    data = ChestAccelerometer(path=str(files(tmp_path)), window=4, validation_share=0.25)
    drawn = set()
    for seed in range(6):
        samples = data.load(None, np.random.default_rng(seed))
        train, held = (
            x[(y.numpy() == 0) & (group == 3)][:, 0, 0]
            for x, y, group in (
                (samples.train_x, samples.train_y, samples.train_group),
                (samples.test_x, samples.test_y, samples.test_group),
            )
        )
        rows = torch.cat([train, held]).sort().values

        assert (len(train), len(held)) == (3, 1)
        assert ((rows - rows[0]) / (rows[1] - rows[0])).tolist() == pytest.approx([0, 1, 2, 5.5], abs=1e-4)
        drawn.add(rows.tolist().index(float(held)))
    assert len(drawn) > 1


def test_axes_are_standardised_over_the_training_windows(tmp_path: Path) -> None:
    """Mean 0 and deviation 1 of each axis."""
    x = ChestAccelerometer(path=str(files(tmp_path)), window=4).load(None, RNG).train_x

    assert x.mean((0, 2)).tolist() == pytest.approx([0] * 3, abs=1e-6)
    assert x.std((0, 2), correction=0).tolist() == pytest.approx([1] * 3, abs=1e-5)


@needs_chest
def test_the_real_data_have_fifteen_participants_and_seven_activities() -> None:
    """All windows of two seconds: 18,424 of at most 1,923,177 / 104, a fifth of them for testing."""
    samples = ChestAccelerometer().load(DATA, RNG)

    assert (len(samples.train_y), len(samples.test_y)) == (14_735, 3_689)
    assert 0 <= 1_923_177 // 104 - 18_424 < 100
    assert set(samples.train_group) == set(samples.test_group) == set(range(15))
    assert len(np.bincount(samples.train_y)) == 7

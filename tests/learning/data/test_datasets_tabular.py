"""Claims about UCI HAR and UCI Adult: files in their published forms, small and, where they are present, whole."""

from __future__ import annotations

import gzip
import io
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.errors import DataError
from fednet_emu.learning.data.datasets import Adult, UciHar
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.datasets.wearables import SIGNALS

RNG = np.random.default_rng(0)
DATA = os.environ.get("FEDNET_DATA")


def whole(name: str) -> Path:
    """The data folder, if it has this data set."""
    if not DATA or not (Path(DATA) / name).is_dir():
        pytest.skip(f"needs {name} in the folder that FEDNET_DATA names")
    return Path(DATA)


@pytest.fixture
def har(tmp_path: Path) -> Path:
    """Two subjects in the published text form: subject 1 for training with 3 windows, subject 2 for testing with 2."""
    for part, subjects, activities in (("train", [1, 1, 1], [1, 1, 6]), ("test", [2, 2], [1, 4])):
        folder = tmp_path / "uci_har" / part / "Inertial Signals"
        folder.mkdir(parents=True)
        for channel, signal in enumerate(SIGNALS):
            rows = [[100 * number + channel + step / 128 for step in range(128)] for number in range(len(subjects))]
            text = "\n".join(" ".join(f" {value: .7e}" for value in row) for row in rows)
            (folder / f"{signal}_{part}.txt").write_text(text + "\n")
        (folder.parent / f"y_{part}.txt").write_text("\n".join(map(str, activities)) + "\n")
        (folder.parent / f"subject_{part}.txt").write_text("\n".join(map(str, subjects)) + "\n")
    return tmp_path


def test_windows_are_read_from_the_published_files(har: Path) -> None:
    """Nine channels in their order, activities and subjects from 0, standardised over the training windows."""
    samples = UciHar(test="subjects").load(har, RNG)

    assert samples.train_x.shape == (3, 9, 128)
    assert samples.test_x.shape == (2, 9, 128)
    assert samples.train_y.tolist() == [0, 0, 5]
    assert samples.test_y.tolist() == [0, 3]
    assert (samples.train_group.tolist(), samples.test_group.tolist()) == ([0, 0, 0], [1, 1])
    raw = np.array([[100 * n + step / 128 for step in range(128)] for n in range(3)])
    ours = samples.train_x[:, 4].numpy()
    assert ours == pytest.approx((raw - raw.mean()) / raw.std(), abs=1e-5)


def test_the_last_windows_of_each_subject_are_for_testing(har: Path) -> None:
    """Half of each activity of each subject, rounded to even: of one window none, of two one, the second."""
    samples = UciHar(test_share=0.5).load(har, RNG)

    assert samples.test_y.tolist() == [0]
    assert samples.test_group.tolist() == [0]
    assert sorted(samples.train_group.tolist()) == [0, 0, 1, 1]


def test_packed_windows_are_the_same(har: Path) -> None:
    """Integers in units of 0.0002 instead of texts."""
    values = RNG.integers(-9000, 9000, (5, 9, 128)).astype(np.int16)
    buffer = io.BytesIO()
    np.savez(buffer, x=values, y=np.array([0, 0, 5, 0, 3], np.uint8), subject=np.array([1, 1, 1, 2, 2], np.uint8))
    with lzma.open(har / "uci_har" / "uci_har_i16.npz.xz", "wb") as file:
        file.write(buffer.getvalue())
    samples = UciHar(test="subjects").load(har, RNG)
    train = values[:3] * 2e-4
    mean, deviation = train.mean((0, 2), keepdims=True), train.std((0, 2), keepdims=True)

    assert samples.train_x.numpy() == pytest.approx((train - mean) / deviation, abs=1e-4)
    assert samples.test_group.tolist() == [1, 1]


def test_files_that_do_not_fit_are_named(har: Path) -> None:
    """A missing one, one with words, and one with too few rows."""
    path = har / "uci_har" / "train" / "Inertial Signals" / "body_gyro_y_train.txt"
    path.write_text("1 2 3\n")
    with pytest.raises(DataError, match=r"body_gyro_y_train.txt.*3 rows of 128 numbers, got shape \(1, 3\)"):
        UciHar().load(har, RNG)
    path.write_text("one two\n")
    with pytest.raises(DataError, match=r"body_gyro_y_train\.txt.*cannot be read as rows of numbers"):
        UciHar().load(har, RNG)
    path.unlink()
    with pytest.raises(DataError, match=r"body_gyro_y_train\.txt"):
        UciHar().load(har, RNG)


def test_all_of_uci_har() -> None:
    """10,299 windows of thirty subjects; the nine official ones have 2,947 of them."""
    folder = whole("uci_har")
    official, shared = (UciHar(test=test).load(folder, RNG) for test in ("subjects", "windows"))

    assert (len(official.train_y), len(official.test_y)) == (7352, 2947)
    assert np.bincount(np.concatenate([official.train_y, official.test_y])).tolist() == [
        1722, 1544, 1406, 1777, 1906, 1944]  # fmt: skip
    assert len(set(shared.train_group)) == len(set(shared.test_group)) == 30
    assert abs(len(shared.test_y) / 10_299 - 0.2) < 0.005


PEOPLE = """39, State-gov, 77516, Bachelors, 13, Single, Clerk, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K
50, ?, 83311, Doctorate, 16, Divorced, ?, Husband, White, Male, 0, 0, 13, Peru, >50K

"""
OTHERS = """|1x3 Cross validator
25, Private, 226802, Doctorate, 7, Divorced, Sales, Husband, White, Male, 0, 0, 40, Cuba, >50K.
"""


def people(folder: Path, train: str = PEOPLE, test: str = OTHERS) -> Samples:
    """What is read of these two files, the second one compressed."""
    (folder / "adult").mkdir(exist_ok=True)
    (folder / "adult" / "adult.data").write_text(train)
    (folder / "adult" / "adult.test.gz").write_bytes(gzip.compress(test.encode()))
    return Adult().load(folder, RNG)


def test_people_become_numbers_and_categories(tmp_path: Path) -> None:
    """Six numbers, and a feature for each category that occurs for training; a missing one, or a new one, has none."""
    samples = people(tmp_path)
    age, rest = samples.train_x[:, 0], samples.train_x[:, 6:]

    assert age.tolist() == [-1.0, 1.0]
    assert samples.test_x[0, 0].item() == pytest.approx((25 - 44.5) / 5.5)
    # State-gov | Bachelors Doctorate | Divorced Single | Clerk | Husband Not-in | White | Male | Cuba Peru
    assert rest.tolist() == [[1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1]]
    assert samples.test_x[0, 6:].tolist() == [0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0]
    assert (samples.train_y.tolist(), samples.test_y.tolist()) == ([0, 1], [1])
    assert (samples.train_group.tolist(), samples.test_group.tolist()) == ([1, 0], [0])


def test_all_of_adult() -> None:
    """The published numbers of people, incomes and doctorates, and 105 features without a constant one."""
    samples = Adult().load(whole("adult"), RNG)

    assert (len(samples.train_y), len(samples.test_y)) == (32_561, 16_281)
    assert (int(samples.train_y.sum()), int(samples.test_y.sum())) == (7841, 3846)
    assert ((samples.train_group == 0).sum(), (samples.test_group == 0).sum()) == (413, 181)
    assert samples.input_shape == (105,)
    assert samples.train_x.std(0).min() > 0

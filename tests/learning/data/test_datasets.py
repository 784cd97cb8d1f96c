"""Data sets of the literature: shapes, splits and published numbers, and tables of own data."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import BaseModel
from torch import nn

from fednet_emu.errors import DataError
from fednet_emu.learning.data.datasets import (
    DATASETS,
    AnyDataset,
    ChestAccelerometer,
    Digits,
    Synthetic,
    SyntheticRegression,
)
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.datasets.image_folder import ImageFolder
from fednet_emu.learning.data.datasets.tables import Csv, Parquet
from fednet_emu.learning.data.datasets.text import LETTERS

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[4] / "shared" / "data"))
NEEDED = {
    "csv": {"path": "own.csv", "target": "y"},
    "hugging-face": {"path": "own.json", "input": "x", "target": "y"},
    "imagefolder": {"path": "pictures"},
    "leaf": {"path": "own.json"},
    "npz": {"path": "own.npz"},
    "parquet": {"path": "own.parquet", "target": "y"},
    "text": {"path": "own.txt"},
    "torchvision": {"name": "USPS"},
}
"""Settings without which a kind is not complete."""


class Holder(BaseModel):
    """A scenario with one slot."""

    dataset: AnyDataset


ROWS = pd.DataFrame({"x": np.arange(30.0), "y": np.arange(30) % 3})


def write_leaf(folder: Path) -> None:
    users = {"a": {"x": ROWS[["x"]].to_numpy().tolist(), "y": ROWS["y"].tolist()}}
    (folder / "own.json").write_text(json.dumps({"users": ["a"], "num_samples": [30], "user_data": users}))


def write_pictures(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for row in range(30):
        (folder / "pictures" / str(row % 3)).mkdir(parents=True, exist_ok=True)
        image.new("RGB", (4, 4), (row, 0, 2)).save(folder / "pictures" / str(row % 3) / f"{row}.png")


WRITTEN = {
    "csv": lambda folder: ROWS.to_csv(folder / "own.csv", index=False),
    "imagefolder": write_pictures,
    "leaf": write_leaf,
    "parquet": lambda folder: ROWS.to_parquet(folder / "own.parquet"),
}


def load(kind: str, folder: Path) -> Samples:
    """Samples of one kind with its default fields; skips the test when their files are absent."""
    if kind == "npz":
        y = np.arange(12) % 3
        np.savez(folder / "own.npz", train_x=np.ones((12, 4)), train_y=y, test_x=np.zeros((3, 4)), test_y=y[:3])
        return DATASETS[kind](path=str(folder / "own.npz")).load(None, np.random.default_rng(0))
    if kind == "hugging-face":
        if find_spec("datasets") is None:
            pytest.skip("needs datasets: pip install 'fednet-emu[hugging-face]'")
        (folder / "own.json").write_text("".join(f'{{"x": {row}, "y": {row % 3}}}\n' for row in range(30)))
        return DATASETS[kind](**NEEDED[kind]).load(folder, np.random.default_rng(0))
    if kind in WRITTEN:
        WRITTEN[kind](folder)
        return DATASETS[kind](**NEEDED[kind]).load(folder, np.random.default_rng(0))
    if kind == "text":
        (folder / "own.txt").write_text("".join(LETTERS) * 20, encoding="utf-8")
        return DATASETS[kind](path=str(folder / "own.txt"), owner="file", length=7).load(None, np.random.default_rng(0))
    try:
        return DATASETS[kind](**NEEDED.get(kind, {})).load(DATA, np.random.default_rng(0))
    except DataError as error:
        if error.args[1] != "not found":
            raise
        pytest.skip(f"no data folder: {error}")


ON_DISK = {"adult", "chest-accelerometer", "fashion-mnist", "mnist", "uci-har"}
"""Kinds with many samples in files, of which other tests know the numbers."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in ON_DISK else kind for kind in DATASETS]
)
def test_every_kind_yields_samples_of_the_promised_form(kind, tmp_path):
    """Inputs are float32 or tokens, labels int64 within the classes, targets float32, and lengths agree."""
    samples = load(kind, tmp_path)

    for x, y in ((samples.train_x, samples.train_y), (samples.test_x, samples.test_y)):
        assert x.dtype == (torch.float32 if samples.vocabulary is None else torch.int64)
        assert x.shape == (len(y), *samples.input_shape)
        assert bool(x.isfinite().all())
        if samples.classes is None:
            assert y.dtype == torch.float32
        else:
            assert y.dtype == torch.int64
            assert set(y.tolist()) == set(range(samples.classes)) or samples.vocabulary == samples.classes
    assert samples.outputs == (samples.classes or 1)


@pytest.mark.parametrize("kind", DATASETS)
def test_every_kind_is_chosen_by_its_name(kind):
    """A scenario picks the class by `kind`, and the class carries that name as its default."""
    holder = Holder.model_validate({"dataset": {"kind": kind, **NEEDED.get(kind, {})}})

    assert type(holder.dataset) is DATASETS[kind]
    assert holder.dataset.kind == kind


def test_digits_are_those_of_scikit_learn_split_by_its_rule():
    """The published 1797 images, a fifth of each class for testing, by `train_test_split` with its first seed."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    train, test = train_test_split(np.arange(1797), test_size=0.2, stratify=labels, random_state=0)
    samples = Digits().load(None, np.random.default_rng(0))

    for x, y, which in ((samples.train_x, samples.train_y, train), (samples.test_x, samples.test_y, test)):
        assert np.array_equal(x.numpy().reshape(-1, 64) * 16, pixels[which])
        assert np.array_equal(y.numpy(), labels[which])


def test_synthetic_data_repeat_with_the_seed_and_change_with_it():
    """Equal seeds give equal samples; another seed gives others."""
    dataset = Synthetic(n_samples=50, n_test=10, features=3, classes=2)
    first, again, other = (dataset.load(None, np.random.default_rng(seed)) for seed in (7, 7, 8))

    assert torch.equal(first.train_x, again.train_x)
    assert torch.equal(first.test_y, again.test_y)
    assert not torch.equal(first.train_x, other.train_x)


def test_synthetic_classes_overlap_as_much_as_the_separation_says():
    """The nearest of two true means errs with Phi(-separation / 2), here Phi(-1) = 0.1587."""
    dataset = Synthetic(n_samples=40_000, n_test=40_000, features=(2, 3), classes=2, separation=2.0)
    samples = dataset.load(None, np.random.default_rng(0))
    means = torch.stack([samples.train_x[samples.train_y == label].mean(0) for label in range(2)]).reshape(2, -1)
    nearest = torch.cdist(samples.test_x.reshape(-1, 6), means).argmin(1)
    error = (nearest != samples.test_y).float().mean().item()

    assert samples.input_shape == (2, 3)
    assert error == pytest.approx(0.5 * math.erfc(1 / math.sqrt(2)), abs=0.006)  # 3 standard errors


def test_synthetic_means_are_equally_far_apart():
    """With room for it, the means of any two classes lie `separation` apart."""
    dataset = Synthetic(n_samples=80_000, features=8, classes=4, separation=5.0)
    samples = dataset.load(None, np.random.default_rng(1))
    means = torch.stack([samples.train_x[samples.train_y == label].mean(0) for label in range(4)])

    np.testing.assert_allclose(torch.pdist(means).numpy(), 5.0, atol=0.05)
    assert torch.bincount(samples.train_y).tolist() == [20_000] * 4


def test_more_synthetic_classes_than_features_still_differ():
    """Means that find no orthogonal direction lie on one sphere, none upon another."""
    dataset = Synthetic(n_samples=10_000, features=2, classes=5, separation=10.0)
    samples = dataset.load(None, np.random.default_rng(2))
    means = torch.stack([samples.train_x[samples.train_y == label].mean(0) for label in range(5)])

    np.testing.assert_allclose(means.norm(dim=1).numpy(), 10 / math.sqrt(2), atol=0.1)
    assert torch.pdist(means).min() > 0.3


def test_regression_optimum_has_no_gradient():
    """At the optimum the gradient of the training loss vanishes, and it fits nn.Linear as weight then bias."""
    samples = SyntheticRegression(n_samples=200, features=5).load(None, np.random.default_rng(0))
    model = nn.Linear(5, 1)
    nn.utils.vector_to_parameters(samples.optimum, model.parameters())
    loss = nn.functional.mse_loss(model(samples.train_x).squeeze(1), samples.train_y)
    loss.backward()

    assert max(parameter.grad.abs().max().item() for parameter in model.parameters()) < 1e-5
    assert loss.item() == pytest.approx(0.01 * (200 - 6) / 200, rel=0.3)  # noise variance, less the fitted directions


def test_regression_without_noise_predicts_the_test_set():
    """Training and test targets come from the same coefficients, which noiseless data reveal."""
    samples = SyntheticRegression(n_samples=50, features=4, noise_std=0.0).load(None, np.random.default_rng(3))
    predicted = samples.test_x @ samples.optimum[:-1] + samples.optimum[-1]

    torch.testing.assert_close(predicted, samples.test_y, rtol=1e-4, atol=1e-5)


ROWS_DATASETS_TABLES = (
    "site,rooms,area,price,kind\nB,1,20.5,100.0,flat\nA,2,30.0,150.5,house\nB,3,40.0,200.0,flat\nA,4,50.5,250.0,flat\n"
)


def table(path: Path, text: str = ROWS_DATASETS_TABLES, **fields: Any) -> Samples:
    """The samples of a file with this content, which is also the file for testing."""
    if path.suffix == ".parquet":
        pd.read_csv(io.StringIO(text)).to_parquet(path)
    else:
        path.write_text(text)
    kind = Parquet if path.suffix == ".parquet" else Csv
    return kind(**{"path": str(path), "test": str(path)} | fields).load(None, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_columns_become_inputs_targets_and_owners(tmp_path: Path, name: str) -> None:
    """Prices are a regression, kinds are classes by the alphabet, sites owners by their first row."""
    houses = table(tmp_path / name, input=("rooms", "area"), target="price", group="site", normalise=False)
    kinds = table(tmp_path / name, input=("area",), target="kind")

    assert (houses.task, kinds.task, kinds.classes) == ("regression", "classification", 2)
    assert houses.train_x.tolist() == [[1, 20.5], [2, 30], [3, 40], [4, 50.5]]
    assert houses.train_y.tolist() == [100, 150.5, 200, 250]
    assert houses.train_group is not None
    assert houses.train_group.tolist() == [0, 1, 0, 1]
    assert kinds.train_y.tolist() == [0, 1, 0, 0]
    assert kinds.train_x.mean() == pytest.approx(0, abs=1e-6)
    assert kinds.train_x.std(correction=0) == pytest.approx(1)


@pytest.mark.parametrize(
    "text",
    [
        "x,y\n1.5,0\n2.5,1\n",
        "\ufeffx,y\r\n1.5,0\r\n2.5,1\r\n\r\n",
        "x; y\n1.5; 0\n2.5; 1\n",
        "y\tx\n0\t1.5\n1\t2.5",
        '"x","y"\n"1.5","0"\n"2.5","1"\n',
    ],
)
def test_spellings_of_a_csv(tmp_path: Path, text: str) -> None:
    """Byte order marks, line ends, separators, blanks, quotes and gzip give one table."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    samples = Csv(path=str(path), test=str(path), target="y", normalise=False).load(None, np.random.default_rng(0))

    assert samples.train_x.tolist() == [[1.5], [2.5]]
    assert samples.train_y.tolist() == [0, 1]


def test_labels_called_na_are_labels_and_owners_keep_their_zeros(tmp_path: Path) -> None:
    """`NA`, `None` and `null` are names of classes, 01 and 1 are two owners."""
    text = "x,y,who\n1,NA,01\n2,None,1\n3,null,01\n4,nan,1\n"
    samples = table(tmp_path / "a.csv", text, target="y", group="who")

    assert samples.classes == 4
    assert samples.train_y.tolist() == [0, 1, 3, 2]
    assert samples.train_group is not None
    assert samples.train_group.tolist() == [0, 1, 0, 1]


def test_what_is_learnt_can_be_said(tmp_path: Path) -> None:
    """Whole numbers are classes unless `task` makes them a regression; 0.0 and 1.0 the other way round."""
    whole, points = "x,y\n1,0\n2,1\n", "x,y\n1,0.0\n2,1.0\n"
    assert table(tmp_path / "a.csv", whole, target="y").task == "classification"
    assert table(tmp_path / "a.csv", whole, target="y", task="regression").task == "regression"
    assert table(tmp_path / "a.csv", points, target="y").task == "regression"
    assert table(tmp_path / "a.csv", points, target="y", task="classification").task == "classification"


def test_large_numbers_keep_their_differences(tmp_path: Path) -> None:
    """Epoch seconds 1 s apart stay evenly apart: they are standardised before they become float32."""
    text = "t,y\n" + "".join(f"{1_700_000_000 + k},{k % 2}\n" for k in range(80))
    samples = table(tmp_path / "a.csv", text, target="y")

    assert len(samples.train_x.unique()) == 80
    assert torch.diff(samples.train_x[:, 0]).std() < 1e-6


def test_rows_are_held_out_of_each_group(tmp_path: Path) -> None:
    """Without a file for testing, half of each owner's rows, drawn by the seed."""
    text = "x,y,who\n" + "".join(f"{k},{k % 2},{'ab'[k // 4 % 2]}\n" for k in range(16))
    path = tmp_path / "a.csv"
    path.write_text(text)
    split = [
        Csv(path=str(path), target="y", group="who", test_share=0.5, normalise=False).load(
            None, np.random.default_rng(s)
        )
        for s in (1, 1, 2)
    ]
    for samples in split:
        assert samples.test_group is not None
        assert sorted(samples.test_group.tolist()) == [0] * 4 + [1] * 4
        assert sorted([*samples.train_x[:, 0].tolist(), *samples.test_x[:, 0].tolist()]) == list(range(16))
    assert torch.equal(split[0].test_x, split[1].test_x)
    assert not torch.equal(split[0].test_x, split[2].test_x)


def pictures(folder: Path, *, size: int = 3) -> Path:
    """Two classes of two pictures each, of one brightness each, and a file that is none."""
    image = pytest.importorskip("PIL.Image")
    for name, values in (("cat", (0, 51)), ("dog", (102, 255))):
        (folder / name).mkdir(parents=True)
        for value in values:
            image.new("RGB", (size, 3), (value, value, 0)).save(folder / name / f"{value:03}.png")
    (folder / "cat" / "notes.txt").write_text("no picture")
    return folder


def pictured(folder: Path, **fields: Any) -> Samples:
    return ImageFolder(**{"path": str(folder), "normalise": False} | fields).load(None, np.random.default_rng(0))


def test_folders_are_classes(tmp_path: Path) -> None:
    """With folders train and test, by their names: values from 0 to 1, [3, height, width], or grey."""
    pictures(tmp_path / "train")
    pictures(tmp_path / "test")
    samples = pictured(tmp_path)

    assert samples.train_y.tolist() == samples.test_y.tolist() == [0, 0, 1, 1]
    assert samples.train_x[:, 0, 0, 0].tolist() == pytest.approx([0, 0.2, 0.4, 1])
    assert samples.train_x[:, 2].abs().max() == 0
    assert samples.input_shape == (3, 3, 3)
    assert pictured(tmp_path, size=5, grey=True).input_shape == (1, 5, 5)
    assert pictured(tmp_path, normalise=True).train_x[:, 0].mean() == pytest.approx(0, abs=1e-6)


def test_a_share_of_each_class_is_held_out(tmp_path: Path) -> None:
    """Without folders train and test: one of the two pictures of each class."""
    samples = pictured(pictures(tmp_path), test_share=0.5)
    assert samples.train_y.tolist() == samples.test_y.tolist() == [0, 1]
    assert sorted([*samples.train_x[:, 0, 0, 0].tolist(), *samples.test_x[:, 0, 0, 0].tolist()]) == pytest.approx(
        [0, 0.2, 0.4, 1]
    )


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

"""Claims about every dataset of the table, and about those that need no files."""

import json
import math
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import BaseModel, ValidationError
from torch import nn

from fednet_emu.errors import DataError
from fednet_emu.learning.data.datasets import DATASETS, AnyDataset, Digits, Synthetic, SyntheticRegression
from fednet_emu.learning.data.datasets.base import Samples
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
    """A file of LEAF with one user."""
    users = {"a": {"x": ROWS[["x"]].to_numpy().tolist(), "y": ROWS["y"].tolist()}}
    (folder / "own.json").write_text(json.dumps({"users": ["a"], "num_samples": [30], "user_data": users}))


def write_pictures(folder: Path) -> None:
    """Thirty pictures of three classes."""
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


def test_digits_are_split_alike_under_any_seed():
    """The random stream of a run does not move images between training and test set."""
    first, second = (Digits().load(None, np.random.default_rng(seed)) for seed in (0, 1))

    assert torch.equal(first.train_x, second.train_x)
    assert torch.equal(first.test_y, second.test_y)


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


def test_regression_without_a_unique_optimum_is_refused():
    """Fewer samples than unknowns is an error that names both numbers."""
    with pytest.raises(ValidationError, match=r"n_samples is too small, got 10; at least features \+ 1 = 11"):
        SyntheticRegression(n_samples=10, features=10)

"""Images and models of torchvision."""

from __future__ import annotations

import bz2
import hashlib
import json
import pickle
import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torch import nn
from typer.testing import CliRunner

from fednet_emu.cli.app import app
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.learning.data.datasets import TorchvisionImages
from fednet_emu.learning.models import TorchvisionModel
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.torch_vision import torch_vision

if find_spec("torchvision") is None:
    pytest.skip("needs torchvision: pip install 'fednet-emu[torchvision]'", allow_module_level=True)

library = torch_vision("data").datasets
RNG = np.random.default_rng(0)
N_TRAIN, N_TEST = 50, 20

Written = tuple[np.ndarray, np.ndarray]
"""Images [n, channels, height, width] and labels [n] from 0, as the test meant them."""


def drawn(n: int, shape: tuple[int, ...], classes: int = 10) -> Written:
    """Random images, and labels of which every class has some."""
    rng = np.random.default_rng([n, *shape])
    return rng.integers(0, 256, (n, *shape), np.uint8), np.arange(n) % classes


def md5(path: Path) -> str:
    """The checksum by which torchvision knows an official file."""
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_cifar(folder: Path, patch: pytest.MonkeyPatch, name: str, key: str, classes: int) -> tuple[Written, Written]:
    """The Python version of CIFAR: pickles with rows of 3072 bytes, red, green and blue plane after each other."""
    kind = getattr(library, name)
    home = folder / kind.base_folder
    home.mkdir(parents=True)
    train, test = drawn(N_TRAIN, (3, 32, 32), classes), drawn(N_TEST, (3, 32, 32), classes)

    def rows(file: str, part: slice, images: np.ndarray, labels: np.ndarray) -> list[str]:
        content = {"data": images[part].reshape(-1, 3072), key: labels[part].tolist()}
        (home / file).write_bytes(pickle.dumps(content))
        return [file, md5(home / file)]

    count = len(kind.train_list)
    cuts = np.linspace(0, N_TRAIN, count + 1).astype(int)
    lists = [rows(file, slice(cuts[place], cuts[place + 1]), *train) for place, (file, _) in enumerate(kind.train_list)]
    patch.setattr(kind, "train_list", lists)
    patch.setattr(kind, "test_list", [rows(kind.test_list[0][0], slice(None), *test)])
    meta = home / kind.meta["filename"]
    meta.write_bytes(pickle.dumps({kind.meta["key"]: [str(label) for label in range(classes)]}))
    patch.setattr(kind, "meta", {**kind.meta, "md5": md5(meta)})
    return train, test


def write_svhn(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Written, Written, Written]:
    """MATLAB files with X [32, 32, 3, n] and y [n, 1], in which the digit 0 has the label 10."""
    folder.mkdir(parents=True)
    parts = {"train": drawn(N_TRAIN, (3, 32, 32)), "test": drawn(N_TEST, (3, 32, 32)), "extra": drawn(30, (3, 32, 32))}
    known = {}
    for part, (images, labels) in parts.items():
        path = folder / f"{part}_32x32.mat"
        savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None]})
        known[part] = ["https://example.org/", path.name, md5(path)]
    patch.setattr(library.SVHN, "split_list", known)
    return parts["train"], parts["test"], parts["extra"]


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def write_emnist(folder: Path, split: str, classes: int, first: int) -> tuple[Written, Written]:
    """Four IDX files of one split; the labels of letters begin at 1."""
    parts = drawn(N_TRAIN, (1, 28, 28), classes), drawn(N_TEST, (1, 28, 28), classes)
    for part, (images, labels) in zip(("train", "test"), parts, strict=True):
        stem = folder / "EMNIST" / "raw" / f"emnist-{split}-{part}"
        write_idx(stem.with_name(f"{stem.name}-images-idx3-ubyte"), images[:, 0])
        write_idx(stem.with_name(f"{stem.name}-labels-idx1-ubyte"), labels + first)
    return parts


def write_kmnist(folder: Path) -> tuple[Written, Written]:
    parts = drawn(N_TRAIN, (1, 28, 28)), drawn(N_TEST, (1, 28, 28))
    for part, (images, labels) in zip(("train", "t10k"), parts, strict=True):
        write_idx(folder / "KMNIST" / "raw" / f"{part}-images-idx3-ubyte", images[:, 0])
        write_idx(folder / "KMNIST" / "raw" / f"{part}-labels-idx1-ubyte", labels)
    return parts


def write_usps(folder: Path) -> tuple[Written, Written]:
    """Lines `label 1:value 2:value ...` compressed by bzip2, with labels from 1 and values from -1 to 1."""
    folder.mkdir(parents=True)
    parts = drawn(N_TRAIN, (1, 16, 16)), drawn(N_TEST, (1, 16, 16))
    for file, (images, labels) in zip(("usps.bz2", "usps.t.bz2"), parts, strict=True):
        values = (images.reshape(-1, 256) + 0.5) / 255 * 2 - 1  # half a grey level above, as torchvision rounds down
        lines = [
            f"{label + 1} " + " ".join(f"{place}:{value:.6f}" for place, value in enumerate(row, 1))
            for label, row in zip(labels, values, strict=True)
        ]
        (folder / file).write_bytes(bz2.compress(("\n".join(lines) + "\n").encode()))
    return parts


def write_stl10(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Written, Written]:
    """Bytes of images column by column, colour plane after colour plane, and labels from 1."""
    home = folder / "stl10_binary"
    home.mkdir(parents=True)
    parts = drawn(N_TRAIN, (3, 96, 96)), drawn(N_TEST, (3, 96, 96))
    for part, (images, labels) in zip(("train", "test"), parts, strict=True):
        (home / f"{part}_X.bin").write_bytes(images.transpose(0, 1, 3, 2).tobytes())
        (home / f"{part}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
    (home / "unlabeled_X.bin").write_bytes(b"")
    for name in ("train_list", "test_list"):
        known = [[file, md5(home / file)] for file, _ in getattr(library.STL10, name)]
        patch.setattr(library.STL10, name, known)
    return parts


WRITERS: dict[str, Callable[[Path, pytest.MonkeyPatch], Any]] = {
    "CIFAR10": lambda folder, patch: write_cifar(folder, patch, "CIFAR10", "labels", 10),
    "CIFAR100": lambda folder, patch: write_cifar(folder, patch, "CIFAR100", "fine_labels", 100),
    "EMNIST": lambda folder, patch: write_emnist(folder, "balanced", 47, 0),
    "KMNIST": lambda folder, patch: write_kmnist(folder),
    "STL10": write_stl10,
    "SVHN": write_svhn,
    "USPS": lambda folder, patch: write_usps(folder),
}
each = pytest.mark.parametrize("name", WRITERS)


def assert_equal(x: torch.Tensor, y: torch.Tensor, written: Written) -> None:
    """The samples are the images that were written, as value / 255, with their labels."""
    images, labels = written
    assert x.dtype == torch.float32
    np.testing.assert_allclose(x.numpy(), images / np.float32(255), atol=1e-7)
    np.testing.assert_array_equal(y.numpy(), labels)


@each
def test_what_was_written_is_read(name, tmp_path, monkeypatch):
    """Every pixel and label of both parts, in their order; the shape and the classes are those of the extent."""
    train, test, *_ = WRITERS[name](tmp_path / name.lower(), monkeypatch)
    data = TorchvisionImages(name=name, normalise=False)

    samples = data.load(tmp_path, RNG)

    assert_equal(samples.train_x, samples.train_y, train)
    assert_equal(samples.test_x, samples.test_y, test)
    extent = data.extent(None)
    assert (samples.input_shape, samples.outputs) == (extent.input_shape, extent.outputs)


def test_the_sizes_are_known_before_anything_is_read():
    """Published numbers of images: training and test together, with the extra ones of SVHN if asked for."""
    assert TorchvisionImages(name="CIFAR100").extent(None)[:3] == ((3, 32, 32), 100, 60_000)
    assert TorchvisionImages(name="EMNIST", split="byclass").extent(None)[:3] == ((1, 28, 28), 62, 814_255)
    assert TorchvisionImages(name="SVHN", extra=True).extent(None).samples == 73_257 + 26_032 + 531_131


def test_channels_are_standardised_over_the_training_images(tmp_path, monkeypatch):
    """Each channel has mean 0 and deviation 1 there, and the test images are moved by the same numbers."""
    (images, _), (tested, _) = WRITERS["CIFAR10"](tmp_path / "cifar10", monkeypatch)

    samples = TorchvisionImages(name="CIFAR10").load(tmp_path, RNG)

    axes = (0, 2, 3)
    mean, deviation = images.mean(axes, keepdims=True), images.std(axes, keepdims=True)
    np.testing.assert_allclose(samples.train_x.numpy(), (images - mean) / deviation, atol=1e-4)
    np.testing.assert_allclose(samples.test_x.numpy(), (tested - mean) / deviation, atol=1e-4)


def test_the_letters_of_emnist_begin_at_zero(tmp_path):
    """Its file has labels 1 to 26, and there are 26 classes."""
    train, test = write_emnist(tmp_path / "emnist", "letters", 26, 1)

    samples = TorchvisionImages(name="EMNIST", split="letters", normalise=False).load(tmp_path, RNG)

    assert samples.classes == 26
    assert_equal(samples.train_x, samples.train_y, train)
    assert_equal(samples.test_x, samples.test_y, test)


def test_the_extra_images_of_svhn_follow_the_others(tmp_path, monkeypatch):
    """They are training images."""
    train, _, extra = write_svhn(tmp_path / "svhn", monkeypatch)

    samples = TorchvisionImages(name="SVHN", extra=True, normalise=False).load(tmp_path, RNG)

    both = np.concatenate([train[0], extra[0]]), np.concatenate([train[1], extra[1]])
    assert_equal(samples.train_x, samples.train_y, both)


@pytest.mark.parametrize("place", ["usps", ".", "elsewhere/mine"])
def test_the_files_are_found_in_three_places(place, tmp_path):
    """In the folder of the data set, in the data folder, and in the folder that `path` names."""
    (tmp_path / "elsewhere").mkdir()
    write_usps(tmp_path / "data" if place == "." else tmp_path / "data" / place)
    path = place if place.startswith("elsewhere") else None

    samples = TorchvisionImages(name="USPS", path=path).load(tmp_path / "data", RNG)

    assert len(samples.train_y) == N_TRAIN


@pytest.mark.parametrize("name", ["CIFAR10", "SVHN", "EMNIST", "USPS"])
def test_a_damaged_file_is_one_sentence(name, tmp_path, monkeypatch):
    """Half a file has another checksum, or cannot be read; a pickle with another checksum is not opened at all."""
    folder = tmp_path / name.lower()
    WRITERS[name](folder, monkeypatch)
    victim = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    monkeypatch.setattr(pickle, "load", lambda *_, **__: pytest.fail("unpickled"))

    with pytest.raises(DataError, match=rf"torchvision cannot read {name} \(.+\); use the official files") as caught:
        TorchvisionImages(name=name).load(tmp_path, RNG)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["CIFAR10", "USPS"])
def test_a_scenario_runs_from_the_command_line(name, tmp_path, monkeypatch):
    """Two rounds on five devices, with the ResNet that the data set is known for or a small model."""
    WRITERS[name](tmp_path / name.lower(), monkeypatch)
    model = "softmax" if name == "USPS" else "{kind: resnet-20}"
    settings = [f"data={{kind: torchvision, name: {name}}}", "devices.count=5", "partition=iid", "algorithm.cohort=3"]
    settings += [f"model={model}", "stop={rounds: 2}", "algorithm.batch_size=5"]
    arguments = [part for setting in settings for part in ("--set", setting)]

    result = CliRunner().invoke(
        app,
        ["run", "quickstart", "--data-dir", str(tmp_path), "--out", str(tmp_path / "run"), "--no-plots", *arguments],
    )

    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["rounds"], summary["verified"]) == (2, True)


def test_missing_files_end_the_command_with_one_sentence(tmp_path):
    """Exit code 2, as for every mistake that the user can mend."""
    arguments = ["--set", "data={kind: torchvision, name: CIFAR10}", "--data-dir", str(tmp_path)]

    result = CliRunner().invoke(app, ["run", "quickstart", "--out", str(tmp_path / "run"), "--no-plots", *arguments])

    assert result.exit_code == 2
    assert "cifar-10-batches-py: not found; put the official files there" in " ".join(result.output.split())


def n_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "published", "last_inputs"),
    [
        ("resnet18", 11_689_512, 512),
        ("mobilenet_v3_small", 2_542_856, 1024),
        ("squeezenet1_1", 1_235_496, 512),
        ("shufflenet_v2_x0_5", 1_366_792, 1024),
    ],
)
def test_only_the_last_layer_depends_on_the_classes(name, published, last_inputs):
    """With 1000 classes the sizes are those that torchvision publishes; each class less is one row less."""
    whole = TorchvisionModel(name=name).build((3, 64, 64), 1000)
    assert n_parameters(whole) == published

    small = TorchvisionModel(name=name).build((3, 64, 64), 10)
    assert n_parameters(small) == published - 990 * (last_inputs + 1)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_the_first_layer_takes_any_number_of_channels(channels):
    """Only its kernel changes: 7 x 7 weights for each of 64 outputs and each channel."""
    colour, other = (TorchvisionModel(name="resnet18").build((c, 32, 32), 10) for c in (3, channels))

    assert n_parameters(other) - n_parameters(colour) == (channels - 3) * 64 * 49
    assert other(torch.zeros(2, channels, 32, 32)).shape == (2, 10)


def test_group_norm_takes_the_place_of_every_batch_norm():
    """It has as many parameters, no statistics, and one sample does not change what another gets."""
    batch, group = (
        FlatModel(seeded_module(lambda n=n: TorchvisionModel(name="resnet18", norm=n).build((3, 32, 32), 10), 0),
                  "cross-entropy", (3, 32, 32))
        for n in ("batch", "group")
    )  # fmt: skip

    assert batch.size - batch.n_trainable == 2 * 4800
    assert (group.size, group.n_trainable) == (batch.n_trainable, batch.n_trainable)
    assert (batch.batchable, group.batchable) == (False, True)


def test_weights_follow_the_seed():
    """Nothing is downloaded, and the same seed makes the same weights."""
    build = lambda: TorchvisionModel(name="mobilenet_v3_small").build((3, 32, 32), 10)  # noqa: E731
    first, second, other = (seeded_module(build, seed) for seed in (0, 0, 1))

    same = [torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


@pytest.mark.parametrize("name", ["googlenet", "regnet_y_400mf"])
def test_architectures_of_their_own_kind_are_built_without_memory_too(name):
    """One has further outputs in training, of the other the widths are computed as tensors."""
    with torch.device("meta"):
        module = TorchvisionModel(name=name).build((3, 64, 64), 10)

    assert n_parameters(module) > 1e6
    assert module.training


@pytest.mark.parametrize(
    ("settings", "shape", "problem"),
    [
        ({"name": "resnet19"}, (3, 32, 32), r"model.name: unknown architecture .*, got 'resnet19'; .*resnet1"),
        ({"name": "resnet18"}, (64,), r"samples must be images .* got shape \[64\]"),
        ({"name": "squeezenet1_1"}, (3, 16, 16), r"squeezenet1_1 cannot take images of shape \[3, 16, 16\].*too small"),
        ({"name": "vit_b_16"}, (3, 32, 32), "vit_b_16 cannot take images .*; use larger images"),
        ({"name": "resnet18", "args": {"width": 3}}, (3, 32, 32), r"model.args: resnet18 rejects .*got width=3"),
        ({"name": "resnet18", "args": {"weights": "DEFAULT"}}, (3, 32, 32), "model.args: weights are random"),
        ({"name": "resnet18", "norm": "group", "groups": 5}, (3, 32, 32), "model.groups: must divide all widths"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(settings, shape, problem):
    """It says which setting, and what would be right."""
    with pytest.raises(ScenarioError, match=problem) as caught:
        TorchvisionModel(**settings).build(shape, 10)
    assert "\n" not in str(caught.value)


def test_arguments_reach_the_architecture():
    """A vision transformer for images of 32 x 32."""
    module = TorchvisionModel(name="vit_b_32", args={"image_size": 32}).build((1, 32, 32), 10)

    assert module.image_size == 32


def test_every_architecture_is_built_for_grey_images():
    """All image classifiers that torchvision lists, at the size that they are made for, without memory for weights."""
    models = torch_vision("model").models
    names = [name for name in models.list_models(module=models) if "_h_" not in name and not name.startswith("regnet")]
    assert len(names) > 50
    for name in names[::8]:
        with torch.device("meta"):
            module = TorchvisionModel(name=name).build((1, 224, 224), 7)
        assert next(module.parameters()).is_meta, name


@pytest.mark.parametrize("name", ["squeezenet1_1", "shufflenet_v2_x0_5"])
def test_a_scenario_runs_from_the_command_line_torchvision_models(name, tmp_path: Path):
    """Two rounds on colour images; batch norm's statistics travel with the parameters."""
    data = "{kind: synthetic, features: [3, 32, 32], n_samples: 60, n_test: 20}"
    settings = [
        f"data={data}",
        f"model={{kind: torchvision, name: {name}}}",
        "devices.count=4",
        "partition=iid",
        "algorithm.cohort=2",
    ]
    settings += ["algorithm.local_epochs=1", "stop={rounds: 2}"]
    arguments = [part for setting in settings for part in ("--set", setting)]

    result = CliRunner().invoke(app, ["run", "quickstart", "--out", str(tmp_path / "run"), "--no-plots", *arguments])

    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["rounds"], summary["verified"]) == (2, True)

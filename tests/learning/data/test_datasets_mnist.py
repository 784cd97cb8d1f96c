"""MNIST, its relatives, and FCUBE."""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fednet_emu.errors import DataError
from fednet_emu.learning.data.datasets import FashionMnist, Fcube, Mnist
from fednet_emu.learning.data.datasets.fetch import fetch, read_idx
from fednet_emu.learning.data.partitions import Group, WangCases

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[4] / "shared" / "data"))
RNG = np.random.default_rng(0)
IMAGES = "train-images-idx3-ubyte.gz"

needs_mnist = pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="MNIST is not in the data folder")
needs_fashion = pytest.mark.skipif(not (DATA / "fashion_mnist").is_dir(), reason="no Fashion-MNIST in the data folder")


def idx_file(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content))
    return path


@needs_mnist
def test_mnist_has_the_published_numbers():
    """First labels 5 0 4 1 9, class counts of the training set, and pixels of mean 0 and deviation 1."""
    samples = Mnist().load(DATA, RNG)

    assert samples.train_x.shape == (60_000, 1, 28, 28)
    assert samples.train_y[:5].tolist() == [5, 0, 4, 1, 9]
    assert samples.test_y[:5].tolist() == [7, 2, 1, 0, 4]
    assert torch.bincount(samples.train_y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert samples.train_x.mean().item() == pytest.approx(0, abs=1e-3)
    assert samples.train_x.std().item() == pytest.approx(1, abs=1e-3)


@pytest.fixture(scope="module")
def grey():
    """All of Fashion-MNIST, as grey values."""
    return FashionMnist(normalise=False).load(DATA, RNG)


@needs_fashion
def test_fashion_mnist_is_balanced_and_can_stay_as_grey_values(grey):
    """6000 images per class; without normalising the pixels are 0..1 with the published mean 0.2860."""
    assert torch.bincount(grey.train_y).tolist() == [6000] * 10
    assert torch.bincount(grey.test_y).tolist() == [1000] * 10
    assert grey.train_x.min().item() == 0
    assert grey.train_x.max().item() == pytest.approx(1, abs=1e-6)
    assert grey.train_x.mean().item() == pytest.approx(0.2860, abs=1e-4)


@needs_mnist
def test_parity_of_digits_has_the_digits_as_groups():
    """Even digits are class 1; case 4 of Wang et al. on five devices has the published sizes."""
    samples = Mnist(parity=True, normalise=False).load(DATA, RNG)
    train, _ = WangCases(case=4).split(samples, 5, RNG)

    assert samples.classes == 2
    assert (samples.train_y.numpy() == 1 - samples.train_group % 2).all()
    assert train.sizes().tolist() == [10247, 10187, 10162, 11769, 17635]


@needs_mnist
def test_the_environment_names_the_data_folder(monkeypatch):
    """Without a folder in the call FEDNET_DATA is used, and the four files may lie directly in it."""
    monkeypatch.setenv("FEDNET_DATA", str(DATA / "mnist"))

    assert len(Mnist().load(None, RNG).test_y) == 10_000


@needs_mnist
@needs_fashion
def test_files_of_the_other_archive_are_not_mistaken(tmp_path):
    """Both archives use the same file names; the checksum tells them apart."""
    (tmp_path / "mnist").symlink_to(DATA / "fashion_mnist")

    with pytest.raises(DataError, match=r"the md5 must be f68b3c2d.*, got 8d4fb7e6.*; delete it and fetch it again"):
        Mnist().load(tmp_path, RNG)


def test_download_asks_the_publisher_for_missing_files(tmp_path, monkeypatch):
    """With `download` the first missing file is requested from the published address, to its place."""
    asked = []

    def no_network(url, timeout):
        asked.append(url)
        raise TimeoutError("timed out")

    monkeypatch.setattr("fednet_emu.learning.data.datasets.fetch.urlopen", no_network)

    with pytest.raises(DataError, match=r"failed \(timed out\); check the network, or put the file there by hand"):
        Mnist(download=True).load(tmp_path, RNG)
    assert asked == ["https://ossci-datasets.s3.amazonaws.com/mnist/" + IMAGES]


def test_a_fetched_file_is_complete_and_alone(tmp_path):
    """The file arrives byte for byte in a folder made for it, and no partial file stays behind."""
    source = tmp_path / "source"
    source.write_bytes(b"published")
    target = tmp_path / "new" / "file.gz"

    fetch(source.as_uri(), target, md5=hashlib.md5(b"published").hexdigest())

    assert target.read_bytes() == b"published"
    assert [path.name for path in target.parent.iterdir()] == ["file.gz"]


def test_idx_bytes_and_big_endian_integers_are_read(tmp_path):
    """The header gives type and shape; 32-bit integers are big-endian, as in the QMNIST labels."""
    images = idx_file(tmp_path / "images.gz", struct.pack(">IIII", 0x803, 1, 2, 3) + bytes(range(6)))
    labels = idx_file(tmp_path / "labels.gz", struct.pack(">III", 0xC02, 2, 1) + struct.pack(">ii", 258, -1))

    assert read_idx(images).tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert read_idx(labels).tolist() == [[258], [-1]]


@needs_fashion
def test_classes_are_picked_and_numbered_anew(grey):
    """Shirts, T-shirts and pullovers in this order are 0, 1 and 2, with their own images; a class twice is an error."""
    picked = FashionMnist(classes=(6, 0, 2), normalise=False).load(DATA, RNG)

    assert picked.classes == 3
    assert torch.bincount(picked.train_y).tolist() == [6000] * 3
    assert torch.equal(picked.test_x[picked.test_y == 0], grey.test_x[grey.test_y == 6])
    with pytest.raises(ValidationError, match="a class is named twice, got"):
        FashionMnist(classes=(6, 6))


@needs_fashion
def test_each_pixel_has_its_own_mean_and_deviation(grey):
    """Pixelwise, every pixel has mean 0 over the training images and deviation s / (s + 0.001) of what it was."""
    own = FashionMnist(classes=(0, 2, 6), normalise="pixelwise").load(DATA, RNG).train_x
    deviation = grey.train_x[torch.isin(grey.train_y, torch.tensor([0, 2, 6]))].std(0, correction=0)

    assert own.mean(0).abs().max() < 1e-4
    assert torch.allclose(own.std(0, correction=0), deviation / (deviation + 0.001), atol=1e-4)


needs_writers = pytest.mark.skipif(
    not (DATA / "qmnist_labels").is_dir(), reason="no labels of QMNIST in the data folder"
)


@needs_mnist
@needs_writers
def test_digits_know_their_writers():
    """539 people wrote 19 to 131 of the training digits each, 297 others those for testing; classes keep them."""
    samples = Mnist(writers=True).load(DATA, RNG)
    sevens = Mnist(writers=True, classes=(7, 1)).load(DATA, RNG)
    counts = np.unique(samples.train_group, return_counts=True)[1]

    assert (len(counts), counts.min(), counts.max(), np.median(counts)) == (539, 19, 131, 116)
    assert len(set(samples.test_group)) == 297
    assert not set(samples.train_group) & set(samples.test_group)
    assert np.array_equal(sevens.train_group, samples.train_group[np.isin(samples.train_y.numpy(), (1, 7))])


@needs_mnist
def test_writers_of_other_digits_are_refused(tmp_path):
    """Labels whose classes are not those of the samples are no labels of theirs."""
    folder = tmp_path / "qmnist_labels"
    folder.mkdir()
    (tmp_path / "mnist").symlink_to(DATA / "mnist")
    header = struct.pack(">HBBII", 0, 0x0C, 2, 60_000, 8)
    idx_file(folder / "qmnist-train-labels-idx2-int.gz", header + np.zeros((60_000, 8), ">i4").tobytes())
    with pytest.raises(DataError, match=r"qmnist-train-labels.*a row for each of 60000 samples, with its class first"):
        Mnist(writers=True).load(tmp_path, RNG)


DATA_FCUBE = Fcube().load(None, np.random.default_rng(0))


def test_points_fill_the_cube_and_one_plane_divides_the_classes() -> None:
    """Uniform on [-1, 1]^3: variance 1/3 of each coordinate; class 0 is where the first one is positive."""
    for x, y in ((DATA_FCUBE.train_x, DATA_FCUBE.train_y), (DATA_FCUBE.test_x, DATA_FCUBE.test_y)):
        assert x.abs().max() <= 1.0
        assert x.mean(0).tolist() == pytest.approx([0, 0, 0], abs=5 * np.sqrt(1 / 3 / len(x)))
        assert x.var(0).tolist() == pytest.approx([1 / 3] * 3, abs=5 * np.sqrt(4 / 45 / len(x)))
        assert torch.equal(y, torch.where(x[:, 0] > 0, 0, 1))


def test_each_of_four_devices_has_two_opposite_octants() -> None:
    """500 points in each, of different classes, and the test points of the same octants."""
    train, test = Group().split(DATA_FCUBE, 4, np.random.default_rng(0))
    seen = set()
    for device in range(4):
        corners = DATA_FCUBE.train_x[torch.from_numpy(train.of(device))].sign()
        octants, counts = corners.unique(dim=0, return_counts=True)
        seen |= {tuple(corner) for corner in octants.tolist()}
        assert counts.tolist() == [500, 500]
        assert torch.equal(octants[0], -octants[1])
        tested = DATA_FCUBE.test_x[torch.from_numpy(test.of(device))].sign()
        assert {tuple(corner) for corner in tested.tolist()} == {tuple(corner) for corner in octants.tolist()}
    assert len(seen) == 8
    assert test.sizes().sum() == 1000

"""The data sets MNIST and Fashion-MNIST, read from their official files, and the digits of scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator
from torch import Tensor
from typing_extensions import override

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import DATA_VARIABLE, data_folder, locate, note
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples
from fednet_emu.learning.data.datasets.fetch import fetch, read_idx

Digit = Annotated[int, Field(ge=0, le=9)]


class _Images(Dataset):
    """Base class of data sets with 60,000 training and 10,000 test images x [n, 1, 28, 28] in the format of MNIST."""

    FOLDER: ClassVar[str]
    """Folder of the four IDX files inside the data folder."""
    URL: ClassVar[str]
    MD5: ClassVar[dict[str, str]]
    """Checksums of the files."""
    MEAN_STD: ClassVar[tuple[float, float]]
    """Mean and standard deviation of the pixels, divided by 255."""

    normalise: bool | Literal["pixelwise"] = True
    """Scaling of pixel values. true: subtract the usual mean of the training set, and divide by its standard deviation;
    false: divide by 255.

    pixelwise: scale each pixel by its own mean and standard deviation over the training images. The scaled pixel is (x
    - mean) / (standard deviation + 0.001), with x = value / 255."""
    classes: tuple[Digit, ...] | None = Field(None, min_length=2)
    """Classes whose images are used. They are renumbered from 0 in the given order. Null uses all ten classes."""
    download: bool = False
    """Whether to download missing files into the data folder."""

    def extent(self, data_dir: Path | None) -> Extent:
        classes = 10 if self.classes is None else len(self.classes)
        return Extent((1, 28, 28), classes, 7000 * classes)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        samples = self._read(data_dir)
        if self.classes is not None:
            samples = _only(samples, self.classes)
        if self.normalise != "pixelwise":
            return samples
        mean, deviation = samples.train_x.mean(0), samples.train_x.std(0, correction=0)
        train_x, test_x = ((x - mean) / (deviation + 0.001) for x in (samples.train_x, samples.test_x))
        return replace(samples, train_x=train_x, test_x=test_x)

    def _read(self, data_dir: Path | None) -> Samples:
        folder = data_folder(data_dir)
        if folder is None:
            raise DataError(self.kind, "no data folder is given", f"pass --data-dir, or let {DATA_VARIABLE} name it")
        train_x, train_y, test_x, test_y = (
            read_idx(note(f"{self.FOLDER}/{name}", self._find(folder, name)), md5=md5) for name, md5 in self.MD5.items()
        )
        mean_std = self.MEAN_STD if self.normalise is True else (0.0, 1.0)
        return Samples(
            train_x=_pixels(train_x, *mean_std),
            train_y=torch.from_numpy(train_y.astype(np.int64)),
            test_x=_pixels(test_x, *mean_std),
            test_y=torch.from_numpy(test_y.astype(np.int64)),
            classes=10,
        )

    def _find(self, folder: Path, name: str) -> Path:
        home = folder / self.FOLDER / name
        for path in (home, folder / self.kind / name, folder / name):
            if path.is_file():
                return path
        if not self.download:
            remedy = "put the official file there, or fetch it with `--set data.download=true`"
            raise DataError(str(home), "not found", remedy)
        fetch(self.URL + name, home, md5=self.MD5[name])
        return home

    @field_validator("classes")
    @classmethod
    def _each_class_once(cls, classes: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if classes is not None and len(set(classes)) < len(classes):
            raise ValueError(f"a class is named twice, got {list(classes)}; name each once")
        return classes


class Mnist(_Images):
    """MNIST (LeCun, Cortes, Burges): handwritten digits in ten classes.

    A normalised pixel is (value / 255 - 0.1307) / 0.3081.
    """

    FOLDER = "mnist"
    URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the original site no longer serves the files
    MD5: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }
    MEAN_STD = 0.1307, 0.3081
    writers: bool = False
    """Whether the writers of the digits are the groups of the data, for the partition `group`. There are 539 writers of
    training images and 297 other writers of test images. Writers are read from the labels of QMNIST (Yadav and Bottou,
    NeurIPS 2019), which must be in the folder `qmnist_labels` of the data folder, in the files
    `qmnist-train-labels-idx2-int.gz` and `qmnist-test-labels-idx2-int.gz`."""

    parity: bool = False
    """Whether the classes are odd (0) and even (1) digits; the group of a sample is then its digit."""

    @override
    def extent(self, data_dir: Path | None) -> Extent:
        return super().extent(data_dir)._replace(outputs=2) if self.parity else super().extent(data_dir)

    @model_validator(mode="after")
    def _one_group(self) -> Self:
        if self.parity and (self.writers or self.classes is not None):
            raise ValueError("parity: has its own classes and groups, got writers or classes too; leave one out")
        return self

    def _read(self, data_dir: Path | None) -> Samples:
        samples = super()._read(data_dir)
        if self.parity:
            return _by_parity(samples)
        if not self.writers:
            return samples
        train, test = (
            _writers(name, data_dir, y) for name, y in (("train", samples.train_y), ("test", samples.test_y))
        )
        return replace(samples, train_group=train, test_group=test)


class FashionMnist(_Images):
    """Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): articles of clothing in ten classes.

    A normalised pixel is (value / 255 - 0.2860) / 0.3530.
    """

    FOLDER = "fashion_mnist"
    URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    MD5: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    }
    MEAN_STD = 0.2860, 0.3530


def _writers(part: str, data_dir: Path | None, labels: Tensor) -> IntArray:
    """Return the writer of each sample [n] from QMNIST, whose test set begins with the test set of MNIST."""
    path = locate(f"qmnist_labels/qmnist-{part}-labels-idx2-int.gz", data_dir)
    known = read_idx(path)
    if known.ndim != 2 or known.shape[1] < 3 or not np.array_equal(known[: len(labels), 0], labels.numpy()):
        problem = f"must have a row for each of {len(labels)} samples, with its class first, got shape {known.shape}"
        raise DataError(str(path), problem, "use the labels as published with QMNIST")
    return known[: len(labels), 2].astype(np.int64)


def _only(samples: Samples, classes: tuple[int, ...]) -> Samples:
    """Return only the samples of these classes, relabelled from 0 in the given order of classes."""
    label = torch.full((10,), -1)
    label[list(classes)] = torch.arange(len(classes))
    train, test = label[samples.train_y] >= 0, label[samples.test_y] >= 0
    return Samples(
        train_x=samples.train_x[train],
        train_y=label[samples.train_y[train]],
        test_x=samples.test_x[test],
        test_y=label[samples.test_y[test]],
        classes=len(classes),
        train_group=None if samples.train_group is None else samples.train_group[train.numpy()],
        test_group=None if samples.test_group is None else samples.test_group[test.numpy()],
    )


def _by_parity(samples: Samples) -> Samples:
    """Return the samples with the parity of the digit as class (odd 0, even 1), and the digit as group."""
    digits = samples.train_y.numpy(), samples.test_y.numpy()
    samples = replace(samples, train_group=digits[0], test_group=digits[1], classes=2)
    return replace(samples, train_y=1 - samples.train_y % 2, test_y=1 - samples.test_y % 2)


def _pixels(images: NDArray[Any], mean: float, std: float) -> Tensor:
    """Convert grey values from 0 to 255 to float32 [n, 1, height, width], scaled by mean and standard deviation."""
    pixels = torch.from_numpy(images.astype(np.float32)).unsqueeze(1)
    return pixels.mul_(1 / (255 * std)).sub_(mean / std)


FILE = Path(__file__).with_name("digits.npz")
"""File with the pixels [n, 8, 8] from 0 to 16, and the labels, of scikit-learn's `load_digits`. The samples were split
by `train_test_split` with a fifth for testing, stratified by class, and `random_state=0`. Importing scikit-learn
instead would double the start-up time of a short run."""


class Digits(Dataset):
    """Handwritten digits (Alpaydin and Kaynak, UCI 1998) as small images x [n, 1, 8, 8] in [0, 1].

    There are 1,437 training images and 360 test images. The split is always the same, with a fifth of each class for
    testing.
    """

    parity: bool = False
    """Whether the classes are odd (0) and even (1) digits; the group of a sample is then its digit."""

    def extent(self, data_dir: Path | None) -> Extent:
        return Extent((1, 8, 8), 2 if self.parity else 10, 1797)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        with np.load(FILE, allow_pickle=False) as digits:
            train_x, test_x = (
                torch.from_numpy((digits[part] / 16.0).astype(np.float32)[:, None]) for part in ("train_x", "test_x")
            )
            train_y, test_y = (torch.from_numpy(digits[part].astype(np.int64)) for part in ("train_y", "test_y"))
        samples = Samples(train_x, train_y, test_x, test_y, classes=10)
        return _by_parity(samples) if self.parity else samples

"""Published data sets of images, read by the library torchvision."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import DATA_VARIABLE, data_folder, note
from fednet_emu.learning.data.columns import pixels, standardise
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples
from fednet_emu.learning.data.datasets.fetch import TIMEOUT_S
from fednet_emu.learning.torch_vision import torch_vision

_Images = tuple[NDArray[np.uint8], IntArray]
"""Images [n, channels, height, width] and labels [n] from 0."""


@dataclass(frozen=True)
class _Known:
    """Facts about a data set: image shape, numbers of classes and images, and the files or folders with the images."""

    shape: tuple[int, int, int]
    classes: int
    train: int
    test: int
    files: tuple[str, ...]
    parts: Literal["train", "split"] = "train"
    """Keyword argument of the torchvision class that selects training or test images."""
    first_label: int = 0


_KNOWN = {
    "CIFAR10": _Known((3, 32, 32), 10, 50_000, 10_000, ("cifar-10-batches-py",)),
    "CIFAR100": _Known((3, 32, 32), 100, 50_000, 10_000, ("cifar-100-python",)),
    "KMNIST": _Known((1, 28, 28), 10, 60_000, 10_000, ("KMNIST/raw",)),
    "STL10": _Known((3, 96, 96), 10, 5_000, 8_000, ("stl10_binary",), "split"),
    "SVHN": _Known((3, 32, 32), 10, 73_257, 26_032, ("train_32x32.mat", "test_32x32.mat"), "split"),
    "USPS": _Known((1, 16, 16), 10, 7_291, 2_007, ("usps.bz2", "usps.t.bz2")),
}
_SVHN_EXTRA, _SVHN_EXTRA_FILE = 531_131, "extra_32x32.mat"
_EMNIST = {
    "byclass": (62, 697_932, 116_323),
    "bymerge": (47, 697_932, 116_323),
    "balanced": (47, 112_800, 18_800),
    "letters": (26, 124_800, 20_800),
    "digits": (10, 240_000, 40_000),
    "mnist": (10, 60_000, 10_000),
}
"""Numbers of classes, training images and test images in each split of EMNIST."""
_EMNIST_SPLIT = "balanced"


class TorchvisionImages(Dataset):
    """Images of a published data set, read by the library torchvision: x [n, channels, height, width].

    The data sets are CIFAR10 and CIFAR100 (Krizhevsky 2009), EMNIST (Cohen, Afshar, Tapson, van Schaik 2017), KMNIST
    (Clanuwat et al. 2018), the labelled images of STL10 (Coates, Lee, Ng 2011), SVHN (Netzer et al. 2011), and USPS
    (Hull 1994). Labels are those of torchvision, except that the letters of EMNIST are numbered from 0 instead of 1.
    The images of EMNIST are rotated and mirrored, as in the published files. Needs the extra `torchvision`. MNIST and
    Fashion-MNIST have their own kinds, which need no library.
    """

    kind = "torchvision"
    name: Literal["CIFAR10", "CIFAR100", "EMNIST", "KMNIST", "STL10", "SVHN", "USPS"]
    """Name of the data set in `torchvision.datasets`."""
    path: str | None = None
    """Folder with the files in torchvision's layout. Either a full path, or a path inside the data folder. If null, the
    files are searched in a subfolder of the data folder that has the name of the data set in lower case, such as
    `cifar10`, and then in the data folder itself."""
    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] | None = None
    """Split of EMNIST that is used; null means `balanced`. Must be null for other data sets, which have no splits."""
    extra: bool = False
    """Whether the 531,131 extra images of SVHN are used as training images, too."""
    normalise: bool = True
    """Scaling of pixel values. true: scale each channel to mean 0 and standard deviation 1 over the training images;
    false: divide by 255."""
    download: bool = False
    """Whether to download missing files into the data folder."""

    def _check(self) -> None:
        for key, owner in (("split", "EMNIST"), ("extra", "SVHN")):
            if getattr(self, key) and self.name != owner:
                raise ValueError(f"{key}: only {owner} has it, got {self.name}; leave it out")

    def extent(self, data_dir: Path | None) -> Extent:
        known = self._known()
        return Extent(known.shape, known.classes, known.train + known.test)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        known = self._known()
        folder = self._folder(known, data_dir)
        library = torch_vision("data").datasets
        train = [self._part(library, folder, known, "train")]
        if self.extra:
            train.append(self._part(library, folder, known, "extra"))
        test_x, test_y = self._part(library, folder, known, "test")
        for name in known.files:
            note(f"{folder.name}/{name}", folder / name)
        samples = Samples(
            train_x=pixels(np.concatenate([x for x, _ in train])),
            train_y=torch.from_numpy(np.concatenate([y for _, y in train])),
            test_x=pixels(test_x),
            test_y=torch.from_numpy(test_y),
            classes=known.classes,
        )
        if self.normalise:
            standardise(samples.train_x, samples.test_x)
        return samples

    def _known(self) -> _Known:
        if self.name == "EMNIST":
            return _emnist(self.split or _EMNIST_SPLIT)
        known = _KNOWN[self.name]
        if self.extra:
            return replace(known, train=known.train + _SVHN_EXTRA, files=(*known.files, _SVHN_EXTRA_FILE))
        return known

    def _folder(self, known: _Known, data_dir: Path | None) -> Path:
        """Return the folder that contains all files of the data set, or else the folder for downloads."""
        named = self.path or self.name.lower()
        folder = data_folder(data_dir)
        if folder is None and not Path(named).is_absolute():
            raise DataError(self.name, "no data folder is given", f"pass --data-dir, or let {DATA_VARIABLE} name it")
        home = Path(named) if folder is None else folder / named
        places = [home] if self.path or folder is None else [home, folder]
        for place in places:
            if all((place / name).exists() for name in known.files):
                return place
        if not self.download:
            lacking = next(name for name in known.files if not (home / name).exists())
            remedy = "put the official files there, unpacked, or fetch them with `--set data.download=true`"
            raise DataError(str(home / lacking), "not found", remedy)
        return home

    def _part(self, library: Any, folder: Path, known: _Known, part: Literal["train", "test", "extra"]) -> _Images:
        which: dict[str, Any] = {"split": part} if known.parts == "split" else {"train": part == "train"}
        if self.name == "EMNIST":
            which["split"] = self.split or _EMNIST_SPLIT
        try:
            with _no_endless_wait():
                found = getattr(library, self.name)(folder, download=self.download, **which)
            images = np.asarray(found.data)
            labels = np.asarray(found.targets if hasattr(found, "targets") else found.labels).astype(np.int64)
        except Exception as error:
            what = f"torchvision cannot {'fetch or ' if self.download else ''}read {self.name}"
            remedy = "use the official files, or delete them and fetch them again with `--set data.download=true`"
            raise DataError(str(folder), f"{what} ({' '.join(str(error).split())})", remedy) from error
        return _checked(str(folder), known, images, labels - known.first_label)


def _emnist(split: str) -> _Known:
    classes, train, test = _EMNIST[split]
    files = tuple(
        f"EMNIST/raw/emnist-{split}-{part}-{what}-ubyte"
        for part in ("train", "test")
        for what in ("images-idx3", "labels-idx1")
    )
    return _Known((1, 28, 28), classes, train, test, files, first_label=int(split == "letters"))


def _checked(where: str, known: _Known, images: NDArray[Any], labels: IntArray) -> _Images:
    """Check shapes, types and label range. Return the images, with the channels first, and the labels."""
    channels, height, width = known.shape
    if images.shape[1:] == (height, width) and channels == 1:
        images = images[:, None]
    elif images.shape[1:] == (height, width, channels):
        images = images.transpose(0, 3, 1, 2)
    if images.shape != (len(labels), *known.shape) or images.dtype != np.uint8 or not len(labels):
        problem = f"must hold {max(len(labels), 1)} images of bytes of shape {known.shape}"
        got = f"{images.dtype} of shape {images.shape}"
        raise DataError(where, f"{problem}, one for each label, got {got}", "use the official files")
    wrong = labels[(labels < 0) | (labels >= known.classes)]
    if len(wrong):
        problem = f"labels must be 0..{known.classes - 1}, got {wrong[0]}"
        raise DataError(where, problem, "use the official files")
    return images, labels


@contextmanager
def _no_endless_wait() -> Iterator[None]:
    """Context manager that sets a timeout for connections that send no data, because torchvision sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)

"""Images in folders that are named after their classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.learning.data.columns import pixels, standardise
from fednet_emu.learning.data.datasets.base import Dataset, Samples, held_out

_HOW = "give a folder with a folder of pictures for each class, or with folders train and test of such folders"
_ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


class ImageFolder(Dataset):
    """Images from a folder that has one subfolder per class, as for `torchvision.datasets.ImageFolder`.

    Classes are numbered in the order of the subfolder names, and images are sorted by file name. If the folder contains
    `train` and `test` (or `val`), each with one subfolder per class, the images in `test` or `val` are for testing.
    Needs the library Pillow.
    """

    kind = "imagefolder"
    path: str
    """The folder of images. A relative path is looked up in the data folder first, then in the current folder."""
    size: int | None = Field(None, gt=0, le=4096)
    """Height and width to which images are resized, in pixels. If null, images keep their size, and must all have the
    same size."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is held out at random for testing if there is no test folder."""
    grey: bool = False
    """Whether images are converted to greyscale, with one channel instead of three."""
    normalise: bool = True
    """Whether each channel is scaled to mean 0 and standard deviation 1 over the training images. If false, pixel
    values are from 0 to 1."""

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        path = locate(self.path, data_dir)
        held = next((its for name in ("test", "val", "valid") if (its := path / name).is_dir()), None)
        folders = [path / "train", held] if held is not None and (path / "train").is_dir() else [path]
        names = sorted(its.name for its in folders[0].iterdir() if its.is_dir()) if folders[0].is_dir() else []
        if len(names) < 2:
            got = ", ".join(names) or "none"
            raise DataError(str(folders[0]), f"must have folders of two or more classes, got {got}", _HOW)
        found = [self._pictures(folder, names) for folder in folders]
        if len(found) == 1:
            ((x, y),) = found
            test = held_out(str(path), y, rng.permutation(len(y)), self.test_share, _HOW, "pictures")
            found = [(x[~test], y[~test]), (x[test], y[test])]
        (train_x, train_y), (test_x, test_y) = found
        if train_x.shape[1:] != test_x.shape[1:]:
            what = f"has pictures of other sizes for testing, got {train_x.shape[1:]} and {test_x.shape[1:]}"
            raise DataError(str(path), what, "give `size`")
        train, test_pixels = pixels(train_x), pixels(test_x)
        if self.normalise:
            standardise(train, test_pixels)
        return Samples(train, torch.from_numpy(train_y), test_pixels, torch.from_numpy(test_y), classes=len(names))

    def _pictures(self, folder: Path, names: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return images [n, channels, height, width] and their classes [n]."""
        if unknown := sorted({its.name for its in folder.iterdir() if its.is_dir()} - set(names)):
            raise DataError(str(folder / unknown[0]), "is a class that has no pictures for training", _HOW)
        found: list[NDArray[np.uint8]] = []
        classes: list[int] = []
        for number, name in enumerate(names):
            files = sorted(its for its in (folder / name).rglob("*") if its.suffix.lower() in _ENDINGS)
            if not files and folder.name not in ("test", "val", "valid"):
                raise DataError(str(folder / name), f"has no pictures, got none of {', '.join(sorted(_ENDINGS))}", _HOW)
            for file in files:
                found.append(self._picture(file))
                classes.append(number)
                if found[-1].shape != found[0].shape:
                    shapes = f"{found[0].shape[1:]} and {found[-1].shape[1:]}"
                    raise DataError(str(file), f"has another size than the first picture, got {shapes}", "give `size`")
        if not found:
            raise DataError(str(folder), "has no pictures, got empty folders", _HOW)
        return np.stack(found), np.array(classes, np.int64)

    def _picture(self, file: Path) -> NDArray[np.uint8]:
        Image = _pillow()  # noqa: N806  (the name of the library's module)
        try:
            with Image.open(file) as opened:
                image = opened.convert("L" if self.grey else "RGB")
        except Exception as error:
            said = " ".join(str(error).split())
            raise DataError(str(file), f"cannot be read as a picture ({said})", "repair or remove it") from error
        array = np.asarray(image if self.size is None else image.resize((self.size, self.size)))
        return np.atleast_3d(array).transpose(2, 0, 1)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ScenarioError("data: Pillow is not installed, got kind 'imagefolder'; pip install pillow") from error
    return Image

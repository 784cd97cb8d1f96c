"""Data of the benchmark LEAF: JSON files of samples by user."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_text
from fednet_emu.learning.data.datasets.base import Dataset, Samples, held_out
from fednet_emu.learning.data.datasets.npz import checked_samples
from fednet_emu.learning.data.datasets.text import CHARACTERS, characters, frequent_words, word_tokens, words

_HOW = "give the JSON files that LEAF's preprocess.sh writes, with users, num_samples and user_data"
_IMAGE = (1, 28, 28)
_PICTURES = (".jpg", ".jpeg", ".png")


class Owned(NamedTuple):
    """Samples of users, as stored in the JSON files."""

    x: list[Any]  # Array [numbers] or string of each sample
    y: list[Any]  # Number or string of each sample
    group: IntArray  # User index [samples] of each sample
    where: str  # The file with the first samples


class Form(NamedTuple):
    """A type of samples in LEAF files, with the names of the settings that do not apply to it."""

    name: str
    ignores: tuple[str, ...]


_NUMBERS = Form("numbers", ("length", "vocabulary"))
_FORMS = {
    (False, False): _NUMBERS,
    (True, False): Form("texts with numbers as targets", ("shape",)),
    (True, True): Form("texts with characters as targets", ("shape", "classes", "length", "vocabulary")),
}
"""Types of samples. The first entry of a key is True if the inputs are strings, the second one if the targets are
strings."""


class Leaf(Dataset):
    """Samples from the JSON files of the benchmark LEAF (Caldas et al., 2018), in which every sample belongs to a user.

    Users are the groups of the data, so that `partition: group` assigns each user to one device. They are numbered in
    the order of the files. Inputs are strings, or arrays of numbers as in FEMNIST, where 784 numbers form an image [1,
    28, 28]. Strings of equal length whose targets are single characters, as in Shakespeare, become tokens of LEAF's 80
    characters. Other strings are divided into words, and are cut or padded with unknown words to `length` words. If an
    input is a list of strings, as in Sent140, only the last string is used. If all targets are whole numbers, they are
    class labels; otherwise, the problem is a regression. The files of CelebA and Reddit are rejected, because they
    contain names of images or nested tokens.
    """

    path: str
    """A folder with the subfolders `train` and `test`, a folder of .json files, or one .json file. Files may be
    gzipped. A relative path is looked up in the data folder first, then in the current folder."""
    test_share: float = Field(0.1, gt=0, lt=1)
    """Share of each user's samples that is used for testing if there is no folder `test`. The last samples of the user
    are chosen."""
    shape: tuple[int, ...] | None = None
    """Shape to which samples of numbers are reshaped. If null, samples of 784 numbers become images [1, 28, 28], and
    the shape of all other samples is unchanged."""
    classes: int | None = Field(None, ge=2)
    """Number of classes, for example 62 for FEMNIST. Null counts the classes."""
    length: int = Field(25, gt=0, le=10_000)
    """Number of words of a string that are used."""
    vocabulary: int = Field(10_000, gt=0, le=1_000_000)
    """Number of words in the vocabulary, which are the most frequent words of the training samples. All other words
    share one additional token."""

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        path, users = locate(self.path, data_dir), dict[str, int]()
        if (path / "train").is_dir():
            parts = [_read(path / part, users) for part in ("train", "test")]
        else:
            parts = self._held_out(_read(path, users))
        form = _FORMS[isinstance(parts[0].x[0], str), isinstance(parts[0].y[0], str)]
        for key in form.ignores:
            if (got := getattr(self, key)) != type(self).model_fields[key].default:
                raise DataError(str(path), f"has {form.name}, which `{key}` is not for, got {got}", "leave it out")
        texts = form is not _NUMBERS
        arrays, vocabulary, classes = self._texts(parts) if texts else (self._numbers(parts), None, self.classes)
        for name, part in zip(("train", "test"), parts, strict=True):
            arrays[f"{name}_group"] = part.group
        return checked_samples(arrays, classes, str(path), vocabulary)

    def _held_out(self, whole: Owned) -> list[Owned]:
        order, remedy = np.arange(len(whole.group)), "give another share, or a folder test"
        test = held_out(whole.where, whole.group, order, self.test_share, remedy)
        return [
            Owned([*compress(whole.x, chosen)], [*compress(whole.y, chosen)], whole.group[chosen], whole.where)
            for chosen in (~test, test)
        ]

    def _numbers(self, parts: list[Owned]) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for name, part in zip(("train", "test"), parts, strict=True):
            try:
                x, y = np.stack(part.x), np.array(part.y)
            except ValueError as error:
                raise DataError(part.where, f"has samples of several lengths ({error})", _HOW) from error
            shape = self.shape or (_IMAGE if x.shape[1:] == (math.prod(_IMAGE),) else x.shape[1:])
            if math.prod(shape) != math.prod(x.shape[1:]):
                what = f"has samples of {math.prod(x.shape[1:])} numbers, got the shape {list(shape)}"
                raise DataError(part.where, what, "correct `shape`")
            arrays |= {f"{name}_x": x.reshape(len(x), *shape), f"{name}_y": y}
        return arrays

    def _texts(self, parts: list[Owned]) -> tuple[dict[str, NDArray[Any]], int, int | None]:
        """Return inputs and targets as arrays of tokens, the number of different tokens, and the number of classes."""
        arrays: dict[str, NDArray[Any]] = {}
        if isinstance(parts[0].y[0], str):
            for name, part in zip(("train", "test"), parts, strict=True):
                if len(lengths := sorted({len(its) for its in part.x})) > 1 or {len(its) for its in part.y} != {1}:
                    what = f"must have texts of one length and one character after each, got lengths {lengths[:5]}"
                    raise DataError(part.where, what, _HOW)
                tokens = characters("".join(part.x)).reshape(len(part.x), -1)
                arrays |= {f"{name}_x": tokens, f"{name}_y": characters("".join(part.y))}
            return arrays, CHARACTERS, CHARACTERS
        spoken = [[words(its)[: self.length] for its in part.x] for part in parts]
        known = frequent_words(spoken[0], self.vocabulary)
        for name, part, said in zip(("train", "test"), parts, spoken, strict=True):
            tokens = np.zeros((len(said), self.length), np.int64)  # padded with unknown words, as in LEAF
            for row, its in zip(tokens, said, strict=True):
                row[: len(its)] = word_tokens(its, known)
            arrays |= {f"{name}_x": tokens, f"{name}_y": np.array(part.y)}
        return arrays, self.vocabulary + 1, self.classes


def _read(path: Path, users: dict[str, int]) -> Owned:
    """Return the samples in a file or folder. New users are added to `users`, a mapping from user name to index."""
    files = sorted(its for its in path.glob("*.json*") if its.is_file()) if path.is_dir() else [path]
    if not files:
        raise DataError(str(path), "has no .json files, got none", _HOW)
    x: list[Any] = []
    y: list[Any] = []
    group: list[int] = []
    for file in files:
        for user, its_x, its_y in _users(file):
            x.extend(its_x)
            y.extend(its_y)
            group.extend([users.setdefault(user, len(users))] * len(its_y))
    if not x:
        raise DataError(str(path), "has no samples, got users without any", _HOW)
    kinds = {type(its) for its in x}
    targets = {str if isinstance(its, str) else float if isinstance(its, int | float) else object for its in y}
    if len(kinds) > 1 or targets not in ({float}, {str}) or (targets == {str} and kinds != {str}):
        got = ", ".join(sorted(its.__name__ for its in kinds | targets))
        raise DataError(str(path), f"must hold numbers, or texts with numbers or with characters, got {got}", _HOW)
    return Owned(x, y, np.array(group, np.int64), str(files[0]))


def _users(file: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield each user of a file, together with the inputs (arrays or strings) and targets of the user."""
    where = str(file)
    try:
        content = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise DataError(where, f"is not JSON ({error})", _HOW) from error
    if not isinstance(content, dict) or not all(isinstance(content.get(k), t) for k, t in _FORM.items()):
        got = ", ".join(content)[:200] if isinstance(content, dict) else type(content).__name__
        raise DataError(where, f"must have a list of users and their user_data, got {got}", _HOW)
    counts = content.get("num_samples")
    if counts is not None and (not isinstance(counts, list) or len(counts) != len(content["users"])):
        raise DataError(where, f"has {len(content['users'])} users, got num_samples of another length", _HOW)
    for place, user in enumerate(content["users"]):
        own = content["user_data"].get(user) if isinstance(user, str) else None
        if not isinstance(own, dict) or not all(isinstance(own.get(key), list) for key in "xy"):
            raise DataError(where, f"user {user!r} has no lists x and y in user_data", _HOW)
        x, y = own["x"], own["y"]
        due = len(x) if counts is None else counts[place]
        if not len(x) == len(y) == due:
            raise DataError(where, f"user {user!r} must have {due} samples, got {len(x)} x and {len(y)} y", _HOW)
        yield user, [_input(where, user, its) for its in x], y


_FORM = {"users": list, "user_data": dict}


def _input(where: str, user: str, x: Any) -> Any:
    """Return a sample's input as a float32 array or a string; refuse others, and names of image files."""
    if isinstance(x, list) and x and all(isinstance(its, str) for its in x):
        x = x[-1]
    if isinstance(x, str) and not x.lower().endswith(_PICTURES):
        return x
    if isinstance(x, int | float):
        x = [x]
    if isinstance(x, list) and x and all(type(its) in (int, float) for its in x):
        with np.errstate(over="ignore"):
            return np.array(x, np.float32)
    raise DataError(where, f"a sample of user {user!r} is neither numbers nor a text, got {x!r:.60}", _HOW)

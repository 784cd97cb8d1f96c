"""Samples of users from a NumPy archive, or from Python objects (not in YAML scenarios)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_serializer
from torch import Tensor

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.component.component import GivenObject
from fednet_emu.errors import DataError, ScenarioWarning
from fednet_emu.files.data_folder import locate
from fednet_emu.files.npz import read_arrays, read_shapes
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples

_REQUIRED = ("train_x", "train_y", "test_x", "test_y")
_ARRAYS = (*_REQUIRED, "train_group", "test_group")
_HOW = "write it with np.savez(path, train_x=..., train_y=..., test_x=..., test_y=...) from arrays of numbers"


class Npz(Dataset):
    """Samples from a file written by `np.savez`, with the arrays train_x, train_y, test_x and test_y.

    Inputs [n, ...] are converted to float32. If a `vocabulary` is given, inputs are token ids [n, length] instead.
    Integer targets [n] are class labels from 0 to classes-1. Floating-point targets [n] or [n, targets] make the
    problem a regression. Targets [n, labels] that are all 0 or 1 mark the labels that apply to a sample. With a
    `vocabulary`, integer targets [n, length] are the tokens that follow each token of a sample. The file may also have
    the arrays `train_group` and `test_group` [n], which give the natural owner of each sample, such as its writer, as
    an integer or a name. A warning appears if more than 1 % of the different values of an input become equal in
    float32, or if regression targets look like classes.
    """

    path: str
    """The .npz file. A relative path is looked up in the data folder first, then in the current folder."""
    classes: int | None = Field(default=None, ge=2)
    """Number of classes. Null counts the classes in train_y. If a number is given, floating-point targets are treated
    as class labels, too."""
    vocabulary: int | None = Field(default=None, ge=1)
    """Number of different tokens if the inputs are token ids, which start at 0. Null if the inputs are real-valued."""
    normalise: bool = False
    """Whether each input (axis 1 of the arrays) is scaled to mean 0 and standard deviation 1 over the training samples.
    Scaling is done in double precision, before the conversion to float32."""

    def _check(self) -> None:
        if self.normalise and self.vocabulary is not None:
            raise ValueError("normalise: is for real inputs, got a vocabulary of tokens; leave one of them out")

    def extent(self, data_dir: Path | None) -> Extent | None:
        """Return the shape and number of samples, read from the array headers; None if `load` will raise an error."""
        try:
            shapes = read_shapes(locate(self.path, data_dir), _HOW)
            (train, *inputs), (test, *_) = shapes["train_x"], shapes["test_x"]
        except (DataError, ValueError, KeyError):
            return None
        return Extent(tuple(inputs), self.classes, train + test, 4 if self.vocabulary is None else 8)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        path = locate(self.path, data_dir)
        return checked_samples(_read(path), self.classes, str(path), self.vocabulary, normalise=self.normalise)


def named_parts(
    x: Sequence[NDArray[Any]],
    y: Sequence[NDArray[Any]],
    groups: Sequence[IntArray] | None,
    held_out: Callable[[IntArray], Mask],
) -> dict[str, NDArray[Any]]:
    """Return the arrays for `checked_samples`, from the inputs, targets and owners of the training and the test table.

    If there is only one table, `held_out` returns the mask of its test rows, given the kind of each row: its owner, or
    else its class (0 for real-valued targets).
    """
    columns: dict[str, Sequence[NDArray[Any]]] = {"x": x, "y": y} | ({} if groups is None else {"group": groups})
    if len(x) == 1:
        kinds = y[0] if groups is None else groups[0]
        test = held_out(np.zeros(len(kinds), np.int64) if kinds.dtype.kind == "f" else kinds.astype(np.int64))
        columns = {name: (its[0][~test], its[0][test]) for name, its in columns.items()}
    parts = ("train", "test")
    return {f"{part}_{name}": own for name, its in columns.items() for part, own in zip(parts, its, strict=True)}


def checked_samples(
    arrays: dict[str, NDArray[Any]],
    classes: int | None,
    where: str,
    vocabulary: int | None = None,
    *,
    normalise: bool = False,
    names: Sequence[str] = (),
) -> Samples:
    """Check arrays as described in `Npz`, and return samples; errors name the source `where`, and inputs by `names`."""
    train_x, test_x = (_inputs(where, arrays, name, vocabulary, single=not normalise) for name in ("train_x", "test_x"))
    if train_x.shape[1:] != test_x.shape[1:]:
        problem = f"test_x has samples of shape {test_x.shape[1:]}, got {train_x.shape[1:]} in train_x"
        raise DataError(where, problem, "both must have the same shape after the first dimension")
    if vocabulary is None:
        train_x, test_x = _single(where, train_x, test_x, normalise, names)
    of_tokens = all(arrays[f"{part}_y"].dtype.kind in "iu" for part in ("train", "test"))
    of_tokens &= vocabulary is not None and arrays["train_y"].shape[1:] == train_x.shape[1:]
    train_y, test_y = (
        _inputs(where, arrays, name, vocabulary) if of_tokens else _targets(where, arrays, name, n)
        for name, n in (("train_y", len(train_x)), ("test_y", len(test_x)))
    )
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if of_tokens and y.shape != x.shape:
            problem = f"{part}_y must hold a token that follows each one of {part}_x {list(x.shape)}"
            raise DataError(where, f"{problem}, got {list(y.shape)}", "give both the same shape")
    if train_y.shape[1:] != test_y.shape[1:]:
        problem = f"test_y has {test_y.shape[1:]} numbers for a sample, got {train_y.shape[1:]} in train_y"
        raise DataError(where, problem, "both must have the same shape after the first dimension")
    if classes is not None:
        train_y, test_y = whole_labels(train_y), whole_labels(test_y)
    multi_label = train_y.ndim == 2 and not of_tokens and _are_labels(train_y) and _are_labels(test_y)
    if classes is not None and train_y.ndim == 2:
        problem = f"`classes` needs one label for each sample, got {classes} and targets of shape {train_y.shape}"
        raise DataError(where, problem, "leave `classes` out")
    _note_targets(where, train_y, multi_label=multi_label)
    return Samples(
        train_x=torch.from_numpy(train_x),
        train_y=torch.from_numpy(train_y),
        test_x=torch.from_numpy(test_x),
        test_y=torch.from_numpy(test_y),
        classes=None if of_tokens else _count_classes(where, train_y, test_y, classes),
        train_group=_groups(where, arrays, "train_group", len(train_x)),
        test_group=_groups(where, arrays, "test_group", len(test_x)),
        vocabulary=vocabulary,
        multi_label=multi_label,
    )


def whole_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return targets [n], converted to integers if they are floating-point numbers without fractions."""
    return y.astype(np.int64) if y.dtype.kind == "f" and y.ndim == 1 and (y == np.floor(y)).all() else y


def _note_targets(where: str, y: NDArray[Any], *, multi_label: bool) -> None:
    """Warn if targets look like classes, but are used as regression targets or as independent labels."""
    if multi_label and (y.sum(1) == 1).all():
        warn(
            f"data: each sample of {where} has one of {y.shape[1]} labels, which are learnt as independent labels; "
            "where they are classes, give the number of the class, np.argmax(y, 1)",
            ScenarioWarning,
            stacklevel=2,
        )
    if y.dtype.kind == "f" and y.ndim == 1:
        found = np.unique(y)
        if 1 < len(found) <= _MANY_CLASSES and np.array_equal(found, np.arange(len(found))):
            shown = f"{', '.join(map(str, found[:3]))}{', ...' if len(found) > 3 else ''}"
            what = f"targets {shown} of {where} are numbers of a regression"
            warn(f"data: {what}; for {len(found)} classes give `classes: {len(found)}`", ScenarioWarning, stacklevel=2)


def _single(
    where: str, train: NDArray[Any], test: NDArray[Any], normalise: bool, names: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Convert training and test inputs to float32 [n, inputs, ...], standardised if `normalise` is set."""
    if not normalise:
        cast = train.astype(np.float32, copy=False)
        if train.dtype.itemsize > 2 and train.dtype != np.float32:
            for place in range(train.shape[1]):
                _note_merged(where, train[:, place], cast[:, place], place, names, normalise=False)
        return cast, test.astype(np.float32, copy=False)
    found = np.empty(train.shape, np.float32), np.empty(test.shape, np.float32)
    for place in range(train.shape[1]):
        own, other = (part[:, place].astype(np.float64) for part in (train, test))
        varies = own.min() < own.max()  # rounding can give a constant input a positive computed deviation
        mean, deviation = (own.mean(), own.std()) if varies else (own.flat[0], 1.0)
        own, other = (own - mean) / deviation, (other - mean) / deviation
        found[0][:, place], found[1][:, place] = own, other
        _note_merged(where, own, found[0][:, place], place, names, normalise=True)
    return found


def _note_merged(
    where: str, exact: NDArray[Any], cast: NDArray[np.float32], place: int, names: Sequence[str], *, normalise: bool
) -> None:
    """Warn if over 1 % of distinct values, among the first `_LOOK_AT` of an input, become equal in float32."""
    exact, cast = exact.reshape(-1)[:_LOOK_AT], cast.reshape(-1)[:_LOOK_AT]
    if np.array_equal(exact, cast):
        return
    before, after = len(np.unique(exact)), len(np.unique(cast))
    if after < 0.99 * before:
        what = f"float32 keeps {after} of {before} different values of input {names[place] if names else place}"
        remedy = "its extreme values are far apart" if normalise else "give `normalise: true`, or subtract its mean"
        warn(f"data: {what} of {where}; {remedy}", ScenarioWarning, stacklevel=2)


_LOOK_AT = 100_000
"""Number of values of an input that are checked, because sorting all values could take seconds."""
_MANY_CLASSES = 100
"""Maximum number of distinct values 0, 1, 2, and so on at which regression targets are suspected to be class labels."""


def _read(path: Path) -> dict[str, NDArray[Any]]:
    arrays = read_arrays(path, _HOW, _ARRAYS)
    missing = [name for name in _REQUIRED if name not in arrays]
    if missing:
        raise DataError(str(path), f"lacks {', '.join(missing)}, got {', '.join(arrays) or 'none of them'}", _HOW)
    return arrays


def _inputs(
    where: str, arrays: dict[str, NDArray[Any]], name: str, vocabulary: int | None, *, single: bool = True
) -> NDArray[Any]:
    raw = arrays[name]
    if raw.dtype.kind not in "buif":
        raise DataError(where, f"{name} must hold real numbers, got {raw.dtype}", "convert it to float32")
    if raw.ndim < 2 or raw.size == 0:
        raise DataError(where, f"{name} has shape {raw.shape}", "it must be [samples, ...] and not empty")
    if vocabulary is not None:
        return _tokens(where, raw, name, vocabulary)
    _finite_float32(where, raw, name, single=single)
    return raw


def _tokens(where: str, raw: NDArray[Any], name: str, vocabulary: int) -> IntArray:
    if raw.dtype.kind not in "iu" or raw.ndim != 2:
        problem = f"{name} must hold windows [samples, length] of tokens, got {raw.dtype} {list(raw.shape)}"
        raise DataError(where, problem, "number the tokens from 0, or leave `vocabulary` out")
    if raw.min() < 0 or raw.max() >= vocabulary:
        wrong = raw[(raw < 0) | (raw >= vocabulary)][0]
        problem = f"{name} must hold tokens 0..{vocabulary - 1}, got {wrong}"
        raise DataError(where, problem, "renumber the tokens, or correct `vocabulary`")
    return raw.astype(np.int64)


def _targets(where: str, arrays: dict[str, NDArray[Any]], name: str, rows: int) -> NDArray[Any]:
    raw = arrays[name]
    if raw.ndim == 2 and raw.shape[0] == rows and raw.shape[1] > 1:
        if raw.dtype.kind in "biu" and _are_labels(raw):
            return raw.astype(np.float32)
        if raw.dtype.kind in "biu":
            problem = f"{name} must be 1 where a label applies and 0 where not, got {raw[(raw != 0) & (raw != 1)][0]}"
            raise DataError(where, problem, "use floating point numbers for a regression")
    else:
        _check_rows(where, raw, name, rows)
    if raw.dtype.kind == "f":
        return _finite_float32(where, raw, name)
    if raw.dtype.kind in "iu":
        return raw.astype(np.int64)
    remedy = "use integers for class labels, floating point numbers for a regression"
    raise DataError(where, f"{name} must hold numbers, got {raw.dtype}", remedy)


def _are_labels(values: NDArray[Any]) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def _groups(where: str, arrays: dict[str, NDArray[Any]], name: str, rows: int) -> IntArray | None:
    if name not in arrays:
        return None
    raw = arrays[name]
    _check_rows(where, raw, name, rows)
    kinds = {arrays[its].dtype.kind for its in _ARRAYS[4:] if its in arrays}
    if kinds <= {"U"} or kinds <= {"S"}:
        number: dict[Any, int] = {}
        for both in (its for part in _ARRAYS[4:] for its in arrays.get(part, raw[:0]).tolist()):
            number.setdefault(both, len(number))
        return np.array([number[its] for its in raw.tolist()], np.int64)
    if not kinds <= set("iu"):
        problem = f"{name} must hold integers, or names in both of train_group and test_group, got {raw.dtype}"
        raise DataError(where, problem, "number the groups, or name all")
    return raw.astype(np.int64)


def _check_rows(where: str, raw: NDArray[Any], name: str, rows: int) -> None:
    if raw.shape != (rows,):
        inputs = f"{name.partition('_')[0]}_x"
        remedy = f"it must be ({rows},), one number for each sample of {inputs}"
        raise DataError(where, f"{name} has shape {raw.shape}", remedy)


def _finite_float32(where: str, raw: NDArray[Any], name: str, *, single: bool = True) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        values = raw.astype(np.float32, copy=False) if single else raw
        total = values.sum(dtype=np.float64)  # a float64 sum of finite float32 values does not overflow
    if not np.isfinite(total):
        finite = np.isfinite(values)
        place = tuple(int(axis) for axis in np.unravel_index(np.argmin(finite), finite.shape))
        problem = f"{name}{list(place)} is not {'a finite float32' if single else 'finite'}, got {raw[place]}"
        raise DataError(where, problem, f"drop or repair the {np.count_nonzero(~finite)} such values")
    return values


def _count_classes(where: str, train_y: NDArray[Any], test_y: NDArray[Any], stated: int | None) -> int | None:
    kinds = {train_y.dtype.kind, test_y.dtype.kind}
    if kinds == {"f"} and stated is None:
        return None
    if "f" in kinds:
        problem = f"labels must be integers, got {train_y.dtype} in train_y and {test_y.dtype} in test_y"
        raise DataError(where, problem, "use integers in both, or floats in both and no `classes` for a regression")
    present = np.unique(train_y)
    if stated is None and (len(present) < 2 or not np.array_equal(present, np.arange(len(present)))):
        shown = ", ".join(str(label) for label in present[:10]) + (", ..." if len(present) > 10 else "")
        problem = f"train_y must hold every label 0..K-1 of K >= 2 classes, got {shown}"
        raise DataError(where, problem, "renumber the labels without gaps, or state `classes`")
    classes = len(present) if stated is None else stated
    for name, labels in (("train_y", train_y), ("test_y", test_y)):
        wrong = labels[(labels < 0) | (labels >= classes)]
        if len(wrong):
            problem = f"{name} must hold labels 0..{classes - 1}, got {wrong[0]}"
            raise DataError(where, problem, "renumber the labels, or correct `classes`")
    return classes


def _array(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.array(values)


class GivenSamples(GivenObject, Dataset):
    """Samples given as tensors or arrays in Python, with the same checks as samples from a file."""

    given: Samples

    def extent(self, data_dir: Path | None) -> Extent | None:
        """Return the shape and number of samples, from the shapes of the arrays; None if an array has no shape."""
        shapes = [tuple(getattr(x, "shape", ())) for x in (self.given.train_x, self.given.test_x)]
        if not all(shapes):
            return None
        return Extent(
            shapes[0][1:],
            self.given.outputs,
            sum(shape[0] for shape in shapes),
            4 if self.given.vocabulary is None else 8,
        )

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        samples = checked_samples(self._arrays(), self.given.classes, "data", self.given.vocabulary)
        return replace(samples, optimum=self.given.optimum)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        named = {name: getattr(self.given, name) for name in _ARRAYS}
        return {name: _array(value) for name, value in named.items() if value is not None}

    @field_serializer("given")
    def _described(self, given: Samples) -> str:
        """Return a text with the numbers of samples and a digest of their values, for the records of a run."""
        digest, arrays = blake2b(digest_size=8), self._arrays()
        for name, array in arrays.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return f"{len(arrays['train_x'])} training and {len(arrays['test_x'])} test samples {digest.hexdigest()}"

"""Base class of data sets: components that provide training and test samples."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.component.component import Component
from fednet_emu.errors import DataError

TaskName = Literal["classification", "multi-label", "next-token", "regression"]
"""Name of the learning problem.

The target of a sample is one class, any number of labels, the token that follows each token, or real numbers."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Training and test samples of one learning problem.

    Attributes:
        train_x: Inputs of the training samples: float32 [n_train, ...], or int64 [n_train, length] token ids from 0 to
            vocabulary-1.
        train_y: Targets of the training samples. Classes: int64 [n_train] from 0 to classes-1. Regression: float32
            [n_train] or [n_train, targets]. Labels: float32 [n_train, labels], 1 if a label applies to a sample, else
            0. Tokens: int64 [n_train, length], the token that follows each token of the sample.
        test_x: Inputs of the test samples [n_test, ...], with rows of the same type and shape as in `train_x`.
        test_y: Targets of the test samples [n_test, ...], with rows of the same type and shape as in `train_y`.
        classes: Number of classes; None for a regression, for multi-label samples or for tokens.
        train_group: int64 [n_train] index of the natural owner of each sample, such as its writer; None if owners are
            unknown.
        test_group: int64 [n_test] index of the natural owner of each test sample, as in `train_group`.
        optimum: float32 [n_parameters] parameters of the linear model with the minimum mean squared training error.
            Weights come before the bias, as in `nn.Linear`. None if the minimiser is unknown.
        vocabulary: Number of different tokens; None for real-valued inputs.
        multi_label: Whether any number of labels may apply to a sample.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int | None
    train_group: IntArray | None = None
    test_group: IntArray | None = None
    optimum: Tensor | None = None
    vocabulary: int | None = None
    multi_label: bool = False

    @property
    def task(self) -> TaskName:
        """Kind of learning problem that the samples pose."""
        if self.classes is not None:
            return "classification"
        if self.vocabulary is not None and self.train_y.ndim == 2 and not self.train_y.is_floating_point():
            return "next-token"
        return "multi-label" if self.multi_label else "regression"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample, without a batch dimension."""
        return tuple(self.train_x.shape[1:])

    @property
    def outputs(self) -> int:
        """Number of outputs that a model needs for these samples: one per class, label, token, or regression target."""
        known = self.vocabulary if self.task == "next-token" else self.classes
        return math.prod(self.train_y.shape[1:]) if known is None else known


class Extent(NamedTuple):
    """Properties of a data set that are known before its samples are read or drawn."""

    input_shape: tuple[int, ...]  # shape of one sample
    outputs: int | None  # number of model outputs for the samples; None if unknown
    samples: int | None = None  # number of training and test samples together; None if unknown
    value_byte: int = 4  # memory of one scalar of a sample, in bytes

    @property
    def byte(self) -> int:
        """Memory of all inputs and labels in bytes, with 8 bytes per label; 0 if the number of samples is unknown."""
        return (self.samples or 0) * (self.value_byte * math.prod(self.input_shape) + 8)


class Dataset(Component):
    """A source of training and test samples."""

    regression: ClassVar[bool] = False
    """Whether it is known, before the samples are read, that the learning problem is a regression."""
    limit: int | None = Field(None, gt=0)
    """Maximum number of training samples. If there are more, a random subset is drawn before the samples are divided
    among the server and the devices; it depends only on the seed. Null uses all training samples. Test samples are not
    limited."""

    def limited(self, samples: Samples, rng: np.random.Generator) -> Samples:
        """Return the samples with at most `limit` training samples, which keep their order."""
        count = len(samples.train_y)
        if self.limit is None or self.limit >= count:
            return samples
        return with_training_rows(samples, np.sort(rng.permutation(count)[: self.limit]))

    def extent(self, data_dir: Path | None) -> Extent | None:
        """Return the properties of the data set without reading or drawing its samples; None if unknown."""
        return None

    @abstractmethod
    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Read or draw the samples.

        Args:
            data_dir: Folder of data files; None uses the folder that the environment variable FEDNET_DATA names.
            rng: Random stream from which generated data or the choice of test samples is drawn.

        Raises:
            DataError: A file is missing or cannot be used.
        """


def held_out(where: str, kind: IntArray, order: IntArray, share: float, remedy: str, what: str = "samples") -> Mask:
    """Return the mask [n] of test samples, which `last_of_each` selects; refuse an empty training or test set."""
    test = last_of_each(kind, order, share)
    if not test.any() or test.all():
        problem = f"test_share leaves no {what} for {'training' if test.all() else 'testing'}, got {share}"
        raise DataError(where, problem, remedy)
    return test


def last_of_each(kind: IntArray, order: IntArray, share: float) -> Mask:
    """Return the mask [n] of the last `share` (rounded) of the samples of each `kind`, in the given `order`."""
    _, number, count = np.unique(kind, return_inverse=True, return_counts=True)
    sorted_rows = order[np.argsort(number[order], kind="stable")]
    place = np.empty(len(kind), np.int64)
    place[sorted_rows] = np.arange(len(kind)) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray(place >= (count - np.rint(share * count))[number])


def windows_of_people(x: NDArray[np.float32], y: IntArray, person: IntArray, test: Mask, classes: int) -> Samples:
    """Return samples from the windows `x` [n, channels, rows], with channels standardised over the training set.

    `y` [n] are the class labels, `person` [n] are the groups, and `test` [n] selects the test windows.
    """
    mean, deviation = x[~test].mean((0, 2), keepdims=True), x[~test].std((0, 2), keepdims=True)
    return Samples(*divided(test, (x - mean) / deviation, y), classes, person[~test], person[test])


def divided(test: Mask, x: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `train_x`, `train_y`, `test_x` and `test_y` of `Samples`; the mask `test` [n] selects the test samples."""
    train_x, train_y, test_x, test_y = (torch.from_numpy(its[rows]) for rows in (~test, test) for its in (x, y))
    return train_x, train_y, test_x, test_y


def with_training_rows(samples: Samples, rows: IntArray) -> Samples:
    """Return the samples with only the training samples `rows`, in this order, and with all test samples."""
    x, y, group = samples.train_x[torch.from_numpy(rows)], samples.train_y[torch.from_numpy(rows)], samples.train_group
    return replace(samples, train_x=x, train_y=y, train_group=None if group is None else group[rows], optimum=None)

"""Loss and accuracy of a model on given samples, altogether or device by device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fednet_emu.learning.flat import FlatModel

Array = NDArray[np.float64]

_CHUNK = 4096


@final
@dataclass(frozen=True, slots=True)
class Metrics:
    """Mean loss and accuracy (a fraction; None for regression) over a number of samples; nan without samples."""

    loss: float
    accuracy: float | None
    samples: int


@final
@dataclass(frozen=True, slots=True)
class DeviceMetrics:
    """Mean loss, accuracy (a fraction; None for regression) and number of samples of each device, arrays [devices].

    A device without samples has nan.
    """

    loss: Array
    accuracy: Array | None
    samples: NDArray[np.int64]


def evaluate(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, *, chunk: int = _CHUNK) -> Metrics:
    """The mean loss and accuracy of the parameters `vector` [size] on samples x [N, ...] and y [N, ...].

    Nothing is drawn and no gradient is kept. `chunk` bounds the samples that go through the model at a time; it does
    not change the result beyond rounding.
    """
    losses, hits = _per_sample(model, vector, x, y, chunk)
    accuracy = None if hits is None else _mean(hits)
    return Metrics(_mean(losses), accuracy, len(y))


def evaluate_by_device(
    model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, offsets: NDArray[np.int64], *, chunk: int = _CHUNK
) -> DeviceMetrics:
    """The metrics of each device, whose samples are the rows offsets[d] to offsets[d + 1] of x and y, in one pass."""
    losses, hits = _per_sample(model, vector, x, y, chunk)
    samples = np.diff(offsets)
    owner = np.repeat(np.arange(len(samples)), samples)

    def by_device(values: Tensor) -> Array:
        own = values[int(offsets[0]) : int(offsets[-1])].double().cpu().numpy()
        mean = np.full(len(samples), np.nan)
        np.divide(np.bincount(owner, own, minlength=len(samples)), samples, out=mean, where=samples > 0)
        return mean

    return DeviceMetrics(by_device(losses), None if hits is None else by_device(hits), samples)


def _per_sample(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, chunk: int) -> tuple[Tensor, Tensor | None]:
    """Losses [N], and for a classifier whether the class with the highest score is right [N]."""
    losses, hits = [], []
    with torch.no_grad():
        for part, target in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
            outputs = model.forward(vector, part)
            losses.append(model.sample_losses(outputs, target))
            if model.is_classifier:
                hits.append(outputs.argmax(1) == target)
    return torch.cat(losses), torch.cat(hits) if hits else None


def _mean(values: Tensor) -> float:
    return float(values.double().mean())

"""Evaluate a model: loss, accuracy and further metrics over all samples or for each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import Array, IntArray
from fednet_emu.learning.metrics import Measured, Metric
from fednet_emu.learning.models.flat import FlatModel

_CHUNK = 4096
_CHUNK_BYTE = 2**26
_CHUNK_BYTE_ON_GPU = 2**30


@final
@dataclass(frozen=True, slots=True)
class Metrics:
    """Mean loss and accuracy of a model over all samples.

    The accuracy is a fraction, or None for a regression. Values are nan if there are no samples. `metrics` maps column
    names to the values of further metrics.
    """

    loss: float
    accuracy: float | None
    samples: int
    metrics: dict[str, float] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class DeviceMetrics:
    """Mean loss, accuracy and number of samples of each device, as arrays [devices].

    The accuracy is a fraction, or None for a regression. The loss and the accuracy of a device without samples are nan.
    `metrics` maps column names to the values [devices] of further metrics.
    """

    loss: Array
    accuracy: Array | None
    samples: IntArray
    metrics: dict[str, Array] = field(default_factory=dict)


class SampleScores(NamedTuple):
    """Loss [N], accuracy [N] (None for a regression) and further metrics, in `measured`, of each of N samples."""

    losses: Tensor
    hits: Tensor | None
    measured: tuple[Measured, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[SampleScores]) -> SampleScores:
        """Concatenate the scores of one or more sets of samples, in the order of `parts`."""
        losses, hits, measured = zip(*parts, strict=True)
        right = [part for part in hits if part is not None]
        together = tuple(
            Measured(own[0].metric, np.concatenate([its.kept for its in own]), np.concatenate([its.y for its in own]))
            for own in zip(*measured, strict=True)
        )
        return cls(torch.cat(losses), torch.cat(right) if right else None, together)

    def pooled(self) -> Metrics:
        more = {its.metric.column: its.pooled() for its in self.measured}
        return Metrics(_mean(self.losses), None if self.hits is None else _mean(self.hits), len(self.losses), more)

    def by_device(self, order: Tensor, offsets: IntArray) -> DeviceMetrics:
        """Return the metrics of each device. Device d has the samples `order[offsets[d]:offsets[d + 1]]`."""
        samples = np.diff(offsets)
        owner = np.repeat(np.arange(len(samples)), samples)

        def mean(values: Tensor) -> Array:
            own = values[order].double().cpu().numpy()
            means = np.full(len(samples), np.nan)
            np.divide(np.bincount(owner, own, minlength=len(samples)), samples, out=means, where=samples > 0)
            return means

        rows = order.cpu().numpy()
        more = {its.metric.column: its.by_device(rows, offsets) for its in self.measured}
        return DeviceMetrics(mean(self.losses), None if self.hits is None else mean(self.hits), samples, more)


def score_samples(
    model: FlatModel,
    vector: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    chunk: int = _CHUNK,
    metrics: Sequence[Metric] = (),
) -> SampleScores:
    """Return the loss, the accuracy and further metrics of N samples for a model with the parameters `vector` [size].

    The samples have inputs `x` [N, ...] and targets `y` [N, ...].

    No random numbers are drawn, and no gradients are stored. A call of the model receives at most `chunk` samples, or
    fewer if the activations would need too much memory. Both limits change the result only by rounding.
    """
    limit_byte = _CHUNK_BYTE if vector.device.type == "cpu" else _CHUNK_BYTE_ON_GPU
    chunk = min(chunk, max(1, limit_byte // model.activation_byte_per_sample))
    parts: list[SampleScores] = []
    with torch.no_grad():
        for part, target in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
            outputs = model.forward(vector, model.laid_out(part))
            losses = model.sample_losses(outputs, target)
            kept = [metric.kept(outputs, target, losses).cpu().numpy() for metric in metrics]
            measured = (Measured(*its, target.cpu().numpy()) for its in zip(metrics, kept, strict=True))
            parts.append(SampleScores(losses, model.hits(outputs, target), tuple(measured)))
    return SampleScores.joined(parts)


def outputs_of(model: FlatModel, vector: Tensor, x: Tensor) -> Tensor:
    """Return the outputs [N, ...] for inputs `x` [N, ...] and parameters `vector` [size], without dropout."""
    chunk = min(_CHUNK, max(1, _CHUNK_BYTE // model.activation_byte_per_sample))
    with torch.no_grad():
        return torch.cat([model.forward(vector, model.laid_out(part)) for part in torch.split(x, chunk)])


def gradient_norm(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor) -> float:
    """Return the norm of the gradient of the mean loss over N samples `x` [N, ...], `y` [N].

    The gradient is computed at the parameters `vector` [size]. The running statistics, which are the last part of the
    vector, are held constant and do not count in the norm.
    """
    at = vector.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(model.sample_losses(model.forward(at, x), y).mean(), at)
    return float(gradient[: model.n_trainable].double().norm())


def _mean(values: Tensor) -> float:
    return float(values.double().mean())

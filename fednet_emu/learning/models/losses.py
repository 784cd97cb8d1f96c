"""Loss functions that return a loss for each sample, and the accuracy that belongs to each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

PerSampleLoss = Callable[[Tensor, Tensor], Tensor]
"""Function from outputs [B, ...] and targets [B, ...] to losses [B]."""


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, reduction="none")


def _binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none").mean(1)


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1).sum(1)


def _squared_hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    margins = outputs.reshape(targets.shape) * (2 * targets - 1)
    return (1 - margins).clamp(min=0).square() / 2


def _next_token(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)


LOSSES: Mapping[str, PerSampleLoss] = {
    "cross-entropy": _cross_entropy,
    "binary-cross-entropy": _binary_cross_entropy,
    "squared-error": _squared_error,
    "squared-hinge": _squared_hinge,
    "next-token": _next_token,
}
"""Loss functions by name. Each returns one loss per sample. The binary cross-entropy is the mean over the labels. The
squared error is the sum over the outputs, without a factor 1/2. `squared-hinge` is 1/2 max(0, 1 - margin)^2 for two
classes, where the single output is positive for the second class. `next-token` is the mean cross-entropy over the
positions, for outputs [B, length, tokens]."""


def _right_class(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(1) == targets


def _right_side(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(targets.shape) > 0) == (targets > 0)


def _right_labels(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == (targets > 0)).double().mean(1)


def _right_tokens(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(2) == targets).double().mean(1)


HITS: Mapping[str, PerSampleLoss] = {
    "cross-entropy": _right_class,
    "binary-cross-entropy": _right_labels,
    "squared-hinge": _right_side,
    "next-token": _right_tokens,
}
"""Functions that return the accuracy [B] of each sample, by the name of the loss. For classes, the accuracy is 1 if the
class with the highest output is right, and 0 otherwise. For tokens, it is the share of right tokens. For labels, it is
the share of right labels, where an output above 0 means that the label applies."""

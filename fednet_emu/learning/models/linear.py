"""The linear models: softmax regression for classes, linear regression for numbers."""

from __future__ import annotations

import math

from torch import nn

from fednet_emu.learning.models.base import Model


class Softmax(Model):
    """Softmax (multinomial logistic) regression: one linear layer on the flattened sample, outputs are logits."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """One linear layer on the flattened sample."""
        return _linear(input_shape, outputs)


class Linear(Model):
    """Linear regression: one linear layer on the flattened sample."""

    bias: bool = True
    """Whether the model has a constant term."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """One linear layer on the flattened sample."""
        return _linear(input_shape, outputs, bias=self.bias)


def _linear(input_shape: tuple[int, ...], outputs: int, *, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), outputs, bias=bias))

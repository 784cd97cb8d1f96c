"""Models of dense layers: linear ones, and the multilayer perceptron."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

from pydantic import Field, PositiveInt, model_validator
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


class Mlp(Model):
    """Fully connected layers with ReLU between them, on the flattened sample; `hidden` are the hidden widths.

    `dropout` are the dropout rates before each layer, output layer included: [] for none, or one more than `hidden`.
    The network of Wang, Yan and Oates (IJCNN 2017) has hidden [500, 500, 500] and dropout [0.1, 0.2, 0.2, 0.3].
    """

    hidden: tuple[PositiveInt, ...] = (200,)
    """Number of units of each hidden layer."""
    dropout: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = ()
    """Dropout rate before each layer, output layer included (one more than `hidden`); empty for no dropout."""

    @model_validator(mode="after")
    def _one_share_per_layer(self) -> Mlp:
        if len(self.dropout) not in (0, len(self.hidden) + 1):
            raise ValueError(f"dropout: not one share per layer, got {len(self.dropout)}; give {len(self.hidden) + 1}")
        return self

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """One linear layer per width, and one to the outputs."""
        layers: list[nn.Module] = [nn.Flatten()]
        widths = (math.prod(input_shape), *self.hidden, outputs)
        for layer, (n_in, n_out) in enumerate(pairwise(widths)):
            layers += [nn.ReLU()] if layer else []
            layers += [nn.Dropout(self.dropout[layer])] if self.dropout else []
            layers.append(nn.Linear(n_in, n_out))
        return nn.Sequential(*layers)

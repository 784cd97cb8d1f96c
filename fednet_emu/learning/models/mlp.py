"""The multilayer perceptron."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

from pydantic import PositiveInt
from torch import nn

from fednet_emu.learning.models.base import Model


class Mlp(Model):
    """Fully connected layers with ReLU between them, on the flattened sample; `hidden` are the widths inside."""

    kind: Literal["mlp"] = "mlp"
    hidden: tuple[PositiveInt, ...] = (200,)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """One linear layer per width, and one to the outputs."""
        layers: list[nn.Module] = [nn.Flatten()]
        for n_in, n_out in pairwise((math.prod(input_shape), *self.hidden)):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        width = self.hidden[-1] if self.hidden else math.prod(input_shape)
        return nn.Sequential(*layers, nn.Linear(width, outputs))

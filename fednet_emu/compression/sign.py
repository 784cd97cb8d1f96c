"""Signs only, one bit per entry.

Bernstein, Wang, Azizzadenesheli, Anandkumar: "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018,
https://arxiv.org/abs/1802.04434; Karimireddy, Rebjock, Stich, Jaggi: "Error Feedback Fixes SignSGD and other Gradient
Compression Schemes", ICML 2019, https://arxiv.org/abs/1901.09847
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fednet_emu.compression.base import FLOAT_BIT, Compression, Message


class Sign(Compression):
    """The sign of each entry, read as that sign times the mean magnitude: n + 32 bits; zero counts as positive.

    It is a contraction: |v - C(v)|^2 = |v|^2 - |v|_1^2 / n.
    """

    error_feedback: bool = True
    """Whether the sender adds what was left out to the next message (EF-signSGD)."""
    magnitude: float | None = Field(None, gt=0)
    """The magnitude that the receiver gives every entry, the step size of signSGD, which is not sent; null sends the
    mean magnitude of the entries. Only without error feedback."""

    @model_validator(mode="after")
    def _feedback_of_a_contraction(self) -> Self:
        if self.error_feedback and self.magnitude is not None:
            raise ValueError(
                f"error feedback needs the magnitude of the entries themselves, got {self.magnitude:g}; leave out "
                "magnitude or set error_feedback: false"
            )
        return self

    def bit(self, n: int) -> int:
        return n + (FLOAT_BIT if self.magnitude is None else 0)

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        size = v.abs().mean(dtype=torch.float64).to(v.dtype) if self.magnitude is None else v.new_tensor(self.magnitude)
        return Message(torch.where(v >= 0, size, -size), self.bit(len(v)))

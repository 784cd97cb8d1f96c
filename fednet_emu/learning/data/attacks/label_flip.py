"""Label flipping: correct inputs with wrong labels."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.learning.data.attacks.base import Attack
from fednet_emu.learning.data.datasets.base import Samples


class LabelFlip(Attack):
    """Malicious samples of the source class carry the target label; success means that models predict it there."""

    source: int | None = Field(None, ge=0)
    """Class whose labels are changed to the target; null takes all classes."""

    def poisoned(self, x: Tensor, y: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        """The same inputs, with the labels of the source class changed to the target."""
        return x, y.masked_fill(self._concerned(y), self.target)

    def trial(self, samples: Samples) -> Tensor:
        """The test inputs of the source class, or of all classes but the target."""
        return samples.test_x[self._concerned(samples.test_y) & (samples.test_y != self.target)]

    def _concerned(self, y: Tensor) -> Tensor:
        return torch.ones_like(y, dtype=torch.bool) if self.source is None else y == self.source

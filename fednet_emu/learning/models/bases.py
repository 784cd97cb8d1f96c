"""Storage of the base of a model with adapters, which consists of all frozen weights.

NF4: Dettmers, Pagnoni, Holtzman, Zettlemoyer, "QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS 2023,
https://arxiv.org/abs/2305.14314
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Annotated, Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor
from torch.nn.functional import pad

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds

BIT_PER_WEIGHT = 32
"""Size of an unquantised weight, in bits."""
BLOCK = 64
"""Number of weights per scale."""
BLOCKS = 256
"""Number of 8-bit scales per common factor."""
_STEPS = 255
_LAST = 0.9677083


class Base(Component):
    """Storage of the frozen weights of a network with adapters."""

    ship: bool = False
    """Whether the server's first message to each device includes the frozen weights. If false, devices have them from
    the start."""

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        if self.ship and scenario.algorithm.ships_no_base:
            yield "ship", f"with {scenario.algorithm.kind} {scenario.algorithm.ships_no_base}, got true; leave it out"

    def on(self, module: Any, dense: Iterable[Tensor]) -> None:
        """Quantise the frozen weights of a module in place, and set the attribute `shipped_bit` of the module.

        Args:
            module: the module, before adapters are added.
            dense: the weights of dense layers, except weights that another layer shares.
        """
        chosen, bit = {id(weight) for weight in dense}, 0
        for weight in (weight for weight in module.parameters() if not weight.requires_grad):
            if id(weight) in chosen:
                bit += self.bit(weight.numel())
                weight.data = self.read(weight.data)
            else:
                bit += BIT_PER_WEIGHT * weight.numel()
        for part in module.modules():  # a submodule may store a size from an earlier call
            part.shipped_bit = 0
        module.shipped_bit = bit if self.ship else 0

    @abstractmethod
    def bit(self, n: int) -> int:
        """Return the size in bits of the `n` weights of a dense layer."""

    @abstractmethod
    def read(self, weight: Tensor) -> Tensor:
        """Return the quantised weights of a dense layer, in the same shape."""


class Float32(Base):
    """Frozen weights have 32 bits each."""

    def bit(self, n: int) -> int:
        return BIT_PER_WEIGHT * n

    def read(self, weight: Tensor) -> Tensor:
        return weight


class Nf4(Base):
    """Stores the frozen weights of dense layers with 4 bits each, in the format NF4 of QLoRA.

    A weight is stored as one of 16 levels, which are quantiles of the normal distribution. The level is multiplied by
    the scale of a block of 64 weights, which is their maximum magnitude. Including the scales, a weight takes 4.5 bits,
    or 4.127 bits with `double`. Weights are quantised once, before the run, and devices compute with the quantised
    values in 32 bits. All other frozen parameters have 32 bits. These include weights that a dense layer shares with
    another layer, such as an embedding.
    """

    double: bool = False
    """Whether the scales of the blocks are quantised to 8 bits, with one common factor for 256 scales. If false, scales
    have 32 bits. The 8-bit scales are evenly spaced here, but are floating-point numbers in the paper."""

    def bit(self, n: int) -> int:
        blocks = -(-n // BLOCK)
        return 4 * n + (8 * blocks + 32 * -(-blocks // BLOCKS) if self.double else 32 * blocks)

    def read(self, weight: Tensor) -> Tensor:
        n, table = weight.numel(), torch.from_numpy(levels()).to(weight)
        blocks = pad(weight.reshape(-1), (0, -n % BLOCK)).view(-1, BLOCK)
        scale = blocks.abs().amax(1)
        if self.double:
            scale = _even_steps(scale)
        scale = scale[:, None]
        nearest = torch.bucketize(blocks / torch.where(scale > 0, scale, 1), (table[1:] + table[:-1]) / 2)
        return (table[nearest] * scale).reshape(-1)[:n].view(weight.shape)


BASES: dict[str, type[Base]] = kinds(Float32, Nf4)
AnyBase = Annotated[Base, Slot("base", BASES)]


@cache
def levels() -> np.ndarray:
    """Return the 16 levels of NF4, ascending from -1 to 1.

    Seven levels are negative, one is zero, and eight are positive.

    The magnitudes on each side of zero are quantiles of N(0, 1), divided by the largest one. The probabilities of the
    quantiles are evenly spaced from 1/2 (excluded) to 0.9677083, which is the mean of 1 - 1/30 and 1 - 1/32.
    """
    below, above = (ndtri(np.linspace(0.5, _LAST, count + 1)[1:]) for count in (7, 8))
    found: np.ndarray = np.concatenate([-below[::-1], [0.0], above]) / above[-1]
    return found


def _even_steps(scale: Tensor) -> Tensor:
    """Quantise scales [n] to 8 bits, in groups of 256 scales.

    A scale is rounded to one of the evenly spaced values from zero to the largest scale in its group.
    """
    groups = pad(scale, (0, -len(scale) % BLOCKS)).view(-1, BLOCKS)
    top = groups.amax(1, keepdim=True)
    steps = (groups / torch.where(top > 0, top, 1) * _STEPS).round()
    return (steps / _STEPS * top).reshape(-1)[: len(scale)]

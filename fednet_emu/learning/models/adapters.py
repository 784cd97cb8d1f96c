"""Adapters: small trainable matrices in a large network with frozen weights, which may be quantised (the base).

Devices train and send only the adapters.

LoRA: Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang, Chen, "LoRA: Low-Rank Adaptation of Large Language Models", ICLR
2022, https://arxiv.org/abs/2106.09685. FFA-LoRA, which trains only B: Sun, Li, Li, Ding, "Improving LoRA in
Privacy-preserving Federated Learning", ICLR 2024, https://arxiv.org/abs/2403.12313. NF4: Dettmers, Pagnoni, Holtzman,
Zettlemoyer, "QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS 2023, https://arxiv.org/abs/2305.14314.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError

BIT_PER_WEIGHT = 32
"""Size of an unquantised weight, in bits."""
BLOCK = 64
"""Number of weights in a block of the format NF4; the weights of a block have a common scale."""
BLOCKS = 256
"""Number of 8-bit scales that have a common 32-bit factor."""
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
        """Quantise the frozen weights of a module without adapters in place, and set its attribute `shipped_bit`.

        `dense` are the weights of dense layers, except weights that another layer shares.
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
        """Return the weights of a dense layer after quantisation, as floating-point values in the same shape."""


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
    or 4.127 bits if `double` is true. Weights are quantised once, before the run, and devices compute with the
    quantised values in 32 bits. All other frozen parameters have 32 bits. These include weights that a dense layer
    shares with another layer, such as an embedding.
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

    Seven levels are negative, one is zero, and eight are positive. The magnitudes on each side of zero are quantiles of
    N(0, 1), divided by the largest one. The probabilities of the quantiles are evenly spaced from 1/2 (excluded) to
    0.9677083, which is the mean of 1 - 1/30 and 1 - 1/32.
    """
    below, above = (ndtri(np.linspace(0.5, _LAST, count + 1)[1:]) for count in (7, 8))
    found: np.ndarray = np.concatenate([-below[::-1], [0.0], above]) / above[-1]
    return found


def _even_steps(scale: Tensor) -> Tensor:
    """Quantise scales [n] to 8 bits: evenly spaced values from zero to the largest in each group of 256."""
    groups = pad(scale, (0, -len(scale) % BLOCKS)).view(-1, BLOCKS)
    top = groups.amax(1, keepdim=True)
    steps = (groups / torch.where(top > 0, top, 1) * _STEPS).round()
    return (steps / _STEPS * top).reshape(-1)[: len(scale)]


class Lora(Component):
    """Low-rank adaptation (LoRA): a product of two small trainable matrices is added to the weights of dense layers.

    A layer with the frozen weights W [m, n] uses W + (alpha / rank) B A instead. Initially, A [rank, n] is drawn
    uniformly between -1/sqrt(n) and 1/sqrt(n), and B [m, rank] is zero, so that the network is unchanged. The
    parameters A and B of a layer are called `lora_A` and `lora_B`. All other parameters are frozen, except those in
    `train`.
    """

    rank: int = Field(8, gt=0)
    """Rank of the product B A."""
    alpha: float = Field(16, gt=0)
    """Numerator of the factor alpha / rank of the product B A."""
    targets: tuple[str, ...] = Field(min_length=1)
    """Layers that get an adapter, given by the last part of their name (`c_attn`), by their full name, or by a pattern
    (`*`, `h.1.*`)."""
    freeze: Literal["A"] | None = None
    """Matrix that is frozen. A: only B is trained and sent (FFA-LoRA), so that the mean of the products B A of several
    devices equals the product of the means. Null: both A and B are trained."""
    train: tuple[str, ...] = ()
    """Parameters that are trained and sent in addition to the adapters, for example those of a new output layer
    (`score.*`). They are given by name or pattern as in `targets`."""
    base: AnyBase = Float32()
    """How the frozen weights are stored, and whether they are sent to the devices."""

    def on(self, module: nn.Module) -> nn.Module:
        """Add adapters to `module` in place, and return it. PyTorch's global generator draws the initial A."""
        parameters, layers = dict(module.named_parameters()), dict(module.named_modules())
        dense = [name for name, layer in layers.items() if _is_dense(layer)]
        chosen = [layers[name] for name in _matches("targets", self.targets, dense, "dense layer")]
        own = _of_one_layer(module)
        module.requires_grad_(requires_grad=False)
        for name in _matches("train", self.train, list(parameters), "parameter"):
            parameters[name].requires_grad = True
        self.base.on(
            module, [own[name] for name in (f"{layer}.weight".removeprefix(".") for layer in dense) if name in own]
        )
        for layer in chosen:
            self._adapt(layer)
        return module

    def _adapt(self, layer: Any) -> None:
        weight = layer.weight
        n, m = weight.shape if _is_transposed(layer) else weight.shape[::-1]
        if hasattr(layer, "lora_A"):
            raise ScenarioError("model.adapters: a layer has an adapter, got another one for it; give a module without")
        bound = 1 / math.sqrt(n)
        layer.lora_A = nn.Parameter(weight.new_empty(self.rank, n).uniform_(-bound, bound), self.freeze != "A")
        layer.lora_B = nn.Parameter(weight.new_zeros(m, self.rank))
        layer.lora_scale = self.alpha / self.rank
        layer.register_forward_hook(_with_adapter)


def add_lora_adapters(
    module: nn.Module,
    rank: int = 8,
    *,
    targets: Iterable[str],
    alpha: float = 16,
    freeze: Literal["A"] | None = None,
    train: Iterable[str] = (),
    base: str | Mapping[str, Any] | Base = "float32",
) -> nn.Module:
    """Return a copy of a module with LoRA adapters. A run trains and sends only the adapters.

    A dense layer with weights W then uses W + (alpha / rank) B A, where A and B are the matrices of its adapter.

    Args:
        module: a module of your own, or of a library, with its weights.
        rank: rank of the product B A.
        targets: dense layers that get an adapter, by the last part of their name, their full name, or a pattern.
        alpha: numerator of the factor alpha / rank.
        freeze: "A" to train and send only B (FFA-LoRA); None to train both matrices.
        train: further parameters that are trained and sent, for example those of the output layer.
        base: storage of the frozen weights, such as `nf4` or `{"kind": "nf4", "ship": True}`.

    Raises:
        ValueError: a setting is out of range.
        ScenarioError: a name in `targets` or `train` matches nothing.
    """
    settings: dict[str, Any] = {"rank": rank, "alpha": alpha, "freeze": freeze, "base": base}
    own = Lora(targets=tuple(targets), train=tuple(train), **settings)
    return own.on(copy.deepcopy(module))


ADAPTERS: dict[str, type[Lora]] = kinds(Lora)
AnyAdapters = Annotated[Lora, Slot("adapters", ADAPTERS)]


def base_names(module: nn.Module) -> list[str]:
    """Return the names of the frozen weights of layers with adapters, except weights that another layer shares."""
    layers = {f"{name}.weight".removeprefix("."): layer for name, layer in module.named_modules()}
    own = _of_one_layer(module)
    return [name for name in own if hasattr(layers.get(name), "lora_A") and not own[name].requires_grad]


def shipped_bit(module: nn.Module) -> int:
    """Return the size in bits of the frozen weights that each device receives once; 0 if they are not sent."""
    return sum(getattr(part, "shipped_bit", 0) for part in module.modules())


def _of_one_layer(module: nn.Module) -> dict[str, nn.Parameter]:
    named = list(module.named_parameters(remove_duplicate=False))
    times = Counter(id(weight) for _, weight in named)
    return {name: weight for name, weight in named if times[id(weight)] == 1}


def product(layer: Any, b: Tensor, a: Tensor) -> Tensor:
    """Return the term, of the weights' shape, that factors B [m, rank] and A [rank, n] add to a layer's weights."""
    added: Tensor = layer.lora_scale * (b @ a)
    return added.T if _is_transposed(layer) else added


def drawn(rng: np.random.Generator, rank: int, n: int) -> NDArray[np.float64]:
    """Draw the initial matrix A [rank, n] of a LoRA adapter, uniformly between -1/sqrt(n) and 1/sqrt(n)."""
    return rng.uniform(-1, 1, (rank, n)) / math.sqrt(n)


def _with_adapter(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Add the adapter's output for the input [..., n] to the layer's output [..., m], as a forward hook of a layer."""
    added: Tensor = layer.lora_scale * linear(linear(inputs[0], layer.lora_A), layer.lora_B)
    return output + added


def _is_dense(layer: nn.Module) -> bool:
    """Return True for a dense layer that is called, which excludes those inside multi-head attention."""
    return type(layer) is nn.Linear or _is_transposed(layer)


def _is_transposed(layer: nn.Module) -> bool:
    """Return True for `Conv1D` of the library transformers, a dense layer whose weights are transposed, [n, m]."""
    return type(layer).__name__ == "Conv1D"


def _matches(key: str, wanted: Sequence[str], names: list[str], what: str) -> list[str]:
    """Return the entries of `names` that match a wanted name or pattern, in the order of `names`."""
    for one in wanted:
        if not any(_fits(one, name) for name in names):
            ends = ", ".join(dict.fromkeys(name.rpartition(".")[2] or name for name in names))
            problem = f"no {what} has such a name, got '{one}'"
            raise ScenarioError(f"model.adapters.{key}: {problem}; the last parts of their names are {ends or 'none'}")
    return [name for name in names if any(_fits(one, name) for one in wanted)]


def _fits(wanted: str, name: str) -> bool:
    return fnmatchcase(name, wanted) or fnmatchcase(name, f"*.{wanted}")

"""Positions of LoRA adapters in the flat vectors of a model, and the entries that a device with a lower rank stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.models.adapters import drawn, product
from fednet_emu.learning.models.flat import FlatModel


class Factors(NamedTuple):
    """The factors B [m, rank] and A [rank, n] of a layer's LoRA adapter. A multiple of B A is added to the weights."""

    b: Tensor
    a: Tensor


@final
@dataclass(frozen=True, eq=False)
class Part:
    """The entries of a flat vector that a device with a given adapter rank stores."""

    rank: int  # rank of the adapters on the device
    places: Tensor  # int64 [n], indices in the vector of the scalars of the part

    @property
    def size(self) -> int:
        return len(self.places)

    def take(self, vector: Tensor) -> Tensor:
        return vector[self.places.to(vector.device)]

    def only(self, vector: Tensor) -> Tensor:
        return self.padded(self.take(vector), len(vector))

    def padded(self, part: Tensor, size: int) -> Tensor:
        return part.new_zeros(size).index_copy(0, self.places.to(part.device), part)


@final
class Adapters:
    """Positions of all adapters, which have rank `rank`, in the flat vectors of a model.

    The methods extract and replace the adapters of a vector, and add their products to the weights of the layers. The
    mask `others` [size] is True for a parameter that belongs to no adapter.
    """

    def __init__(self, model: FlatModel) -> None:
        self._model, places = model, model.unflatten(torch.arange(model.size))
        self._layers = [name.removesuffix("lora_A") for name in places if name.endswith("lora_A")]
        self._places = [Factors(places[f"{layer}lora_B"], places[f"{layer}lora_A"]) for layer in self._layers]
        ranks = {its.a.shape[0] for its in self._places}
        if len(ranks) != 1:
            got = f"ranks {sorted(ranks)}" if ranks else "no A that is trained"
            raise ScenarioError(f"model: adapters of one rank are needed, got {got}; give the model LoRA adapters")
        self.rank = ranks.pop()
        self.others = torch.ones(model.size, dtype=torch.bool)
        for its in self._places:
            self.others[its.a], self.others[its.b] = False, False

    def part(self, rank: int) -> Part:
        """Return the entries of the vector that a device with adapters of rank `rank` stores.

        They are the first rows of each A, the first columns of each B, and all parameters that belong to no adapter.
        """
        has = torch.ones_like(self.others)
        for its in self._places:
            has[its.a[rank:]], has[its.b[:, rank:]] = False, False
        return Part(rank, has.nonzero().squeeze(1))

    def factors(self, vector: Tensor) -> list[Factors]:
        """Return copies of the factors of all adapters in a vector [size], in double precision."""
        return [Factors(vector[its.b].double(), vector[its.a].double()) for its in self._places]

    def drawn(self, vector: Tensor, streams: Streams, *name: Any) -> Tensor:
        """Return a copy of a vector [size] with new adapters: B is zero, A is drawn from the random stream `name`."""
        rng = streams(*name)
        new = [(vector.new_zeros(its.b.shape), torch.from_numpy(drawn(rng, *its.a.shape))) for its in self._places]
        return self.put(vector, [Factors(*its) for its in new])

    def without_b(self, vector: Tensor) -> Tensor:
        return self.put(vector, [Factors(torch.zeros_like(its.b), its.a) for its in self.factors(vector)])

    def base(self) -> Tensor:
        """Return the frozen weights [base_size] of the layers with adapters, as stored in the model.

        A `ScenarioError` is raised if such weights are trained, or are shared with another layer.
        """
        weights = self._model.base_weights()
        for name in (f"{layer}weight" for layer in self._layers):
            if name not in weights:
                problem = f"weights under adapters must be frozen, and of one layer alone, got {name}"
                raise ScenarioError(f"model: {problem}; leave it out of train, or its layer out of targets")
        return torch.cat([weight.reshape(-1) for weight in weights.values()])

    def grown(self, base: Tensor, factors: Sequence[Factors]) -> Tensor:
        """Return `base` [base_size] plus the product of the factors of each adapter.

        `factors` has one pair (B, A) for each adapter; their ranks may differ from those of the model.
        """
        after = base.to(torch.float64, copy=True)
        weights = self._model.base_weights(after)
        for name, layer, its in zip(self._layers, self._modules, factors, strict=True):
            weights[f"{name}weight"] += product(layer, *its)
        return after.to(base.dtype)

    @cached_property
    def _modules(self) -> list[nn.Module]:
        """The layers with adapters, which define the scale and the orientation of each adapter."""
        module = self._model.live().module
        return [module.get_submodule(name.removesuffix(".")) for name in self._layers]

    def put(self, vector: Tensor, factors: Sequence[Factors]) -> Tensor:
        """Return a copy of a vector [size] with other adapters. `factors` has a pair (B, A) for each adapter."""
        after = vector.clone()
        for places, its in zip(self._places, factors, strict=True):
            after[places.b], after[places.a] = its.b.to(vector), its.a.to(vector)
        return after

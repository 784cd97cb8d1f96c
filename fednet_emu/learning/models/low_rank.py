"""The adapters in the flat vectors of a model, and the part of them that a device of a lower rank has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.flat import FlatModel


class Factors(NamedTuple):
    """The adapter of a layer, with the product B A [m, n]."""

    b: Tensor
    a: Tensor


@final
@dataclass(frozen=True, eq=False)
class Part:
    """What a device of some rank has of a flat vector: the first rows of each A, the first columns of each B, the rest.

    Attributes:
        places: int64 [n], its places in the vector.
    """

    places: Tensor

    @property
    def size(self) -> int:
        """Number of scalars."""
        return len(self.places)

    def take(self, vector: Tensor) -> Tensor:
        """The part [n] of a vector [size]."""
        return vector[self.places.to(vector.device)]

    def padded(self, part: Tensor, size: int) -> Tensor:
        """A vector [size] with this part [n], and zeros elsewhere."""
        return part.new_zeros(size).index_copy(0, self.places.to(part.device), part)


@final
class Adapters:
    """Where the factors of all adapters are in the flat vectors of a model.

    Attributes:
        rank: the rank of the adapters.
        others: mask [size], True where a parameter belongs to no adapter.

    Raises:
        ScenarioError: the model has no adapters, none with both factors, or some of several ranks.
    """

    def __init__(self, model: FlatModel) -> None:
        places = model.unflatten(torch.arange(model.size))
        layers = [name.removesuffix("_A") for name in places if name.endswith("lora_A")]
        self._places = [Factors(places[f"{name}_B"], places[f"{name}_A"]) for name in layers]
        ranks = {its.a.shape[0] for its in self._places}
        if len(ranks) != 1:
            got = f"ranks {sorted(ranks)}" if ranks else "no A that is trained"
            raise ScenarioError(f"model: adapters of one rank are needed, got {got}; give the model LoRA adapters")
        self.rank = ranks.pop()
        self.others = torch.ones(model.size, dtype=torch.bool)
        for its in self._places:
            self.others[its.a], self.others[its.b] = False, False

    def part(self, rank: int) -> Part:
        """What a device of this rank has."""
        has = torch.ones(len(self.others), dtype=torch.bool)
        for its in self._places:
            has[its.a[rank:]], has[its.b[:, rank:]] = False, False
        return Part(has.nonzero().squeeze(1))

    def factors(self, vector: Tensor) -> list[Factors]:
        """The adapters in a vector [size], as copies in double precision."""
        return [Factors(vector[its.b].double(), vector[its.a].double()) for its in self._places]

    def put(self, vector: Tensor, factors: Sequence[Factors]) -> Tensor:
        """A copy of a vector [size] with other adapters."""
        after = vector.clone()
        for places, its in zip(self._places, factors, strict=True):
            after[places.b], after[places.a] = its.b.to(vector.dtype), its.a.to(vector.dtype)
        return after

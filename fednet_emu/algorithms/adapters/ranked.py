"""Rounds in which each device trains the server's LoRA adapters up to the rank of the device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Deferred, Device, Federation, Process
from fednet_emu.learning.models.low_rank import Adapters, Part


class Ranks(Synchronous):
    """A device of rank r trains the first r rows of each A, the first r columns of each B, and all other parameters.

    The device sends these parameters. The rows and columns above its rank stay zero.
    """

    uses = frozenset({"uplink-compression"})
    ranks: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1)
    """Adapter ranks that are assigned to devices; none may exceed the rank of the model's adapters."""
    rank_assignment: Literal["by-speed", "in-turn"] = "by-speed"
    """Assignment of the ranks to devices. by-speed: devices are sorted by speed into groups of equal size, and the
    slowest group has the lowest rank; in-turn: device 0 has the first rank, device 1 the second, and so on, cyclically.
    """

    def parts(self, fed: Federation, adapters: Adapters) -> list[Part]:
        if max(self.ranks) > adapters.rank:
            what = f"larger than that of the adapters, {adapters.rank}"
            raise ScenarioError(f"algorithm.ranks: {what}, got {max(self.ranks)}; give adapters of a larger rank")
        n, place = fed.n_devices, list(range(fed.n_devices))
        own = [self.ranks[k % len(self.ranks)] for k in place]
        if self.rank_assignment == "by-speed":
            ascending = sorted(self.ranks)
            for nth, k in enumerate(sorted(place, key=lambda k: fed.device(k).flop_per_s)):
                own[k] = ascending[nth * len(ascending) // n]
        part = {rank: adapters.part(rank) for rank in self.ranks}
        fed.links.statistics.update((its.size, fed.n_statistics) for its in part.values())
        return [part[rank] for rank in own]


class Ranked(Ranks):
    """An algorithm whose server has the full adapters, and sends each device the adapters up to the device's rank."""

    def run(self, fed: Federation) -> Process:
        adapters, w = Adapters(fed.task.model), fed.initial_model()
        parts = self.parts(fed, adapters)
        for t in fed.rounds():
            sent = {part: fed.defer(part.take, w, size=part.size) for part in dict.fromkeys(parts)}
            message = partial(own_message, parts, sent)
            arrived = yield from self.round(fed, t, message, self.client, parts, down=w.size)
            if arrived:
                own = [parts[k.index] for k in arrived.devices]
                weights = arrived.weights("samples")
                w = fed.defer(self.merged, adapters, w, own, arrived.models, weights, size=w.size)
            fed.end_of_round(w)

    def client(self, fed: Federation, k: Device, own: Deferred, t: int, parts: Sequence[Part]) -> Process:
        part, size = parts[k.index], fed.task.model.size
        trained = yield k.train(fed.defer(part.padded, own, size, size=size), self.plan, t)
        return fed.defer(part.take, trained.params, size=part.size)

    @abstractmethod
    def merged(
        self, adapters: Adapters, w: Tensor, parts: Sequence[Part], models: Sequence[Tensor], weights: Sequence[int]
    ) -> Tensor:
        """Return the model [P] after a round, from trained parameters and sample counts of at least one device."""


def own_message(keys: Sequence[Any], sent: Mapping[Any, Deferred], k: Device) -> Deferred:
    """Return the message for device `k`: the entry of `sent` with the key `keys[k.index]`."""
    return sent[keys[k.index]]

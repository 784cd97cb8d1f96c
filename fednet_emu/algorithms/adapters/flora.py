"""FLoRA: the products of all devices' adapters are added to the weights of everybody, without any error.

Wang, Shen, He, Sun, Wang, Lyu, Li: "FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous Low-Rank
Adaptations", NeurIPS 2024, https://arxiv.org/abs/2409.05976

The server stacks what has arrived, B = [B_1 .. B_K] and A = [p_1 A_1; ..; p_K A_K], so that B A = sum p_k B_k A_k for
any ranks. Each device adds (alpha / rank) B A to its own copy of the weights, and starts new adapters.

Differences from the paper: a device that was away is sent all stacks that it lacks when it takes part again. New
adapters have one A for all devices, of which each takes the rows up to its rank; it is drawn from a seed that all know,
and takes no bits. The factor alpha / rank is that of the model for all devices. What is trained beside adapters is
averaged, and sent in each round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.algorithms.adapters.ranked import Ranks
from fednet_emu.federation import Deferred, Device, Federation, Process, Reply
from fednet_emu.learning.models.low_rank import Adapters, Factors, Part


class Flora(Ranks):
    """The server stacks the adapters, which add to the weights without error and begin anew in each round."""

    kind = "flora"

    def run(self, fed: Federation) -> Process:
        """The server: send each device the stacks that it lacks, and make the next one of what arrives."""
        adapters, w, stacks = Adapters(fed.task.model), fed.initial_model(), Stacks(fed)
        base, parts = fed.graph.constant(adapters.base()), self.parts(fed, adapters)
        rest = adapters.part(0)
        down = rest.size + self.participants(len(parts)) * sum(part.size - rest.size for part in parts) // len(parts)
        for t in fed.rounds():
            start = {part: fed.defer(part.only, w) for part in dict.fromkeys(parts)}
            own = [(part, start[part]) for part in parts]
            message = stacks.message(fed.defer(rest.take, w, size=rest.size))
            arrived = yield from self.round(fed, t, message, self.client, own, base, stacks, down=down, up=w.size)
            if arrived:
                theirs = [parts[k.index] for k in arrived.devices]
                what = theirs, arrived.models, arrived.weights("samples")
                stack = fed.defer(stacked, adapters, *what, size=sum(part.size - rest.size for part in theirs))
                base = fed.defer(grown, adapters, base, [part.rank for part in theirs], stack)
                w = fed.defer(averaged, w, *what)
                stacks.add(stack)
            w = fed.defer(adapters.drawn, w, fed.streams, "adapters", t)
            fed.end_of_round(fed.defer(_joined, w, base, size=w.size + base.size))

    def client(
        self,
        fed: Federation,
        k: Device,
        _: Deferred,
        t: int,
        own: Sequence[tuple[Part, Deferred]],
        base: Deferred,
        stacks: Stacks,
    ) -> Process:
        """A device: add the stacks to its weights, which are those of the server then; train and send new adapters."""
        stacks.arrived(k)
        part, start = own[k.index]
        trained = yield k.train(start, self.plan, t, base=base)
        sent, since = (fed.defer(part.take, x, size=part.size) for x in (trained.params, start))
        return Reply(sent, since)


@final
class Stacks:
    """The stacks of all rounds that some device may lack, and how many each device has."""

    def __init__(self, fed: Federation) -> None:
        self._fed, self._count, self._stacks = fed, 0, dict[int, Deferred]()
        self._has = np.where(fed.task.n_samples > 0, 0, np.iinfo(np.int64).max)

    def add(self, stack: Deferred) -> None:
        """Add the stack of a round; those that everybody has are no longer needed."""
        self._stacks[self._count] = stack
        self._count += 1
        for place in [place for place in self._stacks if place < self._has.min()]:
            del self._stacks[place]

    def message(self, rest: Deferred) -> Callable[[Device], Deferred]:
        """What to send a device: the stacks that it lacks, and the rest; the same value to all that lack the same."""
        values: dict[int, Deferred] = {}

        def lacking(k: Device) -> Deferred:
            has = int(self._has[k.index])
            if has not in values:
                parts = [*(self._stacks[place] for place in range(has, self._count)), rest]
                values[has] = self._fed.defer(_joined, *parts, size=sum(part.size for part in parts))
            return values[has]

        return lacking

    def arrived(self, k: Device) -> None:
        """Note that a device has all stacks."""
        self._has[k.index] = self._count


def stacked(adapters: Adapters, parts: Sequence[Part], models: Sequence[Tensor], weights: Sequence[int]) -> Tensor:
    """The adapters of all devices one after the other, each A times the weight of its device, of a sum of 1.

    Args:
        adapters: the places of the adapters.
        parts: what each device has of the model.
        models: what they have made of that, each [the size of its part].
        weights: their numbers of samples.
    """
    bare = {part.rank: adapters.part(part.rank, adapters_alone=True) for part in parts}
    pieces = []
    for part, model, weight in zip(parts, models, weights, strict=True):
        whole, share = part.padded(model, len(adapters.others)), weight / sum(weights)
        weighted = adapters.put(whole, [Factors(its.b, share * its.a) for its in adapters.factors(whole)])
        pieces.append(bare[part.rank].take(weighted))
    return torch.cat(pieces)


def grown(adapters: Adapters, base: Tensor, ranks: Sequence[int], stack: Tensor) -> Tensor:
    """The base [base_size] with the product of the stack of devices of these ranks."""
    bare = {rank: adapters.part(rank, adapters_alone=True) for rank in ranks}
    pieces = torch.split(stack, [bare[rank].size for rank in ranks])
    size = len(adapters.others)
    whole = [bare[rank].padded(piece, size) for rank, piece in zip(ranks, pieces, strict=True)]
    layers = zip(*map(adapters.factors, whole), strict=True)
    return adapters.grown(
        base, [Factors(torch.cat([f.b for f in own], 1), torch.cat([f.a for f in own])) for own in layers]
    )


def averaged(w: Tensor, parts: Sequence[Part], models: Sequence[Tensor], weights: Sequence[int]) -> Tensor:
    """The mean [P] of models of parts, weighted; of use where everybody has all."""
    own = zip(weights, parts, models, strict=True)
    return w + sum(n / sum(weights) * (part.padded(model, len(w)) - w) for n, part, model in own)


def _joined(*parts: Tensor) -> Tensor:
    return torch.cat(parts)

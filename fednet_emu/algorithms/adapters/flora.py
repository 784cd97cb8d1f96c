"""FLoRA: each device adds the weighted sum of the products B_k A_k of all devices' adapters to its weights.

Wang, Shen, He, Sun, Wang, Lyu, Li: "FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous Low-Rank
Adaptations", NeurIPS 2024, https://arxiv.org/abs/2409.05976

The server stacks the received adapters, B = [B_1 .. B_K] and A = [p_1 A_1; ..; p_K A_K], so that B A = sum p_k B_k A_k
for any ranks. Each device adds (alpha / rank) B A to its own copy of the weights, and starts with new adapters.

Differences from the paper: a device that missed rounds receives all stacks that it lacks when it is invited again, or
the weights themselves if these have fewer scalars. New adapters have one A for all devices, of which each device takes
the rows up to its rank. A is drawn from a shared seed, so it is not transmitted. If the initial B is not zero, B A is
added to the weights before the first round. All devices use the factor alpha / rank of the global model. Trained
parameters outside adapters are averaged, and sent in each round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from fednet_emu.algorithms.adapters.ranked import Ranks, own_message
from fednet_emu.arrays import IntArray
from fednet_emu.component.component import Excludes
from fednet_emu.federation import Deferred, Device, Federation, Process, Reply
from fednet_emu.learning.models.low_rank import Adapters, Factors, Part


class Flora(Ranks):
    """The server stacks LoRA adapters; devices add the product of the stacks to their weights, then start new ones."""

    kind = "flora"
    excludes = (
        Excludes(
            "network.uplink.compression",
            attrgetter("feeds_back"),
            "adapters restart in each round, so the memory of earlier ones has no place",
            "give error_feedback: false",
            got="{value} with error feedback in {path}",
            key="kind",
        ),
    )

    def run(self, fed: Federation) -> Process:
        adapters, first = Adapters(fed.task.model), fed.initial_model()
        base = fed.defer(adapters.grown, fed.graph.constant(adapters.base()), fed.defer(adapters.factors, first))
        w, parts, rest = fed.defer(adapters.without_b, first), self.parts(fed, adapters), adapters.part(0)
        size, has = 0, np.zeros(fed.n_devices, np.int64)
        usual = self.participants(len(parts)) * sum(part.size - rest.size for part in parts) // len(parts)
        down = rest.size + min(usual, base.size)
        for t in fed.rounds():
            start = {part: fed.defer(part.only, w) for part in dict.fromkeys(parts)}
            own = [(part, start[part]) for part in parts]
            lacks = np.minimum(size - has, base.size).tolist()
            # the message has the size of the stacks but not their values, because devices train on the server's base
            # weights
            sent = {n: fed.defer(rest.take, w, size=rest.size + n) for n in dict.fromkeys(lacks)}
            message = partial(own_message, lacks, sent)
            arrived = yield from self.round(fed, t, message, self.client, own, base, has, size, down=down, up=w.size)
            if arrived:
                theirs = [parts[k.index] for k in arrived.devices]
                what = theirs, arrived.models, arrived.weights("samples")
                base = fed.defer(grown, adapters, base, *what)
                w = fed.defer(adapters.drawn, fed.defer(averaged, w, *what), fed.streams, "adapters", t)
                size += sum(part.size - rest.size for part in theirs)
            fed.end_of_round(fed.defer(torch.cat, [w, base], size=w.size + base.size))

    def client(
        self,
        fed: Federation,
        k: Device,
        _: Deferred,
        t: int,
        own: Sequence[tuple[Part, Deferred]],
        base: Deferred,
        has: IntArray,
        size: int,
    ) -> Process:
        """Process of device `k`: add the received stacks to the weights, train new adapters, and send the adapters.

        For each device, `own` contains the selection of adapter rows and parameters that the device trains, and their
        values. `base` contains the server's weights, which equal the device's weights. `has` [devices] contains the
        number of stack scalars sent to each device, and `size` is the number of scalars in all stacks so far.
        """
        has[k.index] = size
        part, start = own[k.index]
        trained = yield k.train(start, self.plan, t, base=base)
        sent, since = (fed.defer(part.take, x, size=part.size) for x in (trained.params, start))
        return Reply(sent, since)


def grown(
    adapters: Adapters, base: Tensor, parts: Sequence[Part], models: Sequence[Tensor], weights: Sequence[int]
) -> Tensor:
    """Return the weights `base` [base_size] plus the weighted sum of the products B A of all devices' adapters.

    The parameters that a device trains are described by `parts`, and their values are in `models`, with one entry per
    device. The `weights` are normalised to a sum of 1.
    """
    whole = (part.padded(model, len(adapters.others)) for part, model in zip(parts, models, strict=True))
    share = [weight / sum(weights) for weight in weights]
    layers = zip(*map(adapters.factors, whole), strict=True)
    return adapters.grown(
        base,
        [
            Factors(torch.cat([f.b for f in own], 1), torch.cat([p * f.a for p, f in zip(share, own, strict=True)]))
            for own in layers
        ],
    )


def averaged(w: Tensor, parts: Sequence[Part], models: Sequence[Tensor], weights: Sequence[int]) -> Tensor:
    """Return the weighted mean [P] of the devices' models; only parameters that all devices train are meaningful."""
    own = zip(weights, parts, models, strict=True)
    return w + sum(n / sum(weights) * (part.padded(model, len(w)) - w) for n, part, model in own)

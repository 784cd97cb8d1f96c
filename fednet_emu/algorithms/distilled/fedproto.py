"""FedProto: devices exchange prototypes, which are the mean features of their classes, instead of models.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: "FedProto: Federated Prototype Learning across Heterogeneous Clients",
AAAI 2022, https://arxiv.org/abs/2105.00243

Method: a device minimises f + `pull` times the mean over classes of norm(own - global prototype)^2, where its own
prototype of a class is the mean of that class's features in the batch. A device sends the prototypes of its classes
over all its samples. The server averages the prototypes of each class.

Differences from the paper: all models have one architecture and the same initial values. In the mean of a class, a
device is weighted by its number of samples of that class. The server sends the prototypes of the classes that it has
received; in the first round it sends none. A class without a new prototype keeps its old prototype. The features are
the input of the last layer with parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.distilled.public import check_classifier
from fednet_emu.federation import Deferred, Device, Federation, Process, Work, computes_only
from fednet_emu.learning.models.evaluate import outputs_of
from fednet_emu.learning.models.features import Featured, with_features


class Prototypes(NamedTuple):
    """The global prototypes (mean features) of some classes, in the order of `classes`."""

    values: Deferred | None = None  # [classes, d] prototypes, deferred; None without any prototypes
    classes: tuple[int, ...] = ()


class FedProto(Synchronous):
    """Each device keeps its own model, and sends only the mean features of each of its classes."""

    kind = "fedproto"
    exchanges_models = False
    uses = frozenset()
    pull: float = Field(1.0, ge=0)
    """Factor of the loss term that keeps features near the global prototypes (lambda)."""

    def events(self, n_samples: int | None) -> int:
        return 4

    def run(self, fed: Federation) -> Process:
        check_classifier(fed, self.kind)
        featured, known = with_features(fed.task.model, fed.task.outputs), Prototypes()
        loss, own = PrototypeLoss(self.pull, featured.outputs), [fed.initial_model()] * fed.n_devices
        counts = [self.counts(fed, k, featured.outputs) for k in fed.devices()]
        for t in fed.rounds():
            clients = (known.classes, own, counts, featured, loss)
            arrived = yield from self.round(
                fed, t, known.values, self.client, *clients, down=featured.outputs * featured.size
            )
            theirs = [counts[k.index] for k in arrived.devices]
            classes = tuple(sorted({*known.classes, *(c for count in theirs for c in count)}))
            if arrived:
                made = (known.classes, arrived.models, theirs, classes)
                known = Prototypes(fed.defer(merged, known.values, *made, size=len(classes) * featured.size), classes)
            fed.end_of_round(list(own))

    @computes_only
    def client(
        self,
        fed: Federation,
        k: Device,
        prototypes: Deferred | None,
        t: int,
        classes: tuple[int, ...],
        own: list[Deferred],
        counts: Sequence[dict[int, int]],
        featured: Featured,
        loss: PrototypeLoss,
    ) -> Process:
        mine, w, y, n = fed.task.slice_of(k.index), own[k.index], self.labels(fed, k), k.n_samples
        if prototypes is None:
            trained = yield k.train(w, self.plan, t)
        else:
            wanted = fed.defer(targets, prototypes, classes, y, featured.outputs, size=n * (1 + featured.size))
            trained = yield k.train(w, self.plan, t, model=featured.model, loss=loss, targets=wanted)
        own[k.index] = trained.params
        size = len(counts[k.index]) * featured.size
        values = fed.defer(class_means, featured, trained.params, fed.task.data.x[mine], y, size=size)
        flop = featured.model.forward_flop_per_sample * n
        return (yield k.compute(Work(flop, values, trained.params.number, values.number)))

    def labels(self, fed: Federation, k: Device) -> Tensor:
        return fed.task.data.y[fed.task.slice_of(k.index)]

    def counts(self, fed: Federation, k: Device, classes: int) -> dict[int, int]:
        """Return the number of samples of each class on device `k`, by ascending class, as known to the server."""
        counted = torch.bincount(self.labels(fed, k), minlength=classes).tolist()
        return {c: count for c, count in enumerate(counted) if count}


@dataclass(frozen=True)
class PrototypeLoss:
    """Loss function: the cross-entropy of each sample [B], plus the prototype term of the whole batch."""

    pull: float  # factor of the prototype term (lambda)
    outputs: int  # number of classes

    def __call__(self, told: Tensor, wanted: Tensor) -> Tensor:
        """Return the loss [B] of a batch.

        `told` [B, classes + d] contains the class scores and the features of each sample, `wanted` [B, 1 + d] the class
        and the global prototype of this class.
        """
        scores, features = told[:, : self.outputs], told[:, self.outputs :]
        labels, goals = wanted[:, 0].long(), wanted[:, 1:]
        known = ~goals.isnan().any(1)
        member = one_hot(labels, self.outputs).to(features) * known[:, None]
        count = member.sum(0)
        apart = member.T @ torch.where(known[:, None], features - goals, 0.0) / count.clamp(min=1)[:, None]
        term = apart.square().sum() / (count > 0).sum().clamp(min=1)
        return cross_entropy(scores, labels, reduction="none") + self.pull * term


def targets(prototypes: Tensor, classes: Sequence[int], y: Tensor, outputs: int) -> Tensor:
    """Return, for each sample, its class and the prototype of this class [n, 1 + d]; nan for an unknown prototype.

    `prototypes` [classes, d] contains the prototypes of `classes`, `y` [n] the class of each sample, and `outputs` is
    the total number of classes.
    """
    table = prototypes.new_full((outputs, prototypes.shape[1]), torch.nan)
    table[list(classes)] = prototypes
    return torch.cat([y[:, None].to(table), table[y]], 1)


def class_means(featured: Featured, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the mean features [classes, d] of the classes in `y` [n], ascending, by model `w` on samples `x`."""
    features = outputs_of(featured.model, w, x)[:, featured.outputs :]
    return torch.stack([features[y == c].mean(0) for c in sorted(set(y.tolist()))])


def merged(
    before: Tensor | None,
    known: Sequence[int],
    sent: Sequence[Tensor],
    counts: Sequence[dict[int, int]],
    classes: Sequence[int],
) -> Tensor:
    """Return the new global prototypes [classes, d] of `classes`.

    `before` contains the old prototypes of the classes `known`; a class without a new prototype keeps its old
    prototype. `sent` contains the prototypes that each device has sent, one row per class of the device; `counts`
    contains the number of samples of each of these devices by class.
    """
    parts: dict[int, list[tuple[int, Tensor]]] = {c: [] for c in classes}
    for own, has in zip(sent, counts, strict=True):
        for row, (c, n) in zip(own, has.items(), strict=True):
            parts[c].append((n, row))

    def mean(c: int) -> Tensor:
        if not parts[c]:
            assert before is not None
            return before[known.index(c)]
        return torch.stack([n * row for n, row in parts[c]]).sum(0) / sum(n for n, _ in parts[c])

    return torch.stack([mean(c) for c in classes])

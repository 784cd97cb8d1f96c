"""IFCA: the server keeps several models, and every device trains the one with the smallest loss on its samples.

Ghosh, Chung, Yin, Ramchandran: "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020,
https://arxiv.org/abs/2006.04088, Algorithm 1 with model averaging (option II)

Differences from the paper: a device compares the losses of the models on all its samples. The first model is
initialised as usual; each further model is a copy of the first with the entries of each parameter shuffled, not an
independent initialisation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.clustered.clusters import record_clusters
from fednet_emu.federation import Accumulation, Deferred, Device, Federation, Process, Reply, Streams, computes_only
from fednet_emu.learning.models.evaluate import score_samples
from fednet_emu.learning.models.flat import FlatModel


class Ifca(Synchronous):
    """A cohort receives all models; each device trains the model with the lowest loss, and sends model and index."""

    uses = frozenset({"uplink-compression", "plans"})
    clusters: int = Field(gt=0)
    """Number of models, one per cluster."""
    record_every: int = Field(10, gt=0)
    """Number of rounds between two records of the models that devices choose."""

    def run(self, fed: Federation) -> Process:
        w, model = fed.initial_model(), fed.task.model
        others = (fed.defer(shuffled, model, w, fed.streams, j) for j in range(1, self.clusters))
        models = (w, *others)
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, (models,), self.client, up=w.size + 1)
            if arrived:
                chosen, trained = arrived.part(0), arrived.part(1)
                models = tuple(fed.accumulate(averaged, trained, w_j, j, chosen) for j, w_j in enumerate(models))
            choices = [self.choice(fed, k, models) for k in fed.devices()]
            fed.end_of_round([fed.defer(picked, choice, models, size=w.size) for choice in choices])
            if fed.round % self.record_every == 0 and not fed.timing_only:
                able = [k.index for k in fed.devices() if k.n_samples]
                record_clusters(fed, able, [fed.read(choices[index]) for index in able])

    @computes_only
    def client(self, fed: Federation, k: Device, models: tuple[Deferred, ...], t: int) -> Process:
        scores = yield k.evaluate(models)
        choice = fed.defer(lowest, [score.loss for score in scores], size=1)
        start = fed.defer(picked, choice, models, size=models[0].size)
        trained = yield k.train(start, self.plan, t)
        return Reply((choice, trained.params), since=(None, start))

    def choice(self, fed: Federation, k: Device, models: tuple[Deferred, ...]) -> Deferred:
        """Return the index (deferred) of the model with the smallest loss on the samples of device `k`."""
        rows, data = fed.task.slice_of(k.index), fed.task.data
        return fed.defer(best, fed.task.model, models, data.x[rows], data.y[rows], size=1)


def lowest(losses: Sequence[float]) -> int:
    """Return the index of the smallest of the `losses`, ignoring nan; 0 if all losses are nan."""
    return int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))


def best(model: FlatModel, vectors: Sequence[Tensor], x: Tensor, y: Tensor) -> int:
    """Return the index of the model with the smallest mean loss on samples `x` [n, ...], `y` [n]; 0 if n = 0."""
    if not len(y):
        return 0
    return lowest([score_samples(model, vector, x, y).pooled().loss for vector in vectors])


def picked(choice: int, vectors: Sequence[Tensor]) -> Tensor:
    """Return the vector [P] with the index `choice`."""
    return vectors[choice]


def averaged(w: Tensor, number: int, choices: Sequence[int]) -> Accumulation:
    """Return the mean [P] of the models from devices that chose index `number`; `w` [P] if no device chose it."""
    update, share = torch.zeros_like(w), 1 / max(choices.count(number), 1)
    for choice in choices:
        w_k = yield
        if choice == number:
            update.add_(w_k - w, alpha=share)
    return w + update if number in choices else w


def shuffled(model: FlatModel, w: Tensor, streams: Streams, j: int) -> Tensor:
    """Return `w` [P] with the entries of each parameter in random order; running statistics keep their order."""
    rng = streams("ifca", j)
    sizes = [piece.numel() for piece in model.pieces(w)]
    mixed = [piece[torch.from_numpy(rng.permutation(len(piece)))] for piece in torch.split(w, sizes)]
    return torch.cat([torch.cat(mixed)[: model.n_trainable], w[model.n_trainable :]])

"""CFL: federated averaging that splits a cluster of clients in two if their updates have different directions.

Sattler, Müller, Samek: "Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization under Privacy
Constraints", IEEE TNNLS 2021, https://arxiv.org/abs/1910.01991, Algorithms 1 (bipartition) and 5

Differences from the paper: a cluster is split only in a round in which the updates of all its members arrive, because
the split needs the similarities between all of them. The paper's second condition for a split (with the parameter
gamma) is left out, and the models before each split are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.clustered.clusters import record_clusters
from fednet_emu.arrays import Mask
from fednet_emu.federation import Deferred, Device, Federation, LocalStep, Process, accumulated, average

Cluster = tuple[int, ...]
"""A cluster: the indices of its devices, in ascending order."""


class Cfl(Synchronous):
    """Each cluster trains one model, and is split if its mean update is small but one member's update is large."""

    uses = frozenset({"uplink-compression", "plans"})
    stationary: float = Field(gt=0)
    """Maximum norm of a cluster's mean update at which the cluster counts as stationary (epsilon_1). Only stationary
    clusters are split."""
    split: float = Field(gt=0)
    """Threshold epsilon_2: a cluster is split only if the largest update norm of its members exceeds this value."""
    record_every: int = Field(10, gt=0)
    """Number of rounds between two records of the clusters in the series `clusters` and `agreement`."""

    events_depend_on_learning: ClassVar[bool] = True

    def run(self, fed: Federation) -> Process:
        w = fed.initial_model()
        models: dict[Cluster, Deferred] = {tuple(k.index for k in fed.devices() if k.n_samples): w}
        own = [w] * fed.n_devices
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, lambda k, own=own: own[k.index], self.client)
            came = dict(arrived)
            models = dict(part for old, w_old in models.items() for part in self.after(fed, old, w_old, came))
            given = {device: w_c for cluster, w_c in models.items() for device in cluster}
            own = [given.get(k.index, w) for k in fed.devices()]
            fed.end_of_round(own)
            if fed.round % self.record_every == 0:
                _record(fed, list(models))

    @property
    def client(self) -> LocalStep:
        return LocalStep(self.plan)

    def after(
        self, fed: Federation, cluster: Cluster, w: Deferred, arrived: dict[Device, Deferred]
    ) -> list[tuple[Cluster, Deferred]]:
        """Return the cluster with its new model; if the cluster is split, return both halves with this model."""
        came = [k for k in arrived if k.index in cluster]
        if not came:
            return [(cluster, w)]
        params, weights, n = [arrived[k] for k in came], [k.n_samples for k in came], fed.task.model.n_trainable
        if len(came) < len(cluster) or len(cluster) < 2:
            return [(cluster, fed.accumulate(average, params, w, weights))]
        new = fed.defer(mean_of, w, params, weights)  # needs all models at once, to compare them with each other
        mean, longest = fed.read(fed.defer(lengths, w, params, weights, n, size=2), (np.inf, 0.0))
        fed.record("updates", first=cluster[0], members=len(cluster), mean=mean, longest=longest)
        if not (mean < self.stationary and longest > self.split):
            return [(cluster, new)]
        second = fed.read(fed.defer(halves, w, params, n, size=len(came)))
        parts = [tuple(d for d, other in zip(cluster, second, strict=True) if other == half) for half in (False, True)]
        return [(part, new) for part in parts]


def mean_of(w: Tensor, arrived: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted mean [P] of the models `arrived`, each [P], as `w` plus the weighted mean of the updates."""
    mean: Tensor = accumulated(average(w, weights), arrived)
    return mean


def lengths(
    w: Tensor, arrived: Sequence[Tensor], weights: Sequence[float], n: int | None = None
) -> tuple[float, float]:
    """Return the norm of the weighted mean of the updates `arrived` - `w`, each [P], and the maximum norm of an update.

    Only the first `n` entries of an update (without running statistics) are used, or all entries if `n` is None.
    """
    w, arrived = w[:n], [w_k[:n] for w_k in arrived]
    return float((mean_of(w, arrived, weights) - w).norm()), max(float((w_k - w).norm()) for w_k in arrived)


def halves(w: Tensor, arrived: Sequence[Tensor], n: int | None = None) -> Mask:
    """Split the updates in two so that the largest similarity between the halves is as small as possible.

    The updates are the models `arrived` minus `w`, each [P]. The returned mask [models] is True for the second half.
    The similarity of two updates is the cosine of their first `n` entries, or of all entries if `n` is None.
    Single-linkage clustering (merge the two most similar groups until two are left) finds the optimal bipartition.
    """
    from scipy.cluster.hierarchy import linkage, to_tree
    from scipy.spatial.distance import squareform

    updates = torch.stack([w_k[:n] - w[:n] for w_k in arrived]).double()
    unit = updates / updates.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    distance = (1.0 - unit @ unit.T).clamp_min(0.0).cpu().numpy()
    np.fill_diagonal(distance, 0.0)
    merged_last = to_tree(linkage(squareform(distance, checks=False), "single"))
    half = np.isin(np.arange(len(unit)), merged_last.get_left().pre_order())
    return np.asarray(half != half[0])


def _record(fed: Federation, clusters: list[Cluster]) -> None:
    found = {device: number for number, cluster in enumerate(clusters) for device in cluster}
    devices = sorted(found)
    record_clusters(fed, devices, [found[device] for device in devices])

"""Connectivity-aware semi-decentralised federated learning over time-varying directed device-to-device clusters.

Parasnis, Hosseinalipour, Chu, Chiang, Brinton: "Connectivity-Aware Semi-Decentralized Federated Learning over
Time-Varying D2D Networks", MobiHoc 2023, https://arxiv.org/abs/2303.08988

Symbols: eta is `lr`, T is `local_steps`.

Differences from the paper: uploads are weighted by cluster (`stratified`), which alone among the three normalisations
is unbiased if m n_l / n is not an integer. The default bound on the connectivity factor is derived here, because the
published bounds are on phi + 1 or have a singularity (see `connectivity_bounds.py`). Out-degrees count only received
models, so that the columns of the mixing matrix sum to 1 even under losses. The access point of a cluster is its device
with the most neighbours. Devices without samples are left out. If there is a deadline, all updates of a late cluster
are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.d2d import connectivity_bounds as theory
from fednet_emu.algorithms.d2d.round import ClusterRound, ClusterRounds, ClusterTraining, edges_of, stepped
from fednet_emu.arrays import Array, IntArray
from fednet_emu.federation import CohortSize, Digraph, Federation, Process, Streams, cohort_size


class ConnectivityAware(ClusterTraining):
    """Devices mix updates within their clusters; the server invites as few devices to upload as `phi_max` allows.

    The scenario needs `network.sidelink.topology`, which determines the links of each round.
    """

    phi_max: float = Field(ge=0)
    """Maximum connectivity factor of the network: the server samples the smallest number m of n devices for which (n /
    m - 1) times the mean over clusters of psi_l (see `psi`) is at most this maximum. 0 samples all devices."""
    psi: Literal["exact", "safe", "seed1m", "seed2p", "seed1_printed", "seed2_printed"] = "safe"
    """How the server computes psi_l, its estimate of the connectivity factor phi_l of cluster l. exact: from the
    singular values of the cluster's mixing matrix; any other value: an upper bound from the degrees of the cluster's
    devices. If a bound is not valid for a cluster, `safe` is used."""
    normalisation: Literal["paper", "count", "stratified"] = "stratified"
    """Weight of an upload. paper: 1/m for m sampled devices; count: 1 / (number of uploads that arrived); stratified:
    n_l / n divided by the number of uploads of the cluster, where n_l of the n devices are in the cluster."""
    cohort: CohortSize | None = None
    """Devices sampled in the first round (m(0)), in which the server has not received any degrees yet: an int is the
    number of devices, a float is the share of all devices; null samples all devices."""
    retries: int = Field(3, ge=0)
    """Maximum number of times that a lost upload or control message is sent again."""
    snapshot_every: int | None = Field(None, gt=0)
    """Number of rounds between two records of positions, senders and receivers, for plots; null for no records."""

    def run(self, fed: Federation) -> Process:
        n = fed.n_trainers
        x, m = fed.initial_model(), min(cohort_size(self.cohort or 1.0, fed.n_devices), n)
        for t in fed.rounds():
            choose = partial(sampled, m=m, streams=fed.streams, t=t)
            graph, chosen, done = yield from self.clusters(fed, t, x, choose, ClusterRounds.play, self.retries)
            x = stepped(fed, x, done, weights(self.normalisation, m, graph.sizes, done))
            heard = edges_of(graph, done)
            phi = theory.factors(heard)
            psi = phi if self.psi == "exact" else theory.guarded(theory.Degrees.of(heard), self.psi)
            mean_phi, mean_psi = (theory.mean_factor(heard.sizes, factors) for factors in (phi, psi))
            invited, arrived = sum(map(len, chosen)), sum(len(cluster.uploads) for cluster in done)
            fed.record(
                "connectivity",
                m=m,
                sampled=invited,
                uploads=arrived,
                clusters=len(heard.sizes),
                d2d_senders=sum(cluster.senders for cluster in done),
                d2d_receptions=len(heard.sender),
                control_bit=sum(cluster.control_bit for cluster in done),
                mean_phi=mean_phi,
                mean_psi=mean_psi,
                phi=theory.network_factor(n, m, mean_phi),
                psi=theory.network_factor(n, m, mean_psi),
                phi_max=self.phi_max,
                worst_column=max(cluster.imbalance for cluster in done),
            )
            if self.snapshot_every is not None and fed.round % self.snapshot_every == 0:
                snapshot(fed, heard, chosen)
            m = theory.devices_needed(n, theory.mean_factor(graph.sizes, known(psi, done)), self.phi_max)
            fed.end_of_round(x, invited=invited, arrived=arrived)


def sampled(graph: Digraph, m: int, streams: Streams, t: int) -> list[list[int]]:
    """Draw ceil(m n_l / n) of the n_l of n devices in each cluster l uniformly; return ascending indices by cluster."""
    draw = streams("sample", t).random(graph.n_devices)
    shares = theory.shares_of(m, graph.sizes).tolist()
    return [
        np.sort(members[np.argsort(draw[members], kind="stable")[:share]]).tolist()
        for members, share in zip(graph.members, shares, strict=True)
    ]


def weights(normalisation: str, m: int, sizes: IntArray, done: Sequence[ClusterRound]) -> list[float]:
    """Return the weight of each upload, by cluster; if stratified, a cluster's weights sum to its share of devices."""
    arrived, n = [len(cluster.uploads) for cluster in done], int(sizes.sum())
    if normalisation == "stratified":
        return [size / (n * count) for size, count in zip(sizes.tolist(), arrived, strict=True) for _ in range(count)]
    total = m if normalisation == "paper" else sum(arrived)
    return [1.0 / total for _ in range(sum(arrived))]


def known(psi: Array, done: Sequence[ClusterRound]) -> Array:
    """Return the factors `psi` [clusters], set to infinity for clusters whose degrees did not reach the server."""
    return np.where([cluster.told for cluster in done], psi, np.inf)


def snapshot(fed: Federation, heard: Digraph, chosen: Sequence[Sequence[int]]) -> None:
    """Record the devices of each cluster in this round, their positions in m, and the edges of the mixing matrix."""
    xy_m, cluster_of = fed.network.positions_m(), heard.cluster[heard.sender]
    for cluster, members in enumerate(heard.members):
        mine = cluster_of == cluster
        fed.record(
            "d2d_clusters",
            cluster=cluster,
            devices=members.tolist(),
            x_m=xy_m[members, 0].tolist(),
            y_m=xy_m[members, 1].tolist(),
            sampled=list(chosen[cluster]),
            sender=heard.sender[mine].tolist(),
            receiver=heard.receiver[mine].tolist(),
        )

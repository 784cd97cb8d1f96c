"""Stochastic gradient push (SGP): gradient descent by push-sum over directed graphs.

Assran, Loizou, Ballas, Rabbat: "Stochastic Gradient Push for Distributed Deep Learning", ICML 2019,
https://arxiv.org/abs/1811.10792, Algorithm 1; push-sum: Kempe, Dobra, Gehrke, FOCS 2003.

    (x, omega) <- P (x - eta g(z), omega),  z = x / omega,

where column j of P holds 1 / (1 + out-degree of j) for j and each of its receivers: each sender knows its column. Here
a device keeps z instead of x, which is the same: z_j - eta g / omega_j is mixed with weights p_ij omega_j / omega_i,
whose rows sum to 1. A message is a model and its weight, P + 1 numbers.

Differences from the paper: the graph is the topology's of the round; a share that was not acknowledged stays with its
sender, so that the sum of omega is conserved; all devices wait for the end of a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fednet_emu.algorithms.decentralised.rounds import Mixing
from fednet_emu.arrays import Array
from fednet_emu.federation import Deferred, Device, Digraph, Federation


class Sgp(Mixing):
    """Every device pushes equal shares of its model and its weight along all edges, including one-way edges.

    The models that are evaluated are the ratios z.
    """

    extra_scalars: ClassVar[int] = 1

    def links(self, fed: Federation, graph: Digraph, t: int) -> Digraph:
        return graph

    def usable(self, heard: Digraph) -> Digraph:
        return heard

    def step(self, fed: Federation, k: Device, x: Deferred, trained: Deferred) -> Deferred:
        """The local steps, taken at the ratio, are made by the numerator: they count by 1 / omega in the ratio."""
        return fed.defer(moved_part, x, trained, float(1.0 / omega_of(fed)[k.index]), fed.n_statistics)

    def weights(self, fed: Federation, graph: Digraph, used: Digraph) -> tuple[Array, Mapping[str, float]]:
        """p_ij omega_j / omega_i with the new omega_i; `mass` is the mean of all omega."""
        before = omega_of(fed)
        given, after = pushed(before, graph, used)
        before[:] = after
        return given / after[used.receiver], {"mass": float(after.mean()), "least_weight": float(after.min())}


def moved_part(x: Tensor, trained: Tensor, part: float, statistics: int) -> Tensor:
    """The model x [P], a part of the way to `trained`; its last `statistics` entries, running statistics, all of it."""
    n = len(x) - statistics
    return (
        torch.cat([torch.lerp(x[:n], trained[:n], part), trained[n:]]) if statistics else torch.lerp(x, trained, part)
    )


def omega_of(fed: Federation) -> Array:
    """The push-sum weights [devices] of a run, all 1 in the beginning."""
    return np.asarray(fed.memory.setdefault("omega", np.ones(fed.n_devices)))


def pushed(omega: Array, graph: Digraph, used: Digraph) -> tuple[Array, Array]:
    """The part of omega [devices] on each used edge [used edges], and omega after the round [devices].

    A sender offers 1 / (1 + out-degree) to each receiver in `graph`, and keeps the shares of unused edges.
    """
    given = omega[used.sender] / graph.out_degree[used.sender]
    count = len(omega)
    return given, omega - np.bincount(used.sender, given, count) + np.bincount(used.receiver, given, count)

"""Stochastic gradient push (SGP): gradient descent with push-sum averaging over directed graphs.

Assran, Loizou, Ballas, Rabbat: "Stochastic Gradient Push for Distributed Deep Learning", ICML 2019,
https://arxiv.org/abs/1811.10792, Algorithm 1; push-sum: Kempe, Dobra, Gehrke, FOCS 2003.

    (x, omega) <- P (x - eta g(z), omega),  z = x / omega,

where x is the model, omega its push-sum weight, and g the gradient at the ratio z. Column j of P contains 1 / (1 +
out-degree of j) for j and each of its receivers, so that each sender knows its own column. Here a device keeps z
instead of x, which is equivalent: z_j - eta g / omega_j is mixed with the weights p_ij omega_j / omega_i, whose rows
sum to 1. A message contains a model and its push-sum weight: one scalar more than the model.

Differences from the paper: the graph is that of the topology in each round. A share that was not acknowledged stays
with its sender, so that the sum of omega is conserved. All devices wait for the end of a round.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fednet_emu.algorithms.decentralised.rounds import Mixing
from fednet_emu.arrays import Array
from fednet_emu.federation import Deferred, Device, Digraph, Federation


class Sgp(Mixing):
    """Every device sends equal shares of its model and of its push-sum weight over all edges, even one-way edges.

    The evaluated models are the ratios z of model and weight.
    """

    extra_scalars = 1

    def links(self, fed: Federation, graph: Digraph, t: int) -> Digraph:
        return graph

    def usable(self, heard: Digraph) -> Digraph:
        return heard

    def step(self, fed: Federation, k: Device, x: Deferred, trained: Deferred) -> Deferred:
        """Return the ratio z = x / omega after local steps.

        Here x is the model and omega its push-sum weight. The steps change x, so z changes by the change of x divided
        by omega.
        """
        return fed.defer(moved_part, x, trained, float(1.0 / omega_of(fed)[k.index]), fed.n_statistics)

    def weights(self, fed: Federation, graph: Digraph, used: Digraph) -> tuple[Array, Mapping[str, float]]:
        """Return the mixing weights p_ij omega_j / omega_i; omega_i is the push-sum weight after the round."""
        before = omega_of(fed)
        given, after = pushed(before, graph, used)
        before[:] = after
        return given / after[used.receiver], {"mass": float(after.mean()), "min_weight": float(after.min())}


def moved_part(x: Tensor, trained: Tensor, part: float, statistics: int) -> Tensor:
    """Return `x` [P] moved towards `trained` [P] by the fraction `part`; running statistics are those of `trained`."""
    n = len(x) - statistics
    return (
        torch.cat([torch.lerp(x[:n], trained[:n], part), trained[n:]]) if statistics else torch.lerp(x, trained, part)
    )


def omega_of(fed: Federation) -> Array:
    """Return the push-sum weights omega [devices] of a run, which are initially all 1."""
    return np.asarray(fed.memory.setdefault("omega", np.ones(fed.n_devices)))


def pushed(omega: Array, graph: Digraph, used: Digraph) -> tuple[Array, Array]:
    """Return the share of `omega` [devices] sent over each used edge [edges], and omega [devices] after the round.

    omega are the push-sum weights. A sender offers 1 / (1 + out-degree) of its omega to each receiver in `graph`, and
    keeps the shares of unused edges.
    """
    given = omega[used.sender] / graph.out_degree[used.sender]
    count = len(omega)
    return given, omega - np.bincount(used.sender, given, count) + np.bincount(used.receiver, given, count)

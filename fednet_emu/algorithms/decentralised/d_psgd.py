"""Decentralised parallel stochastic gradient descent (D-PSGD).

Lian, Zhang, Zhang, Hsieh, Zhang, Liu: "Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for
Decentralized Parallel Stochastic Gradient Descent", NeurIPS 2017, https://arxiv.org/abs/1705.09056, Algorithm 1:
X <- W X - eta G(X), with a symmetric, doubly stochastic W.

Differences from the paper: W has Metropolis weights, w_ij = 1 / (1 + max(d_i, d_j)), for any graph; each model carries
its sender's degree d_i. The graph may change from round to round, and messages may be lost. All devices wait for the
end of a round, not for their neighbours alone. By default local steps come before mixing, W (X - eta G(X)).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from fednet_emu.algorithms.decentralised.rounds import Mixing, imbalance
from fednet_emu.arrays import Array
from fednet_emu.federation import Digraph, Federation


class DPsgd(Mixing):
    """Every device averages with all its neighbours in every round, with Metropolis weights.

    Only edges with an opposite are used.
    """

    kind = "d-psgd"
    order: Literal["adapt-then-combine", "paper"] = "adapt-then-combine"
    """`adapt-then-combine`: a device sends its model after its local steps. `paper`: it sends its model while it
    computes the steps, which are added after mixing."""
    loss: Literal["drop-both", "keep-home"] = "drop-both"
    """The rule for a lost message. `drop-both`: two devices mix only if each has the other's model and knows that its
    own has arrived, by an acknowledgement of 1 bit; the mean of all models is then kept. `keep-home`: a device adds the
    weight of a lost model to its own; nothing is acknowledged, and the mean drifts."""

    extra_scalars: ClassVar[int] = 1

    @property
    def overlapped(self) -> bool:  # type: ignore[override]
        return self.order == "paper"

    @property
    def acknowledged(self) -> bool:  # type: ignore[override]
        return self.loss == "drop-both"

    def links(self, fed: Federation, graph: Digraph, t: int) -> Digraph:
        return graph.mutual()

    def weights(self, fed: Federation, graph: Digraph, used: Digraph) -> tuple[Array, Mapping[str, float]]:
        weights = metropolis(graph, used)
        return weights, {"imbalance": imbalance(used, weights)}


def metropolis(graph: Digraph, used: Digraph) -> Array:
    """w_ij = 1 / (1 + max(d_i, d_j)) of the used edges, for the degrees d in a graph whose edges go both ways."""
    degree = graph.out_degree  # counts the device itself
    return np.asarray(1.0 / np.maximum(degree[used.sender], degree[used.receiver]))

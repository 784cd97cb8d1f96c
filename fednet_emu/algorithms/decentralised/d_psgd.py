"""Decentralised parallel stochastic gradient descent (D-PSGD).

Lian, Zhang, Zhang, Hsieh, Zhang, Liu: "Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for
Decentralized Parallel Stochastic Gradient Descent", NeurIPS 2017, https://arxiv.org/abs/1705.09056, Algorithm 1:
X <- W X - eta G(X), with a symmetric, doubly stochastic W.

Differences from the paper: For any graph, W has Metropolis weights w_ij = 1 / (1 + max(d_i, d_j)), and each message
contains the degree d_i of its sender. The graph may change from round to round, and messages may be lost. A device
waits for the end of a round, not only for its neighbours. By default local steps come before mixing: X <- W (X - eta
G(X)).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from fednet_emu.algorithms.decentralised.rounds import Mixing, imbalance
from fednet_emu.arrays import Array
from fednet_emu.federation import Digraph, Federation


class DPsgd(Mixing):
    """Every device averages with all its neighbours in every round, with Metropolis weights.

    An edge is used only if the opposite edge exists.
    """

    kind = "d-psgd"
    order: Literal["adapt-then-combine", "paper"] = "adapt-then-combine"
    """Order of steps and mixing. adapt-then-combine: a device sends its model after its local steps; paper: a device
    sends its model while it computes its local steps, which are added after mixing."""
    on_lost_message: Literal["drop-pair", "keep-own-weight"] = "drop-pair"
    """The rule for a lost message. drop-pair: two devices mix only if each has received the other's model and an
    acknowledgement of 1 bit for its own model, which preserves the mean of all models; keep-own-weight: there are no
    acknowledgements, a device adds the weight of a lost model to the weight of its own model, and the mean of all
    models drifts."""

    extra_scalars = 1

    @property
    def overlapped(self) -> bool:  # type: ignore[override]
        return self.order == "paper"

    @property
    def acknowledged(self) -> bool:  # type: ignore[override]
        return self.on_lost_message == "drop-pair"

    def links(self, fed: Federation, graph: Digraph, t: int) -> Digraph:
        return graph.mutual()

    def weights(self, fed: Federation, graph: Digraph, used: Digraph) -> tuple[Array, Mapping[str, float]]:
        weights = metropolis(graph, used)
        return weights, {"imbalance": imbalance(used, weights)}


def metropolis(graph: Digraph, used: Digraph) -> Array:
    """Return the weight w_ij = 1 / (1 + max(d_i, d_j)) of each edge in `used`, where d_i are degrees in `graph`."""
    degree = graph.out_degree  # includes the device itself
    return np.asarray(1.0 / np.maximum(degree[used.sender], degree[used.receiver]))

"""Randomised gossip between local steps.

Boyd, Ghosh, Prabhakar, Shah: "Randomized Gossip Algorithms", IEEE Transactions on Information Theory 52(6), 2006,
https://doi.org/10.1109/TIT.2006.874516: two neighbours drawn at random replace their values by the mean of the two
values.

Differences from the paper: devices take local steps before averaging. In one round as many pairs as possible average
(the paper's synchronous model), or only `pairs` pairs. Neighbours are drawn uniformly. A common random number generator
draws the pairs, so that no messages are needed for this.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.decentralised.rounds import Mixing, imbalance
from fednet_emu.arrays import Array
from fednet_emu.federation import Digraph, Federation


class Gossip(Mixing):
    """In every round random pairs of neighbours replace their models by the mean of the two models.

    An edge is used only if the opposite edge exists. Two devices average only if each has received the other's model
    and an acknowledgement for its own model.
    """

    pairs: int | None = Field(None, gt=0)
    """Maximum number of pairs per round; null for no maximum. Pairs are formed in random order of devices: each device
    without a partner draws a random neighbour without a partner."""

    def links(self, fed: Federation, graph: Digraph, t: int) -> Digraph:
        graph, rng = graph.mutual(), fed.streams("gossip", t)
        partner: dict[int, int] = {}
        for i in rng.permutation(graph.n_devices).tolist():
            free = [] if i in partner else [j for j in graph.receivers(i) if j not in partner]
            if free and len(partner) != 2 * (self.pairs or graph.n_devices):
                j = free[int(rng.integers(len(free)))]
                partner[i], partner[j] = j, i
        met = np.array([partner.get(i, -1) for i in range(graph.n_devices)])
        return graph.kept(met[graph.sender] == graph.receiver)

    def weights(self, fed: Federation, graph: Digraph, used: Digraph) -> tuple[Array, Mapping[str, float]]:
        weights = np.full(len(used.sender), 0.5)
        return weights, {"imbalance": imbalance(used, weights)}

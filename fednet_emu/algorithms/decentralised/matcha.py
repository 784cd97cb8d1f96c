"""MATCHA: neighbours exchange models in random matchings; edges that matter for connectivity are used more often.

Wang, Sahu, Yang, Joshi, Kar: "MATCHA: Speeding Up Decentralized SGD via Matching Decomposition Sampling", 2019,
https://arxiv.org/abs/1905.09435:

- the edges are coloured, so that the edges of one colour are a matching M_j with Laplacian L_j: `matchings`;
- matching j is used in a round with probability p_j, independently; the p_j maximise the algebraic connectivity
  lambda_2(sum of p_j L_j), where the sum of p_j is at most a budget times the number of matchings: `activation`;
- models are mixed by W = I - alpha L(t), where L(t) is the sum of L_j over the matchings used, J averages all models,
  and alpha minimises the spectral norm rho = |E[W'W] - J|: `best_step`.

Differences from the paper: edges are coloured greedily, one by one (the paper: Misra and Gries, which needs at most one
colour more than the maximum degree). If the graph is not connected, lambda_2 is the minimum over its components, and J
averages within each component. If the graph changes, p and alpha are computed again. All devices know p, alpha and the
drawn matchings without messages. The probabilities are found by projected ascent along supergradients, in STEPS steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.decentralised.rounds import Mixing, imbalance
from fednet_emu.arrays import Array, IntArray
from fednet_emu.federation import Digraph, Federation

STEPS = 200
"""Number of steps in the search for the probabilities with which matchings are used."""
_ZERO = 1e-9


class Matcha(Mixing):
    """In every round a random set of matchings is used; the two models of each pair in these matchings move closer.

    An edge is used only if the opposite edge exists. A pair mixes only if each device has received the other's model
    and an acknowledgement for its own model.
    """

    budget: float = Field(0.5, gt=0, le=1)
    """Mean share of the matchings that are used in a round, above 0 and at most 1."""

    def links(self, fed: Federation, graph: Digraph, t: int) -> Digraph:
        graph = graph.mutual()
        colour = matchings(graph)
        key = graph.sender.tobytes() + graph.receiver.tobytes()
        if "matcha" not in fed.memory or fed.memory["matcha"][0] != key:
            laplacians = laplacians_of(graph, colour)
            p = activation(laplacians, self.budget)
            fed.memory["matcha"] = key, p, best_step(laplacians, p)
        p = fed.memory["matcha"][1]
        drawn = fed.streams("matcha", t).random(len(p)) < p
        return graph.kept(drawn[colour])

    def weights(self, fed: Federation, graph: Digraph, used: Digraph) -> tuple[Array, Mapping[str, float]]:
        weights = np.full(len(used.sender), fed.memory["matcha"][2])
        return weights, {"imbalance": imbalance(used, weights), "step": fed.memory["matcha"][2]}


def matchings(graph: Digraph) -> IntArray:
    """Return a colour [edges], from 0, for each edge of a bidirectional graph, so that each colour is a matching.

    Each edge, in order, is given, in both directions, the first colour that no other edge of its devices has.
    """
    taken: list[set[int]] = [set() for _ in range(graph.n_devices)]
    colour: dict[tuple[int, int], int] = {}
    for i, j in zip(graph.sender.tolist(), graph.receiver.tolist(), strict=True):
        if i < j:
            first = next(c for c in range(2 * graph.n_devices) if c not in taken[i] and c not in taken[j])
            colour[i, j] = colour[j, i] = first
            taken[i].add(first)
            taken[j].add(first)
    pairs = zip(graph.sender.tolist(), graph.receiver.tolist(), strict=True)
    return np.array([colour[pair] for pair in pairs], np.int64)


def laplacians_of(graph: Digraph, colour: IntArray) -> Array:
    """Return the Laplacians L_j [matchings, devices, devices] of the graphs of the edges of each colour j."""
    count = int(colour.max(initial=-1)) + 1
    laplacians = np.zeros((count, graph.n_devices, graph.n_devices))
    np.add.at(laplacians, (colour, graph.sender, graph.sender), 1.0)
    np.add.at(laplacians, (colour, graph.sender, graph.receiver), -1.0)
    return laplacians


def activation(laplacians: Array, budget: float) -> Array:
    """Return probabilities p [matchings] that nearly maximise the algebraic connectivity lambda_2(sum of p_j L_j).

    The sum of p_j is at most `budget` times the number of matchings. The derivative of lambda_2 by p_j (a
    supergradient) is v' L_j v, where v is a unit eigenvector of lambda_2. The search starts at p_j = `budget`, and
    returns the best p of all steps.
    """
    count = len(laplacians)
    p = best = np.full(count, budget)
    if budget == 1.0 or count < 2:
        return best
    parts = int((np.linalg.eigvalsh(laplacians.sum(0)) < _ZERO).sum())
    top = -np.inf
    for step in range(STEPS):
        values, vectors = np.linalg.eigh(np.tensordot(p, laplacians, 1))
        if values[parts] > top + _ZERO:
            top, best = values[parts], p
        v = vectors[:, parts]
        slope = np.einsum("i,cij,j->c", v, laplacians, v)
        p = on_budget(p + slope / (np.linalg.norm(slope) * (1 + step)), budget * count)
    return best


def on_budget(p: Array, total: float) -> Array:
    """Return the point nearest to `p` [matchings] with entries from 0 to 1 and a sum of at most `total`.

    The point is clip(p - shift), whose sum is linear between shifts at which an entry becomes 0 or 1.
    """
    inside = np.clip(p, 0, 1)
    if inside.sum() <= total:
        return inside
    shifts = np.sort(np.concatenate([p, p - 1, [0.0]]).clip(0))[::-1]
    sums = np.clip(p - shifts[:, None], 0, 1).sum(1)
    shift = float(np.interp(total, sums, shifts))
    return np.clip(p - shift, 0, 1)


def contraction(laplacians: Array, p: Array, alpha: float) -> float:
    """Return the contraction factor rho = |E[W'W] - J| (spectral norm) of the random mixing matrix W.

    It is |(I - alpha sum of p_j L_j)^2 + 2 alpha^2 sum of p_j (1 - p_j) L_j - J|, where `laplacians` contains the L_j
    of the matchings, `p` their probabilities, and J averages within each component of the graph.
    """
    values, vectors = np.linalg.eigh(laplacians.sum(0))
    kernel = vectors[:, values < _ZERO]
    inside = np.eye(len(values)) - alpha * np.tensordot(p, laplacians, 1)
    spread = np.tensordot(p * (1 - p), laplacians, 1)
    return float(np.linalg.norm(inside @ inside + 2 * alpha**2 * spread - kernel @ kernel.T, 2))


def best_step(laplacians: Array, p: Array) -> float:
    """Return the step size alpha that minimises `contraction`, which is convex in alpha; 0 if there are no edges."""
    from scipy.optimize import minimize_scalar

    if not len(p):
        return 0.0
    found = minimize_scalar(
        lambda alpha: contraction(laplacians, p, alpha), bounds=(0, 1), method="bounded", options={"xatol": 1e-9}
    )
    return float(found.x)

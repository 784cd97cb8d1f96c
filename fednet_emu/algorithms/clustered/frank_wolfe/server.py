"""What the server knows after each round, and the rule by which it moves on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.algorithms.clustered.frank_wolfe import updates
from fednet_emu.algorithms.clustered.frank_wolfe.oracles import Oracle, box, clusters_oracle
from fednet_emu.arrays import Array, IntArray
from fednet_emu.learning.models.layers import Layers


class State(NamedTuple):
    """The server's state: all of it is computed from the shared parameters that have arrived.

    Attributes:
        x: shared parameters [n, d] as last heard.
        weights: w_ij [pairs].
        multipliers: lam_ij, [pairs, d] or, under the norm coupling, [pairs].
        pulls: c_i [n, d] for the next round.
        shortening: factor [n] of the clients' next steps; ones unless under the norm coupling.
        gap: the gap of the last step of Frank-Wolfe.
        ways: how far [n] the shared parameters of each client went when it was last heard; infinite before.
    """

    x: Tensor
    weights: Array
    multipliers: Tensor | Array
    pulls: Tensor
    shortening: Tensor
    gap: float
    ways: Array

    @property
    def moved(self) -> float:
        """The longest of the ways."""
        return float(self.ways.max())


@final
@dataclass(frozen=True)
class Rule:
    """The server's part of an iteration for n clients, as a function of the state and of what has arrived.

    Attributes:
        n: number of clients.
        alpha: reward for tying clients.
        lr: step size of the clients.
        dual_lr: step size of the multipliers.
        radius: largest norm of a multiplier.
        smoothing: rounds the norm off, under the norm coupling; None for multipliers that are vectors.
        step: step size of Frank-Wolfe; None takes 2 / (t + 2).
        initial_weight: w_ij at the start.
        n_clusters: number of clusters if it is known.
    """

    n: int
    alpha: float
    lr: float
    dual_lr: float
    radius: float
    smoothing: float | None = None
    step: float | None = None
    initial_weight: float = 1.0
    n_clusters: int | None = None

    @property
    def n_pairs(self) -> int:
        """Number of pairs of clients."""
        return self.n * (self.n - 1) // 2

    @cached_property
    def oracle(self) -> Oracle:
        """Minimises linear functions over the weights that are allowed."""
        return box if self.n_clusters is None else clusters_oracle(self.n, self.n_clusters)

    def n_scalars(self, d: int) -> int:
        """Size of a state with d shared parameters per client; almost all of it is the multipliers."""
        return 2 * self.n * d + self.n_pairs * (d if self.smoothing is None else 1)

    def start(self, arrived: Sequence[Tensor]) -> State:
        """The state before the first round, of the shared parameters [d] that all clients start from."""
        x = torch.stack(list(arrived))
        nothing = x.new_zeros(self.n_pairs, x.shape[1]) if self.smoothing is None else np.zeros(self.n_pairs)
        weights = np.full(self.n_pairs, self.initial_weight)
        return State(x, weights, nothing, torch.zeros_like(x), x.new_ones(self.n), np.inf, np.full(self.n, np.inf))

    def advance(self, state: State, arrived: Sequence[Tensor], t: int, heard: Sequence[int] | None = None) -> State:
        """The state after round t = 0, 1, ..., given the shared parameters [d] of each client as last heard.

        `heard` has the places of those that were heard in this round; None for all.
        """
        x = torch.stack(list(arrived))
        apart = updates.differences(x)
        multipliers, slopes = self._ascended(state, apart)
        target = self.oracle(slopes, state.weights)
        weights = updates.moved(state.weights, target, 2 / (t + 2) if self.step is None else self.step)
        pulls, shortening = self._coupling(weights, multipliers, x)
        news, ways = slice(None) if heard is None else list(heard), state.ways.copy()
        ways[news] = (x - state.x).norm(dim=1).double().cpu().numpy()[news]
        return State(x, weights, multipliers, pulls, shortening, updates.gap(state.weights, target, slopes), ways)

    def labels(self, weights: Array) -> IntArray:
        """The cluster of each client [n]; with a number of clusters given, the partition nearest to the weights."""
        if self.n_clusters is None:
            return updates.components(weights, self.n)
        return updates.components(self.oracle(updates.TIED - weights, weights), self.n)

    def _ascended(self, state: State, apart: Tensor) -> tuple[Tensor | Array, Array]:
        """The multipliers after their step, and with them the slopes of the weights."""
        if isinstance(state.multipliers, Tensor):
            lam = updates.ascended(state.multipliers, state.weights, apart, self.dual_lr, self.radius)
            return lam, updates.slopes(lam, apart, self.alpha)
        distances = updates.distances(apart)
        numbers = np.minimum(state.multipliers + self.dual_lr * state.weights * distances, self.radius)
        return numbers, numbers * distances - self.alpha

    def _coupling(self, weights: Array, multipliers: Tensor | Array, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the clients are told: pulls [n, d] and the factor [n] of their steps."""
        if isinstance(multipliers, Tensor):
            return updates.pulls(weights, multipliers, self.n), x.new_ones(self.n)
        return updates.springs(weights, multipliers, x, self.lr, self.smoothing or 0.0)


def pull_of(state: State, place: int) -> Tensor:
    """The pull c_i [d] on one client, which is to be added to its gradient."""
    return state.pulls[place]


def shortening_of(state: State, place: int) -> float:
    """The factor of one client's steps."""
    return float(state.shortening[place])


def shortened(pull: Tensor, factor: float) -> Tensor:
    """The pull on a client whose whole step, gradient and pull, is shortened by a factor."""
    return pull * factor


def deployed(own: Tensor, state: State, rule: Rule, place: int, layers: Layers) -> Tensor:
    """The model [size] of one client whose shared parameters are the mean over its cluster."""
    labels, mine = rule.labels(state.weights), state.x[place]
    cluster = state.x[torch.from_numpy(labels == labels[place]).to(state.x.device)]
    return layers.put(own, mine + (cluster - mine).mean(0))  # a mean of equal models is that model, bit for bit

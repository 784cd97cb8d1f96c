"""The server's state after each round, and the rule that updates it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.algorithms.clustered.frank_wolfe import updates
from fednet_emu.algorithms.clustered.frank_wolfe.updates import Oracle, box, clusters_oracle
from fednet_emu.arrays import Array, IntArray
from fednet_emu.learning.models.layers import Layers


class State(NamedTuple):
    """The server's state, computed only from the shared parameters that have arrived at the server."""

    x: Tensor  # shared parameters [n, d] as last received
    weights: Array  # w_ij [pairs]
    multipliers: Tensor | Array  # lam_ij, [pairs, d], or [pairs] with the norm coupling
    pulls: Tensor  # c_i [n, d], the linear term of each client's objective in the next round
    shortening: Tensor  # factor [n] of the clients' step sizes in the next round; ones without the norm coupling
    gap: float  # Frank-Wolfe gap sum (w_ij - s_ij) G_ij of the latest step: possible fall of the linearised objective
    ways: Array  # norm [n] of the latest change of each client's shared parameters; infinite before the first message

    @property
    def moved(self) -> float:
        """The maximum over clients of the norm of a client's latest change of its shared parameters."""
        return float(self.ways.max())

    @property
    def far(self) -> float:
        """Maximum of `gap` and `moved`; it is 0 if the weights and all clients have converged."""
        return max(self.gap, self.moved)


@final
@dataclass(frozen=True)
class Rule:
    """Rule by which the server computes the next state from the current state and the received parameters."""

    n: int
    alpha: float  # reward for coupling two clients
    lr: float  # step size of the clients
    dual_lr: float  # step size of the multipliers
    radius: float  # maximum norm of a multiplier
    smoothing: float | None = None
    step: float | None = None  # step size of Frank-Wolfe; None is 2 / (t + 2) in round t
    initial_weight: float = 1.0  # w_ij at the start
    n_clusters: int | None = None  # number of clusters, or None if it is not known

    @property
    def n_pairs(self) -> int:
        return self.n * (self.n - 1) // 2

    @cached_property
    def oracle(self) -> Oracle:
        return box if self.n_clusters is None else clusters_oracle(self.n, self.n_clusters)

    def n_scalars(self, d: int) -> int:
        """Number of scalars in a state with `d` shared parameters per client; most scalars belong to multipliers."""
        return 2 * self.n * d + self.n_pairs * (d if self.smoothing is None else 1)

    def start(self, arrived: Sequence[Tensor]) -> State:
        """Return the state before the first round, from the initial shared parameters [d] of each client."""
        x = torch.stack(list(arrived))
        nothing = x.new_zeros(self.n_pairs, x.shape[1]) if self.smoothing is None else np.zeros(self.n_pairs)
        weights = np.full(self.n_pairs, self.initial_weight)
        return State(x, weights, nothing, torch.zeros_like(x), x.new_ones(self.n), np.inf, np.full(self.n, np.inf))

    def advance(self, state: State, arrived: Sequence[Tensor], t: int, heard: Sequence[int] | None = None) -> State:
        """Return the state after round `t` = 0, 1, ..., from the last received shared parameters [d] of each client.

        `heard` lists the indices of the clients whose parameters arrived in this round; None stands for all clients.
        """
        x = torch.stack(list(arrived))
        apart = updates.differences(x)
        multipliers, slopes = self._ascended(state, apart)
        target = self.oracle(slopes, state.weights)
        weights = state.weights + (2 / (t + 2) if self.step is None else self.step) * (target - state.weights)
        if isinstance(multipliers, Tensor):
            pulls, shortening = updates.pulls(weights, multipliers, self.n), x.new_ones(self.n)
        else:
            pulls, shortening = updates.springs(weights, multipliers, x, self.lr, self.smoothing or 0.0)
        news, ways = slice(None) if heard is None else list(heard), state.ways.copy()
        ways[news] = (x - state.x).norm(dim=1).double().cpu().numpy()[news]
        gap = float((state.weights - target) @ slopes)
        return State(x, weights, multipliers, pulls, shortening, gap, ways)

    def labels(self, weights: Array) -> IntArray:
        """Index [n] of each client's cluster; with `n_clusters`, in the partition nearest to the `weights` [pairs]."""
        if self.n_clusters is None:
            return updates.components(weights, self.n)
        return updates.components(self.oracle(updates.TIED - weights, weights), self.n)

    def _ascended(self, state: State, apart: Tensor) -> tuple[Tensor | Array, Array]:
        """Return the multipliers after an ascent step, and the gradient [pairs] with respect to the weights there."""
        if isinstance(state.multipliers, Tensor):
            lam = updates.ascended(state.multipliers, state.weights, apart, self.dual_lr, self.radius)
            return lam, updates.slopes(lam, apart, self.alpha)
        distances = updates.distances(apart)
        numbers = np.minimum(state.multipliers + self.dual_lr * state.weights * distances, self.radius)
        return numbers, numbers * distances - self.alpha


def pull_of(state: State, place: int) -> Tensor:
    """Return the linear term c_i [d] of the client with index `place`, which the client adds to its gradient."""
    return state.pulls[place]


def shortening_of(state: State, place: int) -> float:
    """Return the factor by which the client with index `place` multiplies its step size."""
    return float(state.shortening[place])


def deployed(own: Tensor, state: State, rule: Rule, place: int, layers: Layers) -> Tensor:
    """Return the model [P] of one client, with the mean over its cluster in place of its shared parameters."""
    labels, mine = rule.labels(state.weights), state.x[place]
    cluster = state.x[torch.from_numpy(labels == labels[place]).to(state.x.device)]
    return layers.put(own, mine + (cluster - mine).mean(0))  # the mean of equal models is bit-identical to these models

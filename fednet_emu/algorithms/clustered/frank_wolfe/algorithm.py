"""Clustered federated learning as a saddle point problem, with a client graph that Frank-Wolfe steps learn.

Source: "Algorithm (draft)", an unpublished draft without names of authors or a public link. Client i has parameters
x_i = (x_is, x_ip), where x_is are shared and x_ip are personal. Each pair i < j has a weight w_ij in [0, 1] and a
multiplier lam_ij. The problem is

    max_lam min_x min_W  (1/n) sum_i f_i(x_i) + sum_{i<j} w_ij <lam_ij, x_is - x_js> - (alpha/2) 1'W1

Clients update x by gradient descent; the server updates lam by ascent and W by Frank-Wolfe. The most similar published
method is Zantedeschi, Bellet, Tommasi, "Fully Decentralized Joint Learning of Personalized Models and Collaboration
Graphs", AISTATS 2020, where Frank-Wolfe updates the models and gradient descent the graph.

Differences from the draft: the objective is multiplied by n, so that step sizes are of order one. Multipliers lam are
updated by ascent, since the objective is maximised over lam; the draft writes descent. The norm of a multiplier is
bounded, because the multipliers of pairs whose parameters stay different would grow without limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.clustered.clusters import record_clusters
from fednet_emu.algorithms.clustered.frank_wolfe import updates
from fednet_emu.algorithms.clustered.frank_wolfe.updates import Oracle, box, clusters_oracle, pairs_of
from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Deferred, Device, Federation, Process
from fednet_emu.learning.models.evaluate import gradient_norm
from fednet_emu.learning.models.layers import LayerName, Layers


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
        """Return the number of scalars in a state with `d` shared parameters per client; most belong to multipliers."""
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
        """Return the index [n] of each client's cluster.

        If `n_clusters` is None, clusters are connected components of the pairs with a large weight. Otherwise they form
        the partition into `n_clusters` clusters that is nearest to the `weights` [pairs].
        """
        if self.n_clusters is None:
            return updates.components(weights, self.n)
        return updates.components(self.oracle(updates.TIED - weights, weights), self.n)

    def _ascended(self, state: State, apart: Tensor) -> tuple[Tensor | Array, Array]:
        """Return the multipliers after an ascent step, and the gradient [pairs] by the weights at these multipliers."""
        if isinstance(state.multipliers, Tensor):
            lam = updates.ascended(state.multipliers, state.weights, apart, self.dual_lr, self.radius)
            return lam, updates.slopes(lam, apart, self.alpha)
        distances = updates.distances(apart)
        numbers = np.minimum(state.multipliers + self.dual_lr * state.weights * distances, self.radius)
        return numbers, numbers * distances - self.alpha


def pull_of(state: State, place: int) -> Tensor:
    """Return the linear term c_i [d] that the client with index `place` adds to the gradient of its loss."""
    return state.pulls[place]


def shortening_of(state: State, place: int) -> float:
    """Return the factor by which the client with index `place` multiplies its step size."""
    return float(state.shortening[place])


def deployed(own: Tensor, state: State, rule: Rule, place: int, layers: Layers) -> Tensor:
    """Return the model [P] of one client, with the mean over its cluster in place of its shared parameters."""
    labels, mine = rule.labels(state.weights), state.x[place]
    cluster = state.x[torch.from_numpy(labels == labels[place]).to(state.x.device)]
    return layers.put(own, mine + (cluster - mine).mean(0))  # the mean of equal models is bit-identical to these models


class FrankWolfeClustering(Synchronous):
    """Clients train with a linear term that couples pairs of clients; the server learns which pairs to couple."""

    uses = frozenset({"plans"})
    plain_steps = True
    personal_layers: tuple[LayerName, ...] = ()
    """Layers that stay on the device, by name, pattern or index; all other layers are shared within a cluster."""
    alpha: float = Field(ge=0)
    """Reward alpha for coupling two clients; if it is too large, clients of different groups are coupled."""
    dual_lr: float = Field(ge=0)
    """Step size of the multipliers lam_ij, which penalise the difference between the parameters of clients i and j."""
    max_multiplier: float = Field(1.0, ge=0)
    """Maximum norm of a multiplier lam_ij; larger multipliers are scaled down to it."""
    norm_coupling: bool = False
    """Whether to couple a pair of clients i and j with weight w_ij and shared parameters x_is and x_js by w_ij lam_ij
    ||x_is - x_js|| with scalar multipliers lam_ij. If false, the coupling is w_ij <lam_ij, x_is - x_js> with vectors
    lam_ij."""
    smoothing: float = Field(1e-2, gt=0)
    """Smoothing length s: the norm in the coupling is sqrt(||x_is - x_js||^2 + s^2). Used only if `norm_coupling` is
    true."""
    weight_step: float | None = Field(None, gt=0, le=1)
    """Step size of the Frank-Wolfe update of the weights, at most 1; null is 2 / (t + 2) in round t = 0, 1, ..."""
    initial_weight: float = Field(1.0, ge=0, le=1)
    """Weight w_ij of every pair before the first round."""
    n_clusters: int | None = Field(None, gt=0)
    """Number of clusters, at most the number of devices with samples. The weights then move towards partitions into
    this number of clusters. Devices without samples belong to no cluster. If null, the number of clusters is unknown
    and follows from the weights."""
    tolerance: float | None = Field(None, gt=0)
    """Threshold that ends the run: the Frank-Wolfe gap and the norm of each client's latest change of its shared
    parameters must be below this threshold. If null, the run does not end early."""
    deploy: Literal["cluster-mean", "own"] = "cluster-mean"
    """Shared parameters of a client's evaluated model: the mean of its cluster (cluster-mean), or its own (own)."""
    record_every: int = Field(10, gt=0)
    """Number of rounds between two records of the weights, the clusters and the convergence measures."""

    @property
    def events_depend_on_learning(self) -> bool:
        return self.tolerance is not None or super().events_depend_on_learning

    def demands(self) -> Iterator[tuple[str, str, int]]:
        yield from super().demands()
        if self.n_clusters is not None:
            yield "n_clusters", "has more clusters than devices", self.n_clusters

    def run(self, fed: Federation) -> Process:
        layers = Layers(fed.task.model, self.personal_layers)
        if layers.n_statistics:
            what = f"running statistics are no parameters to couple, got {layers.n_statistics} that are shared"
            raise ScenarioError(
                f"algorithm.personal_layers: {what}; add the layers of batch norm, or choose group norm"
            )
        members = [k for k in fed.devices() if k.n_samples]
        if self.n_clusters is not None and self.n_clusters > len(members):
            raise ScenarioError(
                f"algorithm.n_clusters: has more clusters than devices with samples, got {self.n_clusters}; "
                f"must be at most {len(members)} with this partition"
            )
        place = {k: number for number, k in enumerate(members)}
        rule = self._rule(len(members))
        w = fed.initial_model()
        own, seen = [w] * fed.n_devices, [fed.defer(layers.take, w, size=layers.n_shared)] * len(members)
        state = fed.defer(rule.start, seen, size=rule.n_scalars(layers.n_shared))
        _record(fed, members, rule, state, own)
        for t in fed.rounds():
            message = partial(self._message, fed, state, place, layers)
            size = layers.n_shared
            arrived = yield from self.round(fed, t, message, self.client, own, layers, down=size + 1, up=size)
            for k, shared in arrived:
                seen[place[k]] = shared
            state = fed.defer(rule.advance, state, list(seen), t, [place[k] for k in arrived.devices])
            models = list(own)
            if self.deploy == "cluster-mean":
                for k in members:
                    models[k.index] = fed.defer(deployed, own[k.index], state, rule, place[k], layers)
            fed.end_of_round(models)
            if fed.round % self.record_every == 0:
                _record(fed, members, rule, state, own)
            if self.tolerance is not None and fed.read(state.part("far", 1), np.inf) < self.tolerance:
                return

    def client(
        self, fed: Federation, k: Device, message: tuple[Deferred, ...], t: int, own: list[Deferred], layers: Layers
    ) -> Process:
        """Process of device `k`: train with the linear term that it receives, and send the shared parameters."""
        pull, *factor = message
        if factor:
            pull = pull * factor[0]  # the gradient and the linear term are scaled by the same factor
        linear = fed.defer(layers.pad, pull, size=layers.size)
        trained = yield k.train(own[k.index], self.plan, t, linear=linear, scale=factor[0] if factor else 1.0)
        own[k.index] = trained.params
        return fed.defer(layers.take, trained.params, size=layers.n_shared)

    def _message(
        self, fed: Federation, state: Deferred, place: dict[Device, int], layers: Layers, k: Device
    ) -> tuple[tuple[Deferred, ...]]:
        pull = fed.defer(pull_of, state, place[k], size=layers.n_shared)
        return ((pull, fed.defer(shortening_of, state, place[k], size=1)) if self.norm_coupling else (pull,),)

    def _rule(self, n: int) -> Rule:
        return Rule(
            n,
            alpha=self.alpha,
            lr=self.lr,
            dual_lr=self.dual_lr,
            radius=self.max_multiplier,
            smoothing=self.smoothing if self.norm_coupling else None,
            step=self.weight_step,
            initial_weight=self.initial_weight,
            n_clusters=self.n_clusters,
        )


def _record(fed: Federation, members: Sequence[Device], rule: Rule, state: Deferred, own: Sequence[Deferred]) -> None:
    """Record the series `weights`, `clusters`, `agreement` and `convergence`; this sends no messages."""
    if fed.timing_only:
        return
    known: State = fed.read(state)
    now, devices = {"round": fed.round}, [k.index for k in members]
    for i, j, weight in zip(*pairs_of(len(devices)), known.weights, strict=True):
        fed.record("weights", **now, i=devices[i], j=devices[j], weight=float(weight))
    record_clusters(fed, devices, rule.labels(known.weights))
    norms = []
    for k in members:
        rows, data = fed.task.slice_of(k.index), fed.task.data
        norm = fed.defer(gradient_norm, fed.task.model, own[k.index], data.x[rows], data.y[rows], size=1)
        norms.append(fed.read(norm))
    fed.record("convergence", **now, gap=known.gap, moved=known.moved, gradient_norm=max(norms))

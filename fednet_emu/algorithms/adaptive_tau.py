"""Adaptive federated learning: the remaining budget determines the number of local steps.

Wang, Tuor, Salonidis, Leung, Makaya, He, Chan: "Adaptive Federated Learning in Resource Constrained Edge Computing
Systems", IEEE Journal on Selected Areas in Communications 37(6), 2019, https://arxiv.org/abs/1804.05271

The algorithm: in each round all devices take tau steps, and the server takes the mean of their models, weighted by
samples. Device i estimates rho_i = |F_i(w_i) - F_i(w)| / |w_i - w| and beta_i = |grad F_i(w_i) - grad F_i(w)| / |w_i -
w|. Here w_i is its own model at the end of a round, w is the global model that it receives next, and both are evaluated
on one batch. The server uses the means rho and beta over devices, the mean delta of |grad F_i(w) - grad F(w)|, and the
costs of the previous round: c for a step and b for an aggregation. The next tau is the smallest number from 1 to gamma
tau (gamma is `growth`), and at most tau_max, that minimises the bound G(tau) = (1 + sqrt(1 + 4 T^2 phi rho eta h /
tau)) / (2 T eta phi) + rho h, where T = (R - c - b) tau / (c tau + b) and h = delta / beta ((eta beta + 1)^tau - 1) -
eta delta tau. The last round that the budget R allows is shortened to fit. A final round of one step compares the last
model with the best model so far; the model with the lower loss is returned.

Differences from the paper: c and b are measured on the emulated network. In each round, rho_i and beta_i are estimated
on a batch that is drawn separately from the batches of the steps. The gradients of this batch at w_i and at w are
computed and sent, which adds one gradient to the uplink and two steps to each round; the costs of both count towards b.
Weight decay with factor lambda stands for the term lambda / 2 |w|^2 of the loss. A device whose message is lost is left
out of the means. The budget is time or energy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from fednet_emu.algorithms.base import ROUND_S, Algorithm, Deadline, RoundPatience
from fednet_emu.arrays import power
from fednet_emu.component.component import exactly_one
from fednet_emu.federation import Deferred, Device, Federation, Process, Sgd, SgdPlan

_CLOSE = 1e-10
_LEAST_BETA = 1e-5
NOMINAL = (0.0, _LEAST_BETA, 0.0, 1.0, 1.0)
"""Values that a timing-only run assumes instead of training: rho, beta, delta, and the losses of the sent and the best
model. With these values, tau grows to its maximum."""


class Cost(NamedTuple):
    """Cost c of one step of all devices and cost b of one aggregation, both in s or both in J."""

    step: float
    aggregation: float


class Estimates(NamedTuple):
    """Means over devices of rho and beta (Lipschitz constants of loss and gradient) and of the divergence delta."""

    rho: float
    beta: float
    delta: float


_UNKNOWN = Estimates(math.nan, math.nan, math.nan)


@dataclass
class Control:
    """State of the search for the number of local steps tau, and of the budget."""

    budget: float  # budget R, in s or J; `spent` is the part of the budget used so far
    lr: float  # step size eta
    phi: float = 0.025  # control parameter of the convergence bound
    growth: int = 10  # maximum ratio of tau to the tau of the previous round
    tau_max: int = 100  # maximum of tau
    tau: int = 1  # number of local steps in the current round
    spent: float = 0.0
    cost: Cost | None = None  # costs in the previous round; None in the first round
    ending: int = 0  # number of rounds since tau was first reduced to fit the remaining budget; 0 until then

    def searched(self, found: Estimates | None) -> int:
        """Return the tau that minimises the bound G for the next round, or the current tau if inputs are missing."""
        if found is None or self.cost is None:
            return min(self.tau, self.tau_max)
        step, aggregation = self.cost
        tau = np.arange(1.0, self.growth * self.tau + 1)
        total = (self.budget - step - aggregation) * tau / (step * tau + aggregation)
        with np.errstate(all="ignore"):
            bent = found.delta / found.beta * (power(self.lr * found.beta + 1, tau) - 1)
            h = np.fmax(0.0, bent - found.delta * self.lr * tau)
            root = np.sqrt(np.fmax(0.0, 1 + 4 * total**2 * self.phi * found.rho * self.lr * h / tau))
            gap = (1 + root) / (2 * total * self.lr * self.phi) + found.rho * h
        return min(int(np.argmin(np.where(np.isnan(gap), np.inf, gap))) + 1, self.tau_max)

    def end_of_round(self, cost: Cost, found: Estimates | None, spent: float | None = None) -> bool:
        """Update `spent` after a round, and set `tau` for the next round; return False if no round follows.

        The argument `spent` is the budget used so far; by default, the costs of the round are added to the old value.
        """
        following = self.searched(found)
        self.spent = self.spent + cost.step * self.tau + cost.aggregation if spent is None else spent
        self.cost = cost
        if self.ending:
            self.ending, self.tau = self.ending + 1, 1
            return self.ending <= 2
        if self.spent + cost.step * (following + 1) + 2 * cost.aggregation < self.budget:
            self.tau = following
        else:
            left = (self.budget - self.spent - 2 * cost.aggregation - cost.step) / cost.step
            self.ending, self.tau = 1, min(max(int(left), 1), following)
        return True


class AdaptiveTau(Algorithm):
    """All devices take tau steps per round; the server chooses tau to minimise the loss at the end of the budget.

    Devices send models and gradients: twice as many bits on the uplink as FedAvg. The result is the model with the
    lowest loss.
    """

    _one_budget = exactly_one("budget_s", "budget_j")
    kind = "adaptive-tau"

    lr: float = Field(0.01, ge=0)
    """Step size of the devices (eta)."""
    batch_size: int | None = Field(None, gt=0)
    """Samples per gradient step; null takes all of the device's samples."""
    weight_decay: float = Field(0.0, ge=0)
    """Factor lambda of the term lambda / 2 |w|^2 in the loss."""
    budget_s: float | None = Field(None, gt=0)
    """Simulated time in s for the whole training (R); give this or `budget_j`. The last two rounds may exceed the
    budget, and a run has at least three rounds."""
    budget_j: float | None = Field(None, gt=0)
    """Energy in J for the whole training (R), counted like the value `energy_j` of the summary; give this or
    `budget_s`. The limits of `budget_s` apply."""
    phi: float = Field(0.025, gt=0)
    """Control parameter phi of the convergence bound, tuned for the data; 0.025 in the paper (linear classifier)."""
    tau_max: int = Field(100, gt=0)
    """Maximum number of local steps in a round."""
    growth: int = Field(10, gt=1)
    """Maximum factor gamma by which the number of local steps tau may grow from one round to the next."""
    fixed_tau: int | None = Field(None, gt=0)
    """Constant number of local steps per round, as a baseline with the same messages and costs; null adapts tau."""
    deadline_s: Deadline = None
    patience_s: RoundPatience = ROUND_S
    uses = frozenset()

    @property
    @override
    def events_depend_on_learning(self) -> bool:
        return self.fixed_tau is None

    def run(self, fed: Federation) -> Process:
        w = best = fed.initial_model()
        control = Control(self.budget_s or self.budget_j or 0.0, self.lr, self.phi, self.growth, self.tau_max)
        least = math.inf
        if self.fixed_tau is not None:
            control.tau = control.tau_max = self.fixed_tau
        known: dict[Device, tuple[Any, ...]] = {}
        took_s: dict[Device, float] = {}
        for t in fed.rounds():
            began_s, began = fed.now_s, self._spent(fed)
            cohort = yield fed.cohort(1.0, t)
            arrived = yield from fed.exchange(
                cohort,
                w,
                self.client,
                best,
                t,
                control.tau,
                known,
                took_s,
                deadline_s=self.deadline_s,
                patience_s=self.patience_s,
            )
            found, losses = self._estimates(fed, arrived)
            if losses is not None:
                least = losses[1] if t else math.inf
                if losses[0] < least:
                    best, least = w, losses[0]
            tau = control.tau
            cost = self._cost(fed, arrived.devices, took_s, began_s, began, tau)
            w = arrived.average("samples")
            left = control.end_of_round(cost, found if self.fixed_tau is None else None, self._spent(fed))
            shown = (found or _UNKNOWN)._asdict()
            fed.record("adaptive_tau", tau=tau, step=cost.step, aggregation=cost.aggregation, **shown, min_loss=least)
            fed.end_of_round(w if left else best)
            if not left:
                return

    def client(
        self,
        fed: Federation,
        k: Device,
        w: Deferred,
        best: Deferred,
        t: int,
        tau: int,
        known: dict[Device, tuple[Any, ...]],
        took_s: dict[Device, float],
    ) -> Process:
        """Process of device `k`: evaluate the received and the best model, take `tau` steps, and compute a gradient."""
        at_w = yield k.train(w, self._plan(1, 1.0), t, "control")
        at_best = yield k.loss(best, t, "control", batch_size=self.batch_size)
        began_s = fed.now_s
        trained = yield k.train(w, self._plan(tau, self.lr), t)
        took_s[k] = fed.now_s - began_s
        at_end = yield k.train(trained.params, self._plan(1, 1.0), t + 1, "control")
        since, *before = known.get(k, (t,))
        known[k] = t + 1, fed.defer(torch.clone, trained.params), at_end.params, at_end.loss
        what = w, at_w.params, at_w.loss, best, at_best, self.weight_decay, *(before if since == t else ())
        return trained.params, fed.defer(report, *what, size=w.size + 5)

    def _plan(self, steps: int, lr: float) -> SgdPlan:
        return SgdPlan(lr=lr, batch_size=self.batch_size, steps=steps, optimizer=Sgd(weight_decay=self.weight_decay))

    def _estimates(self, fed: Federation, arrived: Any) -> tuple[Estimates | None, tuple[float, float] | None]:
        """Return the estimates, and the losses of the sent and the best model; None for values that are missing."""
        reports = arrived.part(1)
        if not reports:
            return None, None
        means = fed.defer(averaged, reports, arrived.weights("samples"), size=5)
        rho, beta, delta, loss, of_best = fed.read(means, NOMINAL)
        return (None if math.isnan(rho) else Estimates(rho, beta, delta)), (loss, of_best)

    def _spent(self, fed: Federation) -> float:
        return fed.now_s if self.budget_j is None else fed.ledger.spent_j(fed.clock.now)

    def _cost(
        self, fed: Federation, devices: Sequence[Device], took_s: dict[Device, float], began_s: float, began: float,
        tau: int,
    ) -> Cost:  # fmt: skip
        """Return the cost (s or J) of one local step of all devices, and the cost of the rest of the round."""
        if self.budget_j is None:
            step = max((took_s[k] for k in devices), default=0.0) / tau
            return Cost(max(step, 1e-9), max(0.0, fed.now_s - began_s - step * tau))
        flop = fed.task.model.flop_per_sample
        batches = [(k.index, self._plan(1, 1.0).batch_width(k.n_samples)) for k in devices]
        step = sum(fed.processors.nominal(device, flop * width)[1] for device, width in batches)
        return Cost(max(step, 1e-9), max(0.0, self._spent(fed) - began - step * tau))

    @override
    def conflicts_with_statistics(self) -> Iterator[tuple[str, str]]:
        yield from super().conflicts_with_statistics()
        yield "kind", "compares gradients, which running statistics do not have"

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        if self.budget_j is not None and scenario.devices.compute_energy is None and scenario.devices.profile is None:
            yield "budget_j", "counts the energy of steps, got devices without it; give devices.compute_energy"


def ratios(w_i: Any, w: Any, loss_i: float, loss: float, grad_i: Any, grad: Any) -> tuple[float, float]:
    """Return rho_i and beta_i, from losses and gradients of device i at its model `w_i` and the global model `w`."""
    distance = float(np.linalg.norm(w_i - w))
    if not distance > _CLOSE:
        return 0.0, _LEAST_BETA
    return abs(loss_i - loss) / distance, max(float(np.linalg.norm(grad_i - grad)) / distance, _LEAST_BETA)


def divergence(gradients: Sequence[Any], weights: Sequence[float]) -> float:
    """Return delta, the weighted mean distance of the devices' `gradients`, each [P], to their weighted mean."""
    share = np.asarray(weights, np.float64) / sum(weights)
    mean = sum(part * gradient for part, gradient in zip(share, gradients, strict=True))
    return float(sum(part * np.linalg.norm(g - mean) for part, g in zip(share, gradients, strict=True)))


def report(
    w: Tensor, w_less_gradient: Tensor, loss: float, best: Tensor, loss_of_best: float, decay: float, *before: Any
) -> Tensor:
    """Return the report [5 + P] that a device sends.

    The entries are a flag (1 if the device has estimates, else 0), rho, beta, the loss at `w`, the loss at `best`, and
    the gradient at `w` [P].

    `before` is empty if the device has no estimates. Otherwise `before` contains the device's model w_i at the end of
    its last round, w_i minus the gradient at w_i, and the loss at w_i.
    """
    x, gradient = _double(w), _double(w) - _double(w_less_gradient)
    at_w = float(loss) + decay / 2 * float(x @ x)
    at_best = float(loss_of_best) + decay / 2 * float(_double(best) @ _double(best))
    known, rho, beta = 0.0, 0.0, 0.0
    if before:
        own = _double(before[0])
        loss_i = float(before[2]) + decay / 2 * float(own @ own)
        known, (rho, beta) = 1.0, ratios(own, x, loss_i, at_w, own - _double(before[1]), gradient)
    return torch.from_numpy(np.concatenate([[known, rho, beta, at_w, at_best], gradient]))


def averaged(reports: Sequence[Tensor], weights: Sequence[float]) -> tuple[float, ...]:
    """Return rho, beta, delta (nan if no device has estimates), and the mean losses at the current and best model."""
    rows, weight = np.stack([part.numpy() for part in reports]), np.asarray(weights, np.float64)
    losses = (rows[:, 3:5] * weight[:, None]).sum(0) / weight.sum()
    able = rows[:, 0] > 0
    if not able.any():
        return math.nan, math.nan, math.nan, float(losses[0]), float(losses[1])
    own = weight[able]
    rho, beta = (rows[able, 1:3] * own[:, None]).sum(0) / own.sum()
    return float(rho), float(beta), divergence(list(rows[able, 5:]), own.tolist()), float(losses[0]), float(losses[1])


def _double(vector: Tensor) -> Any:
    return vector.detach().cpu().double().numpy()

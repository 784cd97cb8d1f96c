"""ASPIRE with EASE: asynchronous distributionally robust learning.

Jiao, Yang, Song: "Distributed Distributionally Robust Optimization with Non-Convex Objectives", NeurIPS 2022,
https://arxiv.org/abs/2210.07588, and with the D-norm, more sets and adaptive pace "Federated Distributionally Robust
Optimization with Non-Convex Objectives: Algorithm and Analysis", https://arxiv.org/abs/2307.14364. Equation numbers
refer to the second paper.

Differences from the paper:

- Update (12) is printed with -w_j where the derivative of phi_j' (z - w_j) is -phi_j; with -w_j it diverges.
- Eq. (36) is printed with its branches swapped; see `pace`.
- With `loss_of: steps` a worker sends the loss that its gradient passes measure anyway, the loss before its steps.
- A loss that was never sent counts as 0 in planes, and enters the level h with its prior weight when it first arrives,
  so that h starts at q'f without a wait for all workers; the paper does not specify the start.
- c_1 and c_2 are constants unless `regularisation` is "paper": the sequences of the theorems decay too slowly to use.
- A worker starts from an ordinary message of the master. A lost message is sent again. Plane lists have versions, and a
  worker never combines multipliers of one version with planes of another.
- With fixed planes the multiplier stays 1, so that all workers keep their prior weights for any level h.
- `max_delay` allows a staleness of tau, one more than the text does; `max_delay_inclusive: false` is the text's.
- Bounds of models are off unless given, and clip a worker's model after its last step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from fednet_emu.algorithms.base import ALONE_S, Algorithm, Patience
from fednet_emu.algorithms.robust.aspire.master import (
    Log,
    LossOf,
    Master,
    Message,
    Report,
    Terms,
    Wire,
    Worker,
    refresh_bit,
)
from fednet_emu.algorithms.robust.aspire.updates import Steps, Upkeep
from fednet_emu.algorithms.robust.uncertainty import AnyUncertaintySet
from fednet_emu.algorithms.robust.weights import Prior
from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Deferred, Federation, Inbox, Process, SgdPlan

MAX_LOOKS = 10_000
"""Largest number of checks of the delays before they pass a threshold in seconds."""

SHORTEST_TICK_S = 1e-3
"""Shortest time in s between two checks if the threshold follows the delays."""


class Adaptive(Component):
    """When the master switches between all workers and `active` of them."""

    threshold_s: float | None = Field(10.0, gt=0)
    """The paper's beta_1: the longest delay without a straggler; null takes twice the mean delay."""
    tick_s: float = Field(1.0, gt=0)
    """Time in s between two checks of the delays while the master waits: at least a ten-thousandth of the threshold,
    and without a threshold at least 0.001 s."""

    def _check(self) -> None:
        least_s = SHORTEST_TICK_S if self.threshold_s is None else self.threshold_s / MAX_LOOKS
        if self.tick_s < least_s:
            raise ValueError(f"tick_s: too fine, got {self.tick_s:g} s; give {least_s:g} s or more")


class Pace:
    """How many workers the master waits for: `few`, or by eqs. (36) and (37) all N while no delay exceeds a threshold.

    The branches of (36) are printed the other way round, against the text and Figure 5. A delay is measured from the
    master's last reply, and grows while the worker is awaited, so that a straggler shows before it reports.
    """

    def __init__(self, count: int, few: int, adaptive: Adaptive | None) -> None:
        self._few, self._adaptive = few, adaptive
        self._delay_s = np.zeros(count)
        self._since_s = np.full(count, np.inf)  # time of the last reply; infinite while the worker is not awaited

    def replied(self, worker: int, now_s: float) -> None:
        self._since_s[worker] = now_s

    def heard(self, worker: int, now_s: float) -> None:
        self._delay_s[worker] = now_s - self._since_s[worker]
        self._since_s[worker] = np.inf

    def active(self, now_s: float) -> int:
        """The number now; with `adaptive` it depends on the delays as they are now."""
        if self._adaptive is None:
            return self._few
        delay_s = np.maximum(self._delay_s, now_s - self._since_s)
        threshold_s = self._adaptive.threshold_s or 2.0 * float(delay_s.mean())
        return len(delay_s) if float(delay_s.max()) <= threshold_s else self._few

    def may_ease(self, now_s: float) -> bool:
        """Whether time alone, without a report, can make the master wait for fewer.

        Not when `few` is the number now, and not when twice the mean delay will grow as fast as the longest does.

        The second case is at least half of the workers awaited. The delay of a worker grows once it exceeds the one
        before; only at such a moment may the longest delay exceed twice the mean.
        """
        awaited = np.isfinite(self._since_s)
        if self._adaptive is None or self.active(now_s) == self._few or not awaited.any():
            return False
        if self._adaptive.threshold_s is not None or 2 * np.count_nonzero(awaited) < len(awaited):
            return True
        grows_s = (self._since_s + self._delay_s)[awaited]
        return any(self.active(float(time_s)) == self._few for time_s in grows_s[grows_s > now_s])

    def until(self, missing: int, heard: int, now_s: float) -> tuple[int, float | None]:
        """Number of reports, or seconds, to the next check of the delays; while S is small, all missing reports."""
        if self._adaptive is None or missing + heard <= self._few:
            return max(missing, 1), None
        return (max(missing, 1), self._adaptive.tick_s) if self.may_ease(now_s) else (1, None)


Last = dict[int, int]
"""The iteration of the last reply to each worker, the oldest first."""


class Aspire(Algorithm):
    """The master acts on the first reports, and cutting planes over an uncertainty set weight the workers.

    ASPIRE-EASE by default; ASPIRE-CP with `planes: cp`, Mix_Even with `planes: fixed` and a uniform prior,
    ASPIRE-EASE(-) with `active: null`, ASPIRE-EASEper with `local_steps` above 1, ASPIRE-ADP with `adaptive`.
    """

    planes: Upkeep = "ease"
    """ease: worst cases become planes and idle planes are dropped; cp: planes stay while there is room; fixed: the
    prior is the only plane and its multiplier stays 1, so that every worker keeps its prior weight."""
    uncertainty: AnyUncertaintySet | None = None
    """The weights against which the model is to be robust; not needed with fixed planes."""
    prior: Prior = Prior()
    active: int | None = Field(gt=0)
    """The paper's S: reports that the master waits for; null waits for all workers."""
    adaptive: Adaptive | None = None
    """Switches between all workers, while none is slow, and `active` of them."""
    max_delay: int | None = Field(None, gt=0)
    """The paper's tau: the largest staleness of a report, the number of iterations that have ended since the master's
    reply to its worker; 0 in the first iteration. The master waits for workers whose staleness would otherwise exceed
    the limit."""
    max_delay_inclusive: bool = True
    """false: staleness stays below `max_delay`, as in the paper's words, an update from every worker "at least once for
    each tau iterations"."""
    lr: float = Field(ge=0)
    """Step size of the workers, eta_w."""
    batch_size: int | None = Field(None, gt=0)
    """Samples per step; null takes all of the worker's, as in the paper."""
    local_steps: int = Field(1, gt=0)
    """Steps of a worker between two messages."""
    loss_of: LossOf = "result"
    """result: workers evaluate their new model on all their samples; steps: they send the mean loss of their steps."""
    lr_master: float | None = Field(None, gt=0)
    """Step size of z, eta_z; must stay below 2 / (prox N), and null takes 0.4 / (prox N)."""
    lr_level: float = Field(0.02, gt=0)
    """Step size of h, eta_h."""
    rho_multiplier: float = Field(0.02, gt=0)
    """Step size of the planes' multipliers lam, rho_1."""
    rho_dual: float = Field(0.1, gt=0)
    """Step size of phi_j, rho_2."""
    prox: float = Field(1.0, gt=0)
    """Strength of the quadratic pull between z and w_j, kappa_1."""
    regularisation: Literal["constant", "paper"] = "constant"
    """paper: c_1 and c_2 fall as 1 / (rho (t + 1)^(1/6)) down to the values below, instead of starting at them."""
    c_multiplier: float = Field(1e-3, ge=0)
    """c_1, of lam."""
    c_dual: float = Field(0.0, ge=0)
    """c_2, of phi_j."""
    plane_every: int = Field(10, gt=0)
    """Iterations between two plane steps, k."""
    plane_until: int | None = Field(None, gt=0)
    """No plane step after this number of iterations, T_1."""
    max_planes: int = Field(20, gt=1)
    """Longest list of planes. When it is full, with cp too, the plane with the smallest multiplier makes room for a new
    one; `displaced` in the series `aspire` counts such planes with a multiplier above 0."""
    model_bound: float | None = Field(None, gt=0)
    """Bound of every entry of z and w_j, alpha_1; null for none."""
    level_bound: float = Field(100.0, gt=0)
    """Bound of h, alpha_2."""
    multiplier_bound: float = Field(10.0, gt=0)
    """Bound of every multiplier, alpha_3."""
    dual_bound: float = Field(10.0, gt=0)
    """Bound of every entry of phi_j, alpha_4."""
    wire: Wire = "paper"
    """Whether replies carry h and all multipliers, or only the worker's share of them, which it needs."""
    patience_s: Patience = ALONE_S
    """How long a lost message is sent again. Then its worker takes no further part, and a wait for it, with `max_delay`
    or for all workers, ends the run with an error that names it."""
    gap_every: int | None = Field(None, gt=0)
    """Iterations between two measurements of the stationarity gap, which cost no simulated time; null for none."""

    def _check(self) -> None:
        if self.planes != "fixed" and self.uncertainty is None:
            raise ValueError(f"planes: {self.planes} needs an uncertainty set, got none; give uncertainty")
        if self.adaptive is not None and self.active is None:
            raise ValueError("adaptive switches between all and `active` workers, got active: null; give a number")

    @property
    def events_depend_on_learning(self) -> bool:
        """Losses decide how many planes there are, and messages carry a scalar per plane unless they are reduced."""
        return self.planes != "fixed" and self.wire == "paper"

    def demands(self) -> Sequence[tuple[str, str, int]]:
        return [] if self.active is None else [("active", "waits for more workers than there are", self.active)]

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        try:
            self._weights_for(np.arange(scenario.devices.count))
        except ScenarioError as error:
            where, _, what = str(error).partition(": ")
            yield where, what

    def _weights_for(self, workers: IntArray) -> Array:
        """The prior of these workers; raises when the uncertainty set has no weights for them."""
        prior = self.prior.weights(workers)
        if self.uncertainty is not None and self.planes != "fixed":
            self.uncertainty.worst_case(np.zeros(len(workers)), prior)
        return prior

    def run(self, fed: Federation) -> Process:
        devices = [k for k in fed.devices() if k.n_samples]
        n, steps = len(devices), self.steps(len(devices))
        master = Master(fed, self._weights_for(np.array([k.index for k in devices])), steps.at(0))
        message = master.message(0, self.wire)
        workers = [Worker(k, j, master.z, master.planes, master.terms(j).share) for j, k in enumerate(devices)]
        pace = Pace(n, n if self.active is None else min(self.active, n), self.adaptive)
        inbox, log, last, idle = fed.inbox(), Log(fed, self.wire), Last(), list(range(n))
        for t in fed.rounds():
            for j in idle:
                last.pop(j, None)
                last[j] = t
                pace.replied(j, fed.now_s)
                fed.start(self.activation(fed, workers[j], message, master.terms(j), inbox))
            reports = yield from self._collect(fed, inbox, pace, workers, last, t)
            active = pace.active(fed.now_s)
            master.step(reports, steps.at(t))
            renews = self.planes != "fixed" and (t + 1) % self.plane_every == 0 and t < (self.plane_until or math.inf)
            if renews:
                master.renew_planes(self.uncertainty, self.planes, self.max_planes)
            message = master.message(t + 1, self.wire)
            if renews:
                for worker in workers:
                    fed.start(self.refresh(fed, worker, message, master.terms(worker.place).share, n))
            log.iteration(t, active, len(reports), len(master.planes.p), n if renews else 0, master.displaced)
            log.reports(t, [(workers[report.place].device, report.arrived_s, last[report.place]) for report in reports])
            if self.gap_every is not None and (t + 1) % self.gap_every == 0 and not fed.timing_only:
                log.gap(t, master.gap(devices, self.lr))
            fed.end_of_round(master.z, invited=active, arrived=len(reports))
            idle = [report.place for report in reports]

    def activation(self, fed: Federation, own: Worker, message: Message, terms: Terms, inbox: Inbox) -> Process:
        """A worker: receive, update phi_j, step, send; (16) and (12) of the paper."""
        k, z, steps = own.device, message.z, message.steps
        reply = message.payload or (z, terms.share)
        got = yield from fed.retry(lambda: fed.downlink(k, reply), patience_s=self.patience_s)
        if got.lost:
            return
        own.learn(message, terms.share, self.wire)
        plan = SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=self.local_steps)
        work = k.training(own.w, plan, message.t, scale=own.share, linear=terms.slope, prox=steps.prox, anchor=z)
        if self.loss_of == "result":  # one more forward pass over all samples
            work = work._replace(flop=work.flop + fed.task.model.forward_flop_per_sample * k.n_samples)
        params, loss = yield k.compute(work)
        box = steps.model_bound
        own.w = params if box == math.inf else fed.defer(torch.clamp, params, -box, box)
        if self.loss_of == "result":
            loss = fed.defer(fed.task.train_loss, own.w, k.index, size=1)
        report = (own.w, loss)
        sent = yield from fed.retry(lambda: fed.uplink(k, report), patience_s=self.patience_s)
        if not sent.lost:
            inbox.put(k.index, Report(own.place, own.w, loss, fed.now_s))

    def refresh(self, fed: Federation, worker: Worker, message: Message, share: Deferred, n: int) -> Process:
        """One of n workers: receive a new list of planes, for the next activation."""
        k, payload = worker.device, share if message.dual is None else message.dual
        size_bit = refresh_bit(self.wire, n, len(message.planes.p))
        got = yield from fed.retry(lambda: fed.downlink(k, payload, size_bit), patience_s=self.patience_s)
        if not got.lost:
            worker.renew(message, share)

    def _collect(
        self, fed: Federation, inbox: Inbox, pace: Pace, workers: Sequence[Worker], last: Last, t: int
    ) -> Process:
        """Wait for enough reports, and for the reports of all workers that are overdue."""
        longest = math.inf if self.max_delay is None else self.max_delay - (not self.max_delay_inclusive)
        oldest = takewhile(lambda item: t - item[1] >= longest, last.items())
        overdue = {workers[j].device.index for j, _ in oldest}
        reports: list[Report] = []
        missing = pace.active(fed.now_s)
        while missing > 0 or overdue:
            at_least, tick_s = pace.until(missing, len(reports), fed.now_s)
            came = yield inbox.collect(at_least, including=overdue, deadline_s=tick_s)
            for report in came:
                pace.heard(report.place, report.arrived_s)
                overdue.discard(workers[report.place].device.index)
            reports += came
            missing = pace.active(fed.now_s) - len(reports)
        return sorted(reports, key=lambda report: report.place)

    def conflicts_with_statistics(self) -> Iterator[tuple[str, str]]:
        yield "kind", "the master's steps and multipliers are for parameters"

    def steps(self, n: int) -> Steps:
        """The numbers of the iterations with n workers."""
        fixed = self.planes == "fixed"
        return Steps(
            n_workers=n,
            lr_z=0.4 / (self.prox * n) if self.lr_master is None else self.lr_master,
            lr_h=self.lr_level,
            rho_lam=self.rho_multiplier,
            rho_phi=self.rho_dual,
            prox=self.prox,
            c_lam=self.c_multiplier,
            c_phi=self.c_dual,
            model_bound=math.inf if self.model_bound is None else self.model_bound,
            level_bound=self.level_bound,
            multiplier_bound=1.0 if fixed else self.multiplier_bound,
            dual_bound=self.dual_bound,
            multiplier_floor=1.0 if fixed else 0.0,
            falling=self.regularisation == "paper",
        )

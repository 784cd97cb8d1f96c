"""ASPIRE with EASE: asynchronous distributionally robust learning.

Jiao, Yang, Song: "Distributed Distributionally Robust Optimization with Non-Convex Objectives", NeurIPS 2022,
https://arxiv.org/abs/2210.07588. The D-norm, further uncertainty sets and the adaptive pace are from "Federated
Distributionally Robust Optimization with Non-Convex Objectives: Algorithm and Analysis",
https://arxiv.org/abs/2307.14364. Equation numbers refer to the second paper.

Differences from the paper:

- The paper prints -w_j in update (12), but the derivative of phi_j' (z - w_j) is -phi_j; with -w_j the update diverges.
- Eq. (36) is printed with its branches swapped; see `Pace`.
- If `loss_of` is steps, a worker sends the mean of the losses before each step, which need no further computation.
- In the values of the cutting planes, the loss of a worker counts as 0 until its first report. The first loss of a
  worker is added to the level h with the worker's prior weight. So h starts at q'f although the master does not wait
  for all workers; the paper does not specify the start.
- c_1 and c_2 are constants by default. If `regularisation` is paper, they decay as in the theorems, which is slow.
- The first message to a worker has the same content as all later messages of the master. A lost message is sent again.
  Lists of planes have versions, and a worker never combines multipliers of one version with planes of another version.
- With fixed planes the multiplier of the only plane stays 1, so all workers keep their prior weights for any level h.
- `max_delay` allows a staleness of tau, one more than the paper's text; `max_delay_inclusive: false` follows the text.
- Models have no bounds by default; if bounds are given, a worker's model is clipped after the worker's last step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter, methodcaller
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field

from fednet_emu.algorithms.base import ALONE_S, Algorithm, Patience
from fednet_emu.algorithms.robust.aspire.updates import (
    Heard,
    Planes,
    State,
    Steps,
    Upkeep,
    initial_state,
    master_step,
    moved_to,
    renewed,
    share_of,
    squared_gap,
)
from fednet_emu.algorithms.robust.uncertainty import AnyUncertaintySet, UncertaintySet
from fednet_emu.algorithms.robust.weights import Prior
from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Deferred, Device, Federation, Inbox, Process, SgdPlan, Shared

LossOf = Literal["result", "steps"]
"""Loss that a worker sends. result: loss of the new model on all its samples; steps: mean of the losses before each
step."""

Wire = Literal["paper", "reduced"]
"""Content of the master's messages. paper: a reply contains all multipliers, and a refresh contains all cutting planes;
reduced: a reply and a refresh contain only one scalar, by which the worker scales its gradient."""


def refresh_bit(wire: Wire, n_workers: int, n_planes: int) -> int:
    """Return the size in bits of a message that updates the cutting planes of a worker.

    If `wire` is "paper", the message contains for each of the `n_planes` planes the weights of all `n_workers` workers
    and a multiplier. If `wire` is "reduced", it contains one scalar, by which the worker scales its gradient.
    """
    return FLOAT_BIT * ((n_workers + 1) * n_planes if wire == "paper" else 1)


class Message(NamedTuple):
    """The master's message to all workers before iteration `t`, with the global model z.

    `dual` = (h, lam) contains the level h, and the multipliers lam of the cutting planes in `planes`. `steps` contains
    the step sizes and bounds by which z was computed. `payload` is z together with `dual`, which is the same for all
    receivers. If each worker receives only its own scalar instead of all multipliers, `dual` and `payload` are None.
    """

    t: int
    z: Deferred
    planes: Planes
    steps: Steps
    dual: Deferred | None
    payload: Shared | None


class Terms(NamedTuple):
    """Terms of worker j's next update: the factor `share` = sum_l lam_l p_lj, and the linear term `slope` = -phi_j.

    Here lam_l is the multiplier of cutting plane l, p_lj the weight of worker j in this plane, and phi_j the worker's
    dual variable.
    """

    share: Deferred
    slope: Deferred


class Report(NamedTuple):
    """The model and the loss that the worker with index `place` has sent, and their time of arrival in simulated s."""

    place: int
    w: Deferred
    loss: Deferred
    arrived_s: float


@dataclass(slots=True)
class Worker:
    """State of one worker; `place` is its index among the workers that have samples."""

    device: Device
    place: int  # index of its column in the planes
    w: Deferred
    planes: Planes  # the latest list of planes that the worker received
    share: Deferred  # sum_l lam_l p_lj, with multipliers and planes of the same version
    told: int = 0  # the iteration in which the share was computed

    def learn(self, message: Message, share: Deferred, wire: Wire) -> None:
        """Store the gradient factor `share` of a message, unless the worker lacks its planes or has a later factor."""
        understood = wire == "reduced" or message.planes.version == self.planes.version
        if understood and message.t >= self.told:
            self.share, self.told = share, message.t

    def renew(self, message: Message, share: Deferred) -> None:
        """Store the planes and the gradient factor `share` of a message, unless the worker has a later factor."""
        if message.t >= self.told:
            self.planes, self.share, self.told = message.planes, share, message.t


class Master:
    """State of the master. Models and losses are deferred until an update of the planes reads the losses.

    For each worker j, `models` contains the latest model, `losses` the latest loss (0 before the first report), and
    `slopes` -phi_j, where phi_j is the worker's dual variable. `displaced` counts the planes that were replaced
    although their multiplier was above 0.
    """

    def __init__(self, fed: Federation, prior: Array, steps: Steps) -> None:
        self._fed, self._prior, self._steps = fed, prior, steps
        self.z = self._z_0 = fed.initial_model()
        count = len(prior)
        self.planes = Planes(0, prior[None])
        self._state = fed.defer(initial_state, self._z_0, 1)
        zero, none = fed.defer(torch.zeros_like, self._z_0), fed.defer(float, 0, size=1)
        self.models, self.slopes, self.losses = [self._z_0] * count, [zero] * count, [none] * count
        self._shares: dict[int, Deferred] = {}  # shares of the workers that reported last, until the planes change
        self._known: set[int] = set()
        self.displaced = 0

    def message(self, t: int, wire: Wire) -> Message:
        dual = payload = None
        if wire == "paper":
            dual = self._fed.defer(attrgetter("h", "lam"), self._state, size=1 + len(self.planes.p))
            payload = self._fed.shared((self.z, dual))
        return Message(t, self.z, self.planes, self._steps, dual, payload)

    def terms(self, j: int) -> Terms:
        share = self._shares.get(j)
        if share is None:
            share = self._fed.defer(share_of, self._state, self.planes.p[:, j], size=1)
        return Terms(share, self.slopes[j])

    def step(self, reports: Sequence[Report], steps: Steps) -> None:
        """Perform one iteration of the master with the settings `steps` and at most one report per worker."""
        self._steps = steps
        heard = [self._heard(report) for report in reports]
        self._state = self._fed.defer(master_step, self._state, self._z_0, heard, steps, size=6 * self._z_0.size)
        self.z = self._state.part("z", self._z_0.size)
        self._shares = {}
        for place, (j, w, loss, _) in enumerate(reports):
            self.models[j], self.losses[j] = w, loss
            self.slopes[j] = self._fed.defer(methodcaller("slope", place), self._state, size=self._z_0.size)
            self._shares[j] = self._fed.defer(methodcaller("share", place), self._state, size=1)

    def _heard(self, report: Report) -> Heard:
        j, w, loss, _ = report
        enters = 0.0 if j in self._known else float(self._prior[j])
        self._known.add(j)
        parts: Any = (w, self.models[j], loss, self.losses[j], enters, self.slopes[j], self.planes.p[:, j])
        return Heard(*parts)

    def renew_planes(self, uncertainty: UncertaintySet | None, upkeep: Upkeep, max_planes: int) -> None:
        """Update the list of cutting planes from the latest losses; a timing-only run has no losses, and keeps it."""
        reading = self._fed.defer(_bill, self._state, self.losses, size=len(self.losses))
        read = self._fed.read(reading, nominal=())
        if not read or uncertainty is None:
            return
        losses, lam, lam_before = read
        worst = uncertainty.worst_case(losses, self._prior)
        planes, origin, displaced = renewed(self.planes, upkeep, worst, losses, lam, lam_before, max_planes)
        if planes is self.planes:
            return
        self.planes, self._shares = planes, {}
        self.displaced += displaced
        numbers = moved_to(origin, lam), moved_to(origin, lam_before), planes.p @ losses
        self._state = self._fed.defer(_replaned, self._state, *numbers)

    def gap(self, devices: Sequence[Device], lr: float) -> float:
        """Return the squared stationarity gap from one full gradient of each worker; this takes no simulated time."""
        fed, plan = self._fed, SgdPlan(lr=1.0, steps=1)
        tried = [k.training(w, plan, "gap").result for k, w in zip(devices, self.models, strict=True)]
        descended, losses = [trained.params for trained in tried], [trained.loss for trained in tried]
        known = (self.models, descended, losses, self.slopes)
        return float(fed.read(fed.defer(squared_gap, self._state, *known, self.planes.p, lr, self._steps, size=1)))


def _replaned(state: State, lam: Array, lam_before: Array, values: Array) -> State:
    return state._replace(lam=lam, lam_before=lam_before, values=values)


def _bill(state: State, losses: Sequence[float]) -> tuple[Array, Array, Array]:
    return np.array(losses), state.lam, state.lam_before


class Log:
    """Writes the record series `aspire` (a row per iteration), `activations` (a row per report) and `stationarity`."""

    def __init__(self, fed: Federation, wire: Wire) -> None:
        self._fed, self._wire = fed, wire
        self._paper_bit = self._actual_bit = 0

    def iteration(self, t: int, active: int, heard: int, planes: int, refreshed: int, displaced: int) -> None:
        """Record iteration `t`, from 0, and the total number of bits sent since the start.

        The master waited for `active` reports and received `heard` reports. `planes` is the number of cutting planes,
        `refreshed` the number of workers to which planes were sent in this iteration, and `displaced` the number of
        planes that have been replaced so far although their multiplier was above 0.
        """
        size = self._fed.task.model.size
        paper_bit, actual_bit = iteration_bit(self._wire, heard, size, planes, refreshed)
        self._paper_bit += paper_bit
        self._actual_bit += actual_bit
        self._fed.ledger.record(
            "aspire",
            step=t + 1,
            simulated_s=self._fed.now_s,
            active=active,
            arrived=heard,
            planes=planes,
            displaced=displaced,
            bits_paper=self._paper_bit,
            bits_actual=self._actual_bit,
        )

    def reports(self, t: int, reports: Iterable[tuple[Device, float, int]]) -> None:
        for device, arrived_s, told in reports:
            self._fed.ledger.record(
                "activations", step=t + 1, device=device.index, arrived_s=arrived_s, staleness=t - told
            )

    def gap(self, t: int, squared: float) -> None:
        self._fed.ledger.record("stationarity", step=t + 1, simulated_s=self._fed.now_s, squared_gap=squared)


def iteration_bit(wire: Wire, heard: int, n_parameters: int, n_planes: int, refreshed: int) -> tuple[int, int]:
    """Return the number of bits of an iteration, by the paper's formula, and in actual unicast messages without losses.

    An iteration has S = `heard` uploads and S replies, P parameters, L planes, and N = `refreshed` workers that receive
    new planes. The paper counts S (2 P + 1 + L) scalars of 32 bits (Section VI), and N^2 L scalars for new planes. It
    does not count the loss in each upload, or the multipliers that are sent with new planes.
    """
    paper = heard * (2 * n_parameters + 1 + n_planes) + refreshed**2 * n_planes
    extra = heard + refreshed * n_planes
    actual = paper + extra if wire == "paper" else heard * (2 * n_parameters + 2) + refreshed
    return FLOAT_BIT * paper, FLOAT_BIT * actual


MAX_LOOKS = 10_000
"""Maximum number of times that the master checks the delays of the workers within `threshold_s`."""

SHORTEST_TICK_S = 1e-3
"""Minimum time in s between two checks of the workers' delays if the threshold is computed from the delays."""


class Adaptive(Component):
    """Rule by which the master switches between waiting for all workers and for `active` workers."""

    threshold_s: float | None = Field(10.0, gt=0)
    """Largest delay, in s, that does not count as straggling (the paper's beta_1); null is twice the mean delay."""
    tick_s: float = Field(1.0, gt=0)
    """Time in s between two checks of the workers' delays while the master waits; must be at least 1/10,000 of
    `threshold_s`, or 0.001 s if `threshold_s` is null."""

    def _check(self) -> None:
        min_s = SHORTEST_TICK_S if self.threshold_s is None else self.threshold_s / MAX_LOOKS
        if self.tick_s < min_s:
            raise ValueError(f"tick_s: too fine, got {self.tick_s:g} s; give {min_s:g} s or more")


class Pace:
    """Rule for the number of workers to wait for: all N workers if no delay exceeds the threshold, else `few`.

    The rule is eqs. (36) and (37). The branches of (36) are printed in the wrong order, contrary to the paper's text
    and Figure 5. The delay of a worker is counted from the master's last reply and grows while the master waits, so a
    straggler is detected before it reports.
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
        """Return the number of workers to wait for at time `now_s`; if the rule is adaptive, it depends on delays."""
        if self._adaptive is None:
            return self._few
        delay_s = np.maximum(self._delay_s, now_s - self._since_s)
        threshold_s = self._adaptive.threshold_s or 2.0 * float(delay_s.mean())
        return len(delay_s) if float(delay_s.max()) <= threshold_s else self._few

    def may_ease(self, now_s: float) -> bool:
        """Return whether the number of workers to wait for can decrease before another report arrives.

        A decrease is impossible if the number is already `few`. Suppose that the threshold is twice the mean delay, and
        that the master waits for at least half of the workers. Once the delays of all these workers grow, the threshold
        grows at least as fast as the longest delay. The delay of a worker starts to grow when its waiting time exceeds
        its previous delay. Only at such times can the longest delay exceed twice the mean delay.
        """
        awaited = np.isfinite(self._since_s)
        if self._adaptive is None or self.active(now_s) == self._few or not awaited.any():
            return False
        if self._adaptive.threshold_s is not None or 2 * np.count_nonzero(awaited) < len(awaited):
            return True
        grows_s = (self._since_s + self._delay_s)[awaited]
        return any(self.active(float(time_s)) == self._few for time_s in grows_s[grows_s > now_s])

    def until(self, missing: int, heard: int, now_s: float) -> tuple[int, float | None]:
        """Return the number of reports, and the time in s, to wait for until the next check; None for no limit."""
        if self._adaptive is None or missing + heard <= self._few:
            return max(missing, 1), None
        return (max(missing, 1), self._adaptive.tick_s) if self.may_ease(now_s) else (1, None)


Last = dict[int, int]
"""For each worker, the iteration of the master's last reply; workers are in the order of these replies, oldest first.
"""


class Aspire(Algorithm):
    """The master waits only for the first reports; cutting planes over an uncertainty set determine worker weights.

    The default is ASPIRE-EASE. The variants are ASPIRE-CP (`planes: cp`), Mix_Even (`planes: fixed` and a uniform
    prior), ASPIRE-EASE(-) (`active: null`), ASPIRE-EASEper (`local_steps` above 1), and ASPIRE-ADP (`adaptive`).
    """

    planes: Upkeep = "ease"
    """How the master maintains the list of cutting planes. ease: worst cases are added as planes, and planes with a
    multiplier of 0 are dropped; cp: planes are dropped only if the list is full; fixed: the prior is the only plane,
    with a multiplier of 1, so every worker keeps its prior weight."""
    uncertainty: AnyUncertaintySet | None = None
    """The set of worker weights for which the worst-case loss is minimised; not needed if `planes` is fixed."""
    prior: Prior = Prior()
    active: int | None = Field(gt=0)
    """Number of reports that the master waits for (the paper's S); null waits for all workers."""
    adaptive: Adaptive | None = None
    """Rule that waits for all workers if none is slow, and otherwise for `active` workers; null always uses
    `active`."""
    max_delay: int | None = Field(None, gt=0)
    """Maximum staleness of a report (the paper's tau). The staleness is the number of iterations that have ended since
    the master's reply to the worker; it is 0 in the first iteration. The master waits for workers whose staleness would
    otherwise exceed this maximum."""
    max_delay_inclusive: bool = True
    """Whether the staleness may equal `max_delay`. If false, the staleness stays below `max_delay`, as in the paper's
    text: an update from every worker "at least once for each tau iterations"."""
    lr: float = Field(ge=0)
    """Step size of the workers' models w_j (eta_w)."""
    batch_size: int | None = Field(None, gt=0)
    """Samples per step; null is all of the worker's samples, as in the paper."""
    local_steps: int = Field(1, gt=0)
    """Number of steps of a worker between two messages."""
    loss_of: LossOf = "result"
    """Loss that a worker sends. result: the loss of its new model on all its samples; steps: the mean loss over its
    steps."""
    lr_master: float | None = Field(None, gt=0)
    """Step size of the global model z (eta_z); must be below 2 / (prox N) for N workers. Null is 0.4 / (prox N)."""
    lr_level: float = Field(0.02, gt=0)
    """Step size of the level h, the variable that bounds the worst-case loss from above (eta_h)."""
    rho_multiplier: float = Field(0.02, gt=0)
    """Step size of the multipliers lam_l of the cutting planes (rho_1)."""
    rho_dual: float = Field(0.1, gt=0)
    """Step size of the dual variables phi_j, which belong to the constraints z = w_j (rho_2)."""
    prox: float = Field(1.0, gt=0)
    """Factor of the quadratic penalty on the distance between the global model z and each worker's model w_j (kappa_1).
    """
    regularisation: Literal["constant", "paper"] = "constant"
    """Values of the regularisation factors c_1 and c_2. constant: `c_multiplier` and `c_dual`; paper: 1 / (rho (t +
    1)^(1/6)) in iteration t, where rho is `rho_multiplier` or `rho_dual`, and `c_multiplier` and `c_dual` are lower
    limits."""
    c_multiplier: float = Field(1e-3, ge=0)
    """Regularisation factor c_1 of the planes' multipliers; its lower limit if `regularisation` is paper."""
    c_dual: float = Field(0.0, ge=0)
    """Regularisation factor c_2 of the dual variables phi_j; its lower limit if `regularisation` is paper."""
    plane_every: int = Field(10, gt=0)
    """Number of iterations between two updates of the list of cutting planes (k)."""
    plane_until: int | None = Field(None, gt=0)
    """Number of iterations after which the list of cutting planes is no longer updated (T_1); null for no limit."""
    max_planes: int = Field(20, gt=1)
    """Maximum number of cutting planes. If the list is full, a new plane replaces the plane with the smallest
    multiplier, also for `planes: cp`; `displaced` in the series `aspire` counts the replaced planes whose multiplier
    was above 0."""
    model_bound: float | None = Field(None, gt=0)
    """Upper bound on the absolute value of every entry of the global model z and of the workers' models w_j (alpha_1);
    null for no bound."""
    level_bound: float = Field(100.0, gt=0)
    """Upper bound of the level h, the variable that bounds the worst-case loss from above (alpha_2)."""
    multiplier_bound: float = Field(10.0, gt=0)
    """Upper bound of the multiplier lam_l of every cutting plane (alpha_3)."""
    dual_bound: float = Field(10.0, gt=0)
    """Upper bound on the absolute value of every entry of the dual variables phi_j (alpha_4)."""
    wire: Wire = "paper"
    """Content of the master's replies in addition to the global model z. paper: the level h and the multipliers of all
    cutting planes; reduced: one scalar per worker, the sum over planes of the multiplier times the worker's weight in
    the plane."""
    patience_s: Patience = ALONE_S
    """Time in s for which a lost message is sent again. Afterwards its worker is excluded from the rest of the run. If
    the master then has to wait for this worker, because of `max_delay` or because it waits for all workers, the run
    ends with an error that names the worker."""
    gap_every: int | None = Field(None, gt=0)
    """Number of iterations between two measurements of the stationarity gap, which take no simulated time; null for
    none."""

    def _check(self) -> None:
        if self.planes != "fixed" and self.uncertainty is None:
            raise ValueError(f"planes: {self.planes} needs an uncertainty set, got none; give uncertainty")
        if self.adaptive is not None and self.active is None:
            raise ValueError("adaptive switches between all and `active` workers, got active: null; give a number")

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether training affects message sizes: if so, losses determine the number of planes in each message."""
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
        """Return the prior weights of `workers`; raise an error if the uncertainty set is empty for these workers."""
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
        """Process of a worker: receive the global model z, take the local steps (12), and send model and loss."""
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
        """Process of one of `n` workers: receive a new list of cutting planes, which the worker's next update uses."""
        k, payload = worker.device, share if message.dual is None else message.dual
        size_bit = refresh_bit(self.wire, n, len(message.planes.p))
        got = yield from fed.retry(lambda: fed.downlink(k, payload, size_bit), patience_s=self.patience_s)
        if not got.lost:
            worker.renew(message, share)

    def _collect(
        self, fed: Federation, inbox: Inbox, pace: Pace, workers: Sequence[Worker], last: Last, t: int
    ) -> Process:
        """Wait for enough reports, and for the reports of all overdue workers; return them in order of workers."""
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
        """Return the step sizes, factors and bounds of iterations with `n` workers."""
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

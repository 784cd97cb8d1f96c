"""The master of ASPIRE and its workers: their states, messages and records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

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
from fednet_emu.algorithms.robust.uncertainty import UncertaintySet
from fednet_emu.arrays import Array
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.federation import Deferred, Device, Federation, SgdPlan, Shared

LossOf = Literal["result", "steps"]
"""Loss that a worker sends. result: loss of the new model on all its samples; steps: mean of the losses before each
step."""

Wire = Literal["paper", "reduced"]
"""Content of messages. paper: replies contain all multipliers, and refreshes all planes; reduced: only the worker's
share."""


def refresh_bit(wire: Wire, n_workers: int, n_planes: int) -> int:
    """Size in bits of a plane refresh to a worker: N weights and a multiplier per plane, or only the worker's share."""
    return FLOAT_BIT * ((n_workers + 1) * n_planes if wire == "paper" else 1)


class Message(NamedTuple):
    """The master's message to all workers before iteration `t`: z, and `dual` = (h, lam) for the version of `planes`.

    `steps` are the settings that produced z. `payload` is z with (h, lam), which is the same for all receivers. `dual`
    and `payload` are None if each worker receives only its own share.
    """

    t: int
    z: Deferred
    planes: Planes
    steps: Steps
    dual: Deferred | None
    payload: Shared | None


class Terms(NamedTuple):
    """What worker j computes from a message for its next update: `share` = sum_l lam_l p_lj, and `slope` = -phi_j."""

    share: Deferred
    slope: Deferred


class Report(NamedTuple):
    """The model and the loss that a worker has sent, and their time of arrival."""

    place: int
    w: Deferred
    loss: Deferred
    arrived_s: float


@dataclass(slots=True)
class Worker:
    """One worker; `place` is its index among the workers with samples."""

    device: Device
    place: int  # index of its column in the planes
    w: Deferred
    planes: Planes  # the latest list of planes that the worker received
    share: Deferred  # sum_l lam_l p_lj, with multipliers and planes of the same version
    told: int = 0  # the iteration in which the share was computed

    def learn(self, message: Message, share: Deferred, wire: Wire) -> None:
        """Adopt the share of a message, unless the worker lacks its planes or has the share of a later message."""
        understood = wire == "reduced" or message.planes.version == self.planes.version
        if understood and message.t >= self.told:
            self.share, self.told = share, message.t

    def renew(self, message: Message, share: Deferred) -> None:
        """Adopt a list of planes and the share, unless the worker has those of a later message."""
        if message.t >= self.told:
            self.planes, self.share, self.told = message.planes, share, message.t


class Master:
    """The state of the master. All models and losses stay deferred until a plane step reads the losses.

    For each worker j, `models` holds the latest model, `losses` the latest loss (0 before the first report), and
    `slopes` -phi_j. `displaced` counts the replaced planes whose multiplier was above 0.
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
        """Perform one iteration with the given reports, at most one per worker."""
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
        """Perform a plane step, which reads the losses; a timing-only run keeps the list unchanged."""
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
        """Current squared stationarity gap, from one full gradient of every worker; takes no simulated time."""
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
    """Writer of the series `aspire` (a row per iteration), `activations` (a row per report) and `stationarity`."""

    def __init__(self, fed: Federation, wire: Wire) -> None:
        self._fed, self._wire = fed, wire
        self._paper_bit = self._actual_bit = 0

    def iteration(self, t: int, active: int, heard: int, planes: int, refreshed: int, displaced: int) -> None:
        """Record iteration `t`, from 0, and the total number of bits sent since the start.

        The master waited for `active` reports and received S = `heard` reports. `planes` is the number of cutting
        planes, `refreshed` the number of workers to which planes were sent in this iteration, and `displaced` the
        number of planes in use that have been replaced so far.
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
    """Number of bits of an iteration: by the paper's formula, and as actual unicast messages without losses.

    There are S = `heard` uploads and as many replies, P parameters, L planes, and N = `refreshed` workers that receive
    the planes. The paper counts S (2 P + 1 + L) scalars (Section VI), and N^2 L scalars for a refresh. The paper does
    not count the loss in each upload and the multipliers in a refresh.
    """
    paper = heard * (2 * n_parameters + 1 + n_planes) + refreshed**2 * n_planes
    extra = heard + refreshed * n_planes
    actual = paper + extra if wire == "paper" else heard * (2 * n_parameters + 2) + refreshed
    return FLOAT_BIT * paper, FLOAT_BIT * actual

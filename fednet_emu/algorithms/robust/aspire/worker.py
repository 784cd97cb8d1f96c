"""A worker of ASPIRE: what it keeps between its activations, and what it does in one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from fednet_emu.algorithms.robust.aspire.planes import Planes
from fednet_emu.algorithms.robust.aspire.updates import Steps, clipped, share_of, slope_step
from fednet_emu.algorithms.robust.aspire.wire import Wire, refresh_bit
from fednet_emu.federation import Deferred, Device, Federation, Inbox, Process, SgdPlan, Shared

LossOf = Literal["result", "steps"]
"""result: the loss of the new model on all samples of the worker; steps: the mean over its steps, before each."""


class Message(NamedTuple):
    """What the master tells before its iteration t: z, and h and lam for this version of the planes.

    `steps` made z, and make the worker's phi_j; `payload` is z with h and lam, shared by all receivers.
    """

    t: int
    z: Deferred
    dual: Deferred
    planes: Planes
    steps: Steps
    payload: Shared


class Report(NamedTuple):
    """What a worker tells: its model and loss, and when they came."""

    place: int
    w: Deferred
    loss: Deferred
    arrived_s: float


@dataclass(slots=True)
class Worker:
    """One worker; `place` counts those that have samples, from 0.

    Attributes:
        device: where it runs.
        place: its column in the planes.
        w: its model.
        slope: -phi_j.
        planes: the latest list of planes that it was sent.
        share: sum_l lam_l p_lj, of multipliers and planes of one version.
        told: the iteration from which the share is.
    """

    device: Device
    place: int
    w: Deferred
    slope: Deferred
    planes: Planes
    share: Deferred
    told: int = 0

    @classmethod
    def at_start(cls, fed: Federation, device: Device, place: int, message: Message) -> Worker:
        """A worker that agrees with the master: w_j = z, phi_j = 0, and the planes of the start."""
        share = fed.defer(share_of, message.dual, message.planes.p[:, place], size=1)
        return cls(device, place, message.z, fed.defer(torch.zeros_like, message.z), message.planes, share)

    def activation(
        self,
        fed: Federation,
        message: Message,
        plan: SgdPlan,
        loss_of: LossOf,
        wire: Wire,
        inbox: Inbox,
        patience_s: float,
    ) -> Process:
        """Receive, update phi_j, step, send; (16) and (12) of the paper."""
        k, z, steps = self.device, message.z, message.steps
        share = self._share_in(fed, message)
        reply = message.payload if wire == "paper" else (z, share)
        got = yield from fed.retry(lambda: fed.downlink(k, reply), patience_s=patience_s)
        if got.lost:
            return
        self.learn(message, share, wire)
        self.slope = fed.defer(slope_step, self.slope, z, self.w, steps)
        work = k.training(self.w, plan, message.t, scale=self.share, linear=self.slope, prox=steps.prox, anchor=z)
        if loss_of == "result":  # one more forward pass over all samples
            work = work._replace(flop=work.flop + fed.task.model.forward_flop_per_sample * k.n_samples)
        params, loss = yield k.compute(work)
        self.w = params if steps.model_bound == math.inf else fed.defer(clipped, params, steps.model_bound)
        if loss_of == "result":
            loss = fed.defer(fed.task.train_loss, self.w, k.index, size=1)
        report = (self.w, loss)
        sent = yield from fed.retry(lambda: fed.uplink(k, report), patience_s=patience_s)
        if not sent.lost:
            inbox.put(k.index, Report(self.place, self.w, loss, fed.now_s))

    def refresh(self, fed: Federation, message: Message, wire: Wire, n_workers: int, patience_s: float) -> Process:
        """Receive a new list of planes, for the next activation."""
        share, size_bit = self._share_in(fed, message), refresh_bit(wire, n_workers, len(message.planes.p))
        payload = message.dual if wire == "paper" else share
        got = yield from fed.retry(lambda: fed.downlink(self.device, payload, size_bit), patience_s=patience_s)
        if not got.lost and message.t >= self.told:
            self.planes, self.share, self.told = message.planes, share, message.t

    def learn(self, message: Message, share: Deferred, wire: Wire) -> None:
        """Take over a share, unless it needs planes that have not come, or a later one is known."""
        understood = wire == "reduced" or message.planes.version == self.planes.version
        if understood and message.t >= self.told:
            self.share, self.told = share, message.t

    def _share_in(self, fed: Federation, message: Message) -> Deferred:
        return fed.defer(share_of, message.dual, message.planes.p[:, self.place], size=1)

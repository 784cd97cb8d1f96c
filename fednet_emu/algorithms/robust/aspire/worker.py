"""What a worker of ASPIRE keeps between its activations, and what it and the master tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from fednet_emu.algorithms.robust.aspire.planes import Planes
from fednet_emu.algorithms.robust.aspire.updates import Steps, share_of
from fednet_emu.federation import Deferred, Device, Federation, Shared
from fednet_emu.federation.payload import BIT_PER_SCALAR

LossOf = Literal["result", "steps"]
"""result: the loss of the new model on all samples of the worker; steps: the mean over its steps, before each."""

Wire = Literal["paper", "reduced"]
"""paper: replies carry every multiplier, refreshes all weights of all planes; reduced: only the worker's own share."""


def refresh_bit(wire: Wire, n_workers: int, n_planes: int) -> int:
    """Bits of a plane refresh to one worker: N weights and a multiplier per plane, or the worker's share alone."""
    return BIT_PER_SCALAR * ((n_workers + 1) * n_planes if wire == "paper" else 1)


class Message(NamedTuple):
    """What the master tells before its iteration t: z, and (h, lam) for this version of the planes.

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
        share = share_in(fed, message, place)
        return cls(device, place, message.z, fed.defer(torch.zeros_like, message.z), message.planes, share)

    def learn(self, message: Message, share: Deferred, wire: Wire) -> None:
        """Take over a share, unless it needs planes that have not come, or a later one is known."""
        understood = wire == "reduced" or message.planes.version == self.planes.version
        if understood and message.t >= self.told:
            self.share, self.told = share, message.t

    def renew(self, message: Message, share: Deferred) -> None:
        """Take over a list of planes and the share of it, unless a later one is known."""
        if message.t >= self.told:
            self.planes, self.share, self.told = message.planes, share, message.t


def share_in(fed: Federation, message: Message, place: int) -> Deferred:
    """The share of a worker by a message."""
    return fed.defer(share_of, message.dual, message.planes.p[:, place], size=1)

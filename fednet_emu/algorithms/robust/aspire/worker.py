"""Workers of ASPIRE: their state between activations, and their messages to and from the master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fednet_emu.algorithms.robust.aspire.updates import Planes, Steps
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.federation import Deferred, Device, Shared

LossOf = Literal["result", "steps"]
"""result: the loss of the new model on all samples of the worker; steps: the mean over its steps, before each."""

Wire = Literal["paper", "reduced"]
"""paper: replies carry every multiplier, refreshes all weights of all planes; reduced: only the worker's own share."""


def refresh_bit(wire: Wire, n_workers: int, n_planes: int) -> int:
    """Bits of a plane refresh to one worker: N weights and a multiplier per plane, or the worker's share alone."""
    return FLOAT_BIT * ((n_workers + 1) * n_planes if wire == "paper" else 1)


class Message(NamedTuple):
    """The master's message to all before its iteration t: z, and `dual`, (h, lam), for this version of the planes.

    `steps` made z; `payload` is z with (h, lam), shared by all receivers. Both are None where each worker is sent its
    share.
    """

    t: int
    z: Deferred
    planes: Planes
    steps: Steps
    dual: Deferred | None
    payload: Shared | None


class Terms(NamedTuple):
    """Terms that a worker calculates from a message for its next update: sum_l lam_l p_lj, and -phi_j."""

    share: Deferred
    slope: Deferred


class Report(NamedTuple):
    """A worker's model and loss, with their time of arrival."""

    place: int
    w: Deferred
    loss: Deferred
    arrived_s: float


@dataclass(slots=True)
class Worker:
    """One worker; `place` counts those that have samples, from 0."""

    device: Device
    place: int  # its column in the planes
    w: Deferred
    planes: Planes  # the latest list that it received
    share: Deferred  # sum_l lam_l p_lj, of multipliers and planes of one version
    told: int = 0  # the iteration of the share

    def learn(self, message: Message, share: Deferred, wire: Wire) -> None:
        """Take over a share, unless it needs planes that have not arrived, or a later one is known."""
        understood = wire == "reduced" or message.planes.version == self.planes.version
        if understood and message.t >= self.told:
            self.share, self.told = share, message.t

    def renew(self, message: Message, share: Deferred) -> None:
        """Take over a list of planes and the share of it, unless a later one is known."""
        if message.t >= self.told:
            self.planes, self.share, self.told = message.planes, share, message.t

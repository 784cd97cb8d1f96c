"""A device as an algorithm sees it: a view on the arrays of the federation, created when needed."""

from __future__ import annotations

from typing import Protocol

from fednet_emu.devices.processors import Computation, Processors, Work
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.network.network import Network
from fednet_emu.records.ledger import device_label


class Fleet(Protocol):
    """The part of the federation that a device needs."""

    @property
    def task(self) -> LearningTask:
        """The learning task: the model and each device's samples."""

    @property
    def processors(self) -> Processors:
        """The processors of all devices and of the server."""

    @property
    def network(self) -> Network:
        """The network with its links."""

    def asks(self) -> None:
        """Note that the algorithm asks for something."""


class Device:
    """One device, or the server (whose `index` is -1). Views on the same device are equal, so they serve as keys."""

    __slots__ = ("_federation", "index")

    def __init__(self, federation: Fleet, index: int) -> None:
        self._federation = federation
        self.index = index

    @property
    def name(self) -> str:
        """The name in logs and errors, for example `dev-3`."""
        return device_label(self.index)

    @property
    def n_samples(self) -> int:
        """Number of the device's own training samples."""
        return self._federation.task.n_samples_of(self.index)

    @property
    def flop_per_s(self) -> float:
        """Computing speed in FLOP/s."""
        return self._federation.processors.flop_per_s(self.index)

    @property
    def expected_rate_bps(self) -> float:
        """Rate in bit/s of the device's uplink, alone in the band, at its present mean SNR, without future fading."""
        return self._federation.network.expected_uplink_bps(self.index)

    @property
    def expected_downlink_rate_bps(self) -> float:
        """Rate in bit/s of the server's downlink to this device, defined as for `expected_rate_bps`."""
        return self._federation.network.expected_downlink_bps(self.index)

    def compute(self, work: Work) -> Computation:
        """Do some work as soon as the processor is free; the event's value is the work's result."""
        self._federation.asks()
        return self._federation.processors.run(self.index, work)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self.index == other.index and self._federation is other._federation

    def __hash__(self) -> int:
        return self.index

    def __repr__(self) -> str:
        return self.name

"""What devices draw beside their computations: idle power all the time, and more while they send or receive.

The energy of a device over a time T is idle_w T, and for each of its states the power beyond idle_w times its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.radio.channel import DeviceRadio
from fednet_emu.radio.energy import Transmitter


class PerDevice:
    """A number of each device, which is one of a few: a byte for each device says which."""

    __slots__ = ("_which", "values")

    def __init__(self, values: tuple[float, ...], which: bytes) -> None:
        self.values, self._which = values, which

    def __getitem__(self, device: int) -> float:
        return self.values[self._which[device]]

    def of(self, devices: IntArray) -> Array:
        """The numbers [n] of some devices."""
        return np.array(self.values)[np.frombuffer(self._which, np.uint8)[devices]]

    @property
    def all(self) -> Array:
        """The numbers [devices] of all."""
        return np.array(self.values)[np.frombuffer(self._which, np.uint8)]

    @property
    def total(self) -> float:
        """The sum over all devices."""
        counts = np.bincount(np.frombuffer(self._which, np.uint8), minlength=len(self.values))
        return float(counts @ np.array(self.values))

    @property
    def differ(self) -> bool:
        """Whether there are several numbers."""
        return len(set(self.values)) > 1

    def __bool__(self) -> bool:
        """Whether any number is not 0."""
        return any(self.values)


class Stated(NamedTuple):
    """What a profile states; None for unknown.

    Attributes:
        idle_w, transmit_w, receive_w: powers in W of the whole device while it waits, sends and receives.
        most_dbm: radiated power in dBm for which `transmit_w` holds.
        amplifier_efficiency: radiated over drawn power of its amplifier.
    """

    idle_w: float | None = None
    transmit_w: float | None = None
    receive_w: float | None = None
    most_dbm: float | None = None
    amplifier_efficiency: float | None = None


class Sending(NamedTuple):
    """What devices draw while they send, beside their idle power, as a `Transmitter` has it."""

    efficiency: PerDevice
    circuit_w: PerDevice


@dataclass(frozen=True)
class DevicePowers:
    """The powers of all devices.

    Attributes:
        which: for each device, which of the profiles it has.
        stated: what each profile states.
        idle_w: power in W that each device draws all the time, whatever it does.
    """

    which: bytes
    stated: tuple[Stated, ...]
    idle_w: PerDevice

    @classmethod
    def of(cls, radio: DeviceRadio, which: bytes, stated: tuple[Stated, ...] = (Stated(),)) -> Self:
        """Powers of devices with these profiles; what the radio states by itself wins."""
        own = radio.idle_w
        idle_w = tuple((its.idle_w or 0.0) if own is None else own for its in stated)
        return cls(which, stated, PerDevice(idle_w, which))

    def transmitters(self, radio: DeviceRadio) -> tuple[Transmitter, ...]:
        """What the transmitter of each profile draws beside idle_w: by the radio, else by the profile."""
        return tuple(
            radio.transmitter(_beyond(its.transmit_w, idle_w), its.most_dbm, its.amplifier_efficiency)
            for its, idle_w in zip(self.stated, self.idle_w.values, strict=True)
        )

    def sending(self, radio: DeviceRadio) -> Sending:
        """What each device draws while it sends."""
        each = self.transmitters(radio)
        return Sending(
            PerDevice(tuple(its.efficiency for its in each), self.which),
            PerDevice(tuple(its.circuit_w for its in each), self.which),
        )

    def receive_w(self, radio: DeviceRadio) -> PerDevice:
        """Power in W beside idle_w while a device receives: of the radio, else by its profile."""
        own_w, idle_w = radio.stated("receive_w"), self.idle_w.values
        beyond_w = (_beyond(its.receive_w, idle) or 0.0 for its, idle in zip(self.stated, idle_w, strict=True))
        return PerDevice(tuple(beyond_w if own_w is None else (own_w for _ in idle_w)), self.which)


def _beyond(whole_w: float | None, idle_w: float) -> float | None:
    return None if whole_w is None else max(whole_w - idle_w, 0.0)

"""What devices draw beside their computations: idle power all the time, and more while they send or receive.

The energy of a device over a time T is idle_w T, and for each of its states the power beyond idle_w times its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.radio.channel import DeviceRadio


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
    """Powers in W of a whole device while it waits, sends and receives, as a profile states them; None for unknown."""

    idle_w: float | None = None
    transmit_w: float | None = None
    receive_w: float | None = None


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

    def circuit_w(self, radio: DeviceRadio) -> PerDevice:
        """Power in W beside idle_w and the amplifier while a device sends: of the radio, else by its profile."""
        amplifier_w = radio.tx_power_w / radio.efficiency
        return self._beyond_idle(radio.stated_circuit_w, tuple(its.transmit_w for its in self.stated), amplifier_w)

    def receive_w(self, radio: DeviceRadio) -> PerDevice:
        """Power in W beside idle_w while a device receives: of the radio, else by its profile."""
        return self._beyond_idle(radio.stated("receive_w"), tuple(its.receive_w for its in self.stated), 0.0)

    def _beyond_idle(self, own_w: float | None, whole_w: tuple[float | None, ...], besides_w: float) -> PerDevice:
        if own_w is not None:
            return PerDevice((own_w,) * len(whole_w), self.which)
        idle_w = self.idle_w.values
        beyond = (0.0 if its is None else its - idle - besides_w for its, idle in zip(whole_w, idle_w, strict=True))
        return PerDevice(tuple(max(each, 0.0) for each in beyond), self.which)

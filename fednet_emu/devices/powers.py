"""Power of devices without computations: permanent idle power, and additional power while sending or receiving.

The energy of a device over a time T is idle_w T, plus the additional power while sending times the sending time, plus
the additional power while receiving times the receiving time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.radio.channel import DeviceRadio
from fednet_emu.radio.energy import Transmitter


class PerDevice:
    """A number for each device from a small set of values; one byte per device is the index of its value."""

    __slots__ = ("_which", "values")

    def __init__(self, values: tuple[float, ...], which: bytes) -> None:
        self.values, self._which = values, which

    def __getitem__(self, device: int) -> float:
        return self.values[self._which[device]]

    def of(self, devices: IntArray) -> Array:
        return np.array(self.values)[np.frombuffer(self._which, np.uint8)[devices]]

    @property
    def all(self) -> Array:
        return np.array(self.values)[np.frombuffer(self._which, np.uint8)]

    @property
    def total(self) -> float:
        counts = np.bincount(np.frombuffer(self._which, np.uint8), minlength=len(self.values))
        return float(counts @ np.array(self.values))

    @property
    def differ(self) -> bool:
        return len(set(self.values)) > 1

    def __bool__(self) -> bool:
        return any(self.values)


class Stated(NamedTuple):
    """Powers from a device profile (see `Profile`), in W and dBm; None for an unknown value."""

    idle_w: float | None = None
    tx_consumption_w: float | None = None
    rx_consumption_w: float | None = None
    max_dbm: float | None = None
    amplifier_efficiency: float | None = None


class Sending(NamedTuple):
    """Amplifier efficiency and circuit power in W of each device; see `Transmitter`."""

    efficiency: PerDevice
    circuit_w: PerDevice


@dataclass(frozen=True)
class DevicePowers:
    """Powers of all devices while idle, sending and receiving."""

    which: bytes
    """Index of the profile of each device, one byte per device."""
    stated: tuple[Stated, ...]
    """Powers of each profile."""
    idle_w: PerDevice
    """Idle power in W of each device, which the device draws all the time."""

    @classmethod
    def of(cls, radio: DeviceRadio, which: bytes, stated: tuple[Stated, ...] = (Stated(),)) -> Self:
        """Return the powers of devices with the profile indices `which`; settings of the radio take precedence."""
        own = radio.idle_w
        idle_w = tuple((its.idle_w or 0.0) if own is None else own for its in stated)
        return cls(which, stated, PerDevice(idle_w, which))

    def transmitters(self, radio: DeviceRadio) -> tuple[Transmitter, ...]:
        """Return each profile's transmitter model, excluding `idle_w`; settings of the radio take precedence."""
        return tuple(
            radio.transmitter(_beyond(its.tx_consumption_w, idle_w), its.max_dbm, its.amplifier_efficiency)
            for its, idle_w in zip(self.stated, self.idle_w.values, strict=True)
        )

    def sending(self, radio: DeviceRadio) -> Sending:
        efficiency, circuit_w = zip(*((its.efficiency, its.circuit_w) for its in self.transmitters(radio)), strict=True)
        return Sending(PerDevice(efficiency, self.which), PerDevice(circuit_w, self.which))

    def rx_consumption_w(self, radio: DeviceRadio) -> PerDevice:
        """Return the additional power in W of each device while receiving, from the radio settings or the profile."""
        own_w, idle_w = radio.stated("rx_consumption_w"), self.idle_w.values
        beyond_w = (_beyond(its.rx_consumption_w, idle) or 0.0 for its, idle in zip(self.stated, idle_w, strict=True))
        return PerDevice(tuple(beyond_w if own_w is None else (own_w for _ in idle_w)), self.which)


def _beyond(whole_w: float | None, idle_w: float) -> float | None:
    return None if whole_w is None else max(whole_w - idle_w, 0.0)

"""Profiles of real devices: speed, powers and memory, with the kind of evidence for each value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.component.component import Component
from fednet_emu.devices.speeds import Speed
from fednet_emu.radio.profiles import Mark, check_marks, refuse_another

DeviceClass = Literal["microcontroller", "phone", "board", "accelerator", "laptop"]


class ProfileCompute(Component):
    """Computing speed and power of a profile."""

    flop_per_s: Speed
    """Training speed in FLOP/s, for forward and backward passes; a multiply-accumulate counts as 2 operations."""
    flop_per_s_range: tuple[Speed, Speed] | None
    """Range of the training speeds in FLOP/s that the source gives for different models; null if the source gives one
    speed."""
    overhead_s: float | None = Field(ge=0, le=1e6)
    """Fixed time of each computation, in s; null if no source gives this time, which is then taken as 0."""
    active_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole device while computing; null if unknown, so that computing energy is not counted."""
    active_w_range: tuple[float, float] | None
    """Range of the powers in W that sources give for different computations or power supplies; null if they give a
    single power."""


class ProfileRadio(Component):
    """Powers of a profile during radio transmission and reception."""

    tx_consumption_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole device while sending; null if no source gives this power. Only the settings of
    `channel.device` then determine this power."""
    rx_consumption_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole device while receiving; null if no source gives this power. It is then the idle power."""
    max_dbm: float | None = None
    """Radiated power in dBm at which the device draws `tx_consumption_w`; null if no source gives this power. It is
    then 23 dBm, the power of a handset."""
    amplifier_efficiency: float | None = Field(default=None, gt=0, le=1)
    """Ratio of radiated power to consumed power of the amplifier, which determines the power while sending. Null if no
    source gives it: the device then draws `tx_consumption_w` at any radiated power."""


class Evidence(Component):
    """Kind of evidence for each numeric field of a profile; null if the field is null.

    The kinds are `measured`, `derived`, `table`, `recalled` and `assumed`, in descending order of quality.
    """

    flop_per_s: Mark
    """Kind of evidence for the training speed."""
    overhead_s: Mark | None = None
    """Kind of evidence for the fixed time of a computation."""
    active_w: Mark | None = None
    """Kind of evidence for the power while computing."""
    idle_w: Mark | None = None
    """Kind of evidence for the idle power."""
    tx_consumption_w: Mark | None = None
    """Kind of evidence for the power while sending."""
    rx_consumption_w: Mark | None = None
    """Kind of evidence for the power while receiving."""
    max_dbm: Mark | None = None
    """Kind of evidence for the radiated power that belongs to `tx_consumption_w`."""
    amplifier_efficiency: Mark | None = None
    """Kind of evidence for the efficiency of the amplifier."""
    memory_bytes: Mark | None = None
    """Kind of evidence for the memory size."""


class Profile(Component):
    """Profile of a real device. Every numeric field has a value from a source, or is null.

    The training speed in FLOP/s differs by a factor of 2 to 5 between models, as `flop_per_s_range` shows. Ignored
    here: heat, other programs, and the dependence of power on the type of computation.
    """

    title: str = ""
    """Readable name of the device."""
    use: str = ""
    """Description of the device."""
    device_class: DeviceClass | None = None
    """Class of the device, which determines the plausible ranges of powers and FLOP/J; null for the joint range of all
    classes. An accelerator is a board with a GPU."""
    source: str
    """Source of the numbers."""
    year: int = Field(ge=1970, le=2100)
    """Year in which the device was first sold."""
    share: float = Field(1.0, gt=0, le=1e9)
    """Share of the devices that have this profile, relative to the shares of the other profiles in a mixture."""
    memory_bytes: float | None = Field(gt=0)
    """Memory in bytes."""
    compute: ProfileCompute
    idle_w: float | None = Field(ge=0, le=1e6)
    """Idle power in W of the whole device; null if no source gives this power, which is then taken as 0."""
    radio: ProfileRadio
    evidence: Evidence

    @property
    def numbers(self) -> dict[str, float | None]:
        """The numeric fields of the profile that need evidence, by name; None for a value that no source gives."""
        parts = (self.compute, self.radio, self)
        return {name: next(getattr(part, name) for part in parts if hasattr(part, name)) for name in self.marks}

    @property
    def marks(self) -> dict[str, Mark | None]:
        """The kind of evidence for each numeric field, by name; None for a field without a value."""
        return dict(self.evidence)

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_device(cls, given: Any) -> Any:
        return refuse_another("device", given)

    def _check(self) -> None:
        check_marks(self.numbers, self.marks)
        for name in ("active_w", "tx_consumption_w", "rx_consumption_w"):
            power_w = self.numbers[name]
            if power_w is not None and power_w < (self.idle_w or 0.0):
                raise ValueError(
                    f"{name}: is the power of the whole device, idle power included, got {power_w:g} W below "
                    f"idle_w {self.idle_w:g}; give at least that"
                )


def dealt(profiles: Sequence[Profile], count: int, rng: Callable[[], np.random.Generator]) -> bytes:
    """Assign profiles to `count` devices, and return the index of each device's profile as one byte.

    The number of devices of each profile follows from the shares by the largest remainder method, and the devices are
    assigned at random. `rng` returns the random generator; it is called only if there are several profiles. With one
    profile or none, all indices are 0.
    """
    if len(profiles) < 2:
        return bytes(count)
    shares = np.array([profile.share for profile in profiles])
    exact = count * (shares / shares.sum())
    counts = np.floor(exact).astype(np.int64)
    left = np.argsort(counts - exact, kind="stable")
    counts[left[: count - counts.sum()]] += 1
    return rng().permutation(np.repeat(np.arange(len(profiles), dtype=np.uint8), counts)).tobytes()

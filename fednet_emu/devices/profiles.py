"""Profiles: devices that exist, with their speed, powers and memory, each number with how well it is known."""

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
    """How a device of a profile computes."""

    flop_per_s: Speed
    """Speed while it trains, in FLOP/s: 2 for each multiply-accumulate, forward and backward."""
    flop_per_s_range: tuple[Speed, Speed] | None
    """The speeds that the source gives for other models; null where it has only one."""
    overhead_s: float | None = Field(ge=0, le=1e6)
    """Time in s that a computation takes beside its operations; null where no source states it, and none is counted."""
    active_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole device while it computes; null where no source states it: its energy is not counted."""
    active_w_range: tuple[float, float] | None
    """The powers that sources give for other work or supplies; null where there is only one."""


class ProfileRadio(Component):
    """What a device of a profile draws while its radio works."""

    transmit_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole device while it sends; null where no source states it: then only what the settings of
    `channel.device` give is counted."""
    receive_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole device while it receives; null where no source states it, and counted as idle."""
    most_dbm: float | None = None
    """Radiated power in dBm for which `transmit_w` holds; null where no source states it: 23 is taken, that of a
    handset."""
    amplifier_efficiency: float | None = Field(default=None, gt=0, le=1)
    """Radiated over drawn power of the amplifier, by which power while sending follows the radiated power; null where
    no source states it: the device then draws `transmit_w` at any radiated power."""


class Evidence(Component):
    """How well each number of a profile is known; null for a number that is not given."""

    flop_per_s: Mark
    """That of the speed."""
    overhead_s: Mark | None = None
    """That of the fixed time of a computation."""
    active_w: Mark | None = None
    """That of the power while it computes."""
    idle_w: Mark | None = None
    """That of the power while it waits."""
    transmit_w: Mark | None = None
    """That of the power while it sends."""
    receive_w: Mark | None = None
    """That of the power while it receives."""
    most_dbm: Mark | None = None
    """That of the radiated power for which the power while it sends holds."""
    amplifier_efficiency: Mark | None = None
    """That of the efficiency of the amplifier."""
    memory_bytes: Mark | None = None
    """That of the memory."""


class Profile(Component):
    """A device that exists. Every number is stated, or null where no source states it.

    One FLOP/s per device is good to a factor of 2 to 5 between models, as `flop_per_s_range` shows.
    Ignored here: heat, other programs, and how the power varies with the kind of work.
    """

    title: str = ""
    """A readable name of the device."""
    use: str = ""
    """What the device is."""
    device_class: DeviceClass | None = None
    """The class of devices that plausible powers and FLOP/J are those of; null takes those of all classes together. An
    accelerator is a board with a GPU."""
    source: str
    """Where its numbers come from."""
    year: int = Field(ge=1970, le=2100)
    """When the device was first sold."""
    share: float = Field(1.0, gt=0, le=1e9)
    """The part of the devices that are of this profile, relative to the other profiles of a mixture."""
    memory_bytes: float | None = Field(gt=0)
    """Memory in bytes."""
    compute: ProfileCompute
    idle_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole device while it waits; null where no source states it, and not counted."""
    radio: ProfileRadio
    evidence: Evidence

    @property
    def numbers(self) -> dict[str, float | None]:
        """The numbers that have a mark, by name; None where no source states one."""
        compute, radio = self.compute, self.radio
        return {
            "flop_per_s": compute.flop_per_s,
            "overhead_s": compute.overhead_s,
            "active_w": compute.active_w,
            "idle_w": self.idle_w,
            "transmit_w": radio.transmit_w,
            "receive_w": radio.receive_w,
            "most_dbm": radio.most_dbm,
            "amplifier_efficiency": radio.amplifier_efficiency,
            "memory_bytes": self.memory_bytes,
        }

    @property
    def marks(self) -> dict[str, Mark | None]:
        """How well each of these numbers is known; None for one that is not stated."""
        return {name: getattr(self.evidence, name) for name in self.numbers}

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_device(cls, given: Any) -> Any:
        return refuse_another("device", given)

    @model_validator(mode="after")
    def _numbers_have_marks(self) -> Profile:
        check_marks(self.numbers, self.marks)
        return self

    @model_validator(mode="after")
    def _idles_least(self) -> Profile:
        for name in ("active_w", "transmit_w", "receive_w"):
            power_w = self.numbers[name]
            if power_w is not None and power_w < (self.idle_w or 0.0):
                raise ValueError(
                    f"{name}: is the power of the whole device, idle power included, got {power_w:g} W below "
                    f"idle_w {self.idle_w:g}; give at least that"
                )
        return self


def dealt(profiles: Sequence[Profile], count: int, rng: Callable[[], np.random.Generator]) -> bytes:
    """The number of the profile that each device has, [count].

    Each profile gets its share of the devices to the nearest whole number, by largest remainders; which devices these
    are is drawn. `rng` is asked only for a mixture; without profiles all numbers are 0.
    """
    if len(profiles) < 2:
        return bytes(count)
    shares = np.array([profile.share for profile in profiles])
    exact = count * (shares / shares.sum())
    counts = np.floor(exact).astype(np.int64)
    left = np.argsort(counts - exact, kind="stable")
    counts[left[: count - counts.sum()]] += 1
    return rng().permutation(np.repeat(np.arange(len(profiles), dtype=np.uint8), counts)).tobytes()

"""How fast devices compute, in floating-point operations per second, and what that costs in energy."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fednet_emu.component import Component, Slot
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.energy import compute_energy_j
from fednet_emu.units import Array

Speed = Annotated[float, Field(gt=0)]


class Speeds(Component):
    """The law of the devices' speeds."""

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Speeds [count] in FLOP/s."""


class FixedSpeed(Speeds):
    """All devices are equally fast."""

    kind: Literal["fixed"] = "fixed"
    flop_per_s: Speed

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """The same speed for all."""
        return np.full(count, self.flop_per_s)


class LogNormalSpeed(Speeds):
    """Speeds spread around a median: median exp(sigma Z), Z standard normal."""

    kind: Literal["log-normal"] = "log-normal"
    median_flop_per_s: Speed
    sigma: float = Field(ge=0)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """One draw per device."""
        speeds: Array = self.median_flop_per_s * np.exp(self.sigma * rng.standard_normal(count))
        return speeds


class ListedSpeeds(Speeds):
    """One speed per device."""

    kind: Literal["list"] = "list"
    flop_per_s: tuple[Speed, ...] = Field(min_length=1)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """The speeds as given.

        Raises:
            ScenarioError: there are not as many speeds as devices.
        """
        given = len(self.flop_per_s)
        if given < count:
            raise ScenarioError(
                f"devices.speed.flop_per_s: dev-{given} has no speed, got a list of {given}; "
                f"one per device, {count}, is right"
            )
        if given > count:
            raise ScenarioError(f"devices.speed.flop_per_s: got {given} speeds; one per device, {count}, is right")
        return np.array(self.flop_per_s)


SPEEDS = {"fixed": FixedSpeed, "log-normal": LogNormalSpeed, "list": ListedSpeeds}
AnySpeeds = Annotated[Speeds, Slot("speed", SPEEDS)]


class Processor(Component):
    """The energy model of a processor: kappa x cycles x f^2, where f = speed / flop_per_cycle.

    The defaults are a CPU core with 8 operations per cycle and the kappa of most papers (wireless.md, section 5).
    """

    flop_per_cycle: float = Field(8.0, gt=0)
    kappa: float = Field(1e-28, ge=0)

    def energy_j(self, flop: float, flop_per_s: float) -> float:
        """Energy of a computation at a speed, however long it took."""
        return compute_energy_j(flop / self.flop_per_cycle, flop_per_s / self.flop_per_cycle, self.kappa)

"""How fast devices compute, in floating-point operations per second."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fednet_emu.component import Component, Slot
from fednet_emu.errors import ScenarioError
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

"""Energy harvesting: sources of power or of energy packets that charge a battery.

The power of a source is piecewise constant, so the charge of a battery can be computed exactly at every nanosecond.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field, field_validator

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.kernel.streams import uniform


class Piece(NamedTuple):
    """An interval with constant harvested power in W until `until_ns`, when a packet of `arrival_j` is harvested."""

    power_w: float
    until_ns: int
    arrival_j: float = 0.0


class Source(Protocol):
    """Protocol of the energy source of one battery."""

    def piece(self, now_ns: int) -> Piece:
        """Return the interval after `now_ns`; an energy packet at exactly `now_ns` belongs to the previous interval."""


class StepSource:
    """A periodic energy source that repeats the given powers in W, each of which lasts `step_ns`."""

    def __init__(self, power_w: tuple[float, ...], step_ns: int) -> None:
        self._power_w, self._step_ns = power_w, step_ns

    def piece(self, now_ns: int) -> Piece:
        step = now_ns // self._step_ns
        return Piece(self._power_w[step % len(self._power_w)], (step + 1) * self._step_ns)


class PoissonSource:
    """A source of energy packets of equal size that arrive by a Poisson process; `key` determines the arrival times."""

    def __init__(self, arrival_j: float, mean_s: float, key: int) -> None:
        self._arrival_j, self._mean_s, self._key = arrival_j, mean_s, key
        self._count, self._times_ns = 0, [0]

    def piece(self, now_ns: int) -> Piece:
        """Return the interval until the next packet; the time may go back only over stored times (`_MOST_PAST`)."""
        times_ns = self._times_ns
        while times_ns[-1] <= now_ns:
            gap_s = -self._mean_s * math.log(uniform(self._key, self._count))
            times_ns.append(times_ns[-1] + max(to_ns(gap_s), 1))
            self._count += 1
        place = bisect_right(times_ns, now_ns)
        until_ns = times_ns[place]
        if place > _MOST_PAST:
            del times_ns[: place - _MOST_PAST // 2]
        return Piece(0.0, until_ns, self._arrival_j)


_MOST_PAST = 1 << 12
"""Maximum number of past arrival times that are stored; the older half is dropped when there are more."""


class Harvesting(Component):
    """Energy source of the batteries."""

    @property
    @abstractmethod
    def mean_w(self) -> float:
        """Long-term mean of the harvested power in W."""

    def source(self, key: int) -> Source:
        """Return the energy source of one device, by default of constant power; `key` seeds its random numbers."""
        return StepSource((self.mean_w,), FOREVER_NS)


class NoHarvesting(Harvesting):
    """No energy source: a device with an empty battery stays absent."""

    kind = "none"

    @property
    def mean_w(self) -> float:
        return 0.0


class ConstantHarvesting(Harvesting):
    """A source of constant power."""

    kind = "constant"
    power_w: float = Field(default=0.1, ge=0, le=1e6)
    """Harvested power in W."""

    @property
    def mean_w(self) -> float:
        return self.power_w


class PoissonHarvesting(Harvesting):
    """Energy packets that arrive at random times, by an independent Poisson process for each device.

    The Poisson process is the usual model of energy arrivals; see B. Güler, A. Yener, "Sustainable Federated Learning",
    2021, https://arxiv.org/abs/2102.11274.
    """

    kind = "poisson"
    arrival_j: float = Field(default=1.0, gt=0, le=1e9)
    """Energy of a packet, in J."""
    mean_interval_s: float = Field(default=10.0, ge=1e-3, le=1e7)
    """Mean time between the arrivals of two packets, in s."""

    @property
    def mean_w(self) -> float:
        return self.arrival_j / self.mean_interval_s

    def source(self, key: int) -> Source:
        return PoissonSource(self.arrival_j, self.mean_interval_s, key)


class TraceHarvesting(Harvesting):
    """A source that repeats a list of powers, each of which lasts `step_s`."""

    kind = "trace"
    power_w: tuple[float, ...] = Field(min_length=1)
    """Harvested powers in W, in order of time."""
    step_s: float = Field(default=60.0, ge=1e-2, le=1e7)
    """Duration of each power, in s."""

    @field_validator("power_w")
    @classmethod
    def _are_powers(cls, power_w: tuple[float, ...]) -> tuple[float, ...]:
        wrong = [value for value in power_w if not 0 <= value <= 1e6]
        if wrong:
            raise ValueError(f"powers must be from 0 to 1e6 W, got {wrong[0]:g}")
        return power_w

    @property
    def mean_w(self) -> float:
        return sum(self.power_w) / len(self.power_w)

    def source(self, key: int) -> Source:
        return StepSource(self.power_w, to_ns(self.step_s))


class SolarHarvesting(Harvesting):
    """A solar panel: power follows half a sine from sunrise to sunset, and is 0 at night; a run starts at sunrise.

    The power of a step is the mean of the sine over the step, so the energy of a day is exactly peak_w x day_s / pi.
    Ignored here: clouds, seasons, and differences between devices.
    """

    kind = "solar"
    peak_w: float = Field(default=1.0, ge=0, le=1e6)
    """Power at noon, in W."""
    day_s: float = Field(default=86_400.0, ge=1.0, le=1e9)
    """Time from one sunrise to the next, in s; half of this time is night."""
    steps: int = Field(default=96, ge=2, le=100_000, multiple_of=2)
    """Number of steps in a day, each with a constant power."""

    @property
    def mean_w(self) -> float:
        return self.peak_w / math.pi

    def source(self, key: int) -> Source:
        half = self.steps // 2
        cosines = [math.cos(math.pi * step / half) for step in range(half + 1)]
        day = [self.peak_w * (cosines[n] - cosines[n + 1]) * half / math.pi for n in range(half)]
        return StepSource((*day, *([0.0] * half)), to_ns(self.day_s / self.steps))


HARVESTINGS: dict[str, type[Harvesting]] = kinds(
    NoHarvesting, ConstantHarvesting, PoissonHarvesting, SolarHarvesting, TraceHarvesting
)
AnyHarvesting = Annotated[Harvesting, Slot("harvesting", HARVESTINGS)]

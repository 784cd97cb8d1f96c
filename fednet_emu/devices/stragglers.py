"""Straggler models: distributions of computation times, relative to the nominal time."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from itertools import repeat
from typing import Annotated, Any

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Straggler(Component):
    """Distribution of computation times, relative to the nominal time, which is operations divided by speed."""

    @abstractmethod
    def duration_s(self, nominal_s: float, device: int, start_s: float, uniform: float) -> float:
        """Return the duration in s of a computation that starts at `start_s`; `uniform` is random in (0, 1)."""

    def durations_s(self, nominal_s: Array, devices: IntArray, start_s: float, uniform: Array) -> Array:
        """Return the durations [n] in s of computations that start together, bit-identical to `duration_s`."""
        columns = nominal_s.tolist(), devices.tolist(), repeat(start_s), uniform.tolist()
        return np.array(list(map(self.duration_s, *columns)), np.float64)


class NoStraggler(Straggler):
    """Computations take their nominal time."""

    kind = "none"

    def duration_s(self, nominal_s: float, device: int, start_s: float, uniform: float) -> float:
        return nominal_s


class ShiftedExponential(Straggler):
    """Nominal time T0 with an exponential tail: T = T0 (1 + mean_factor E), where E ~ Exp(1).

    This is the usual model of coded computing (Lee et al., IEEE Trans. Inf. Theory 64(3), 2018).
    """

    mean_factor: float = Field(ge=0)
    """Mean of the exponential tail, as a multiple of the nominal time."""

    def duration_s(self, nominal_s: float, device: int, start_s: float, uniform: float) -> float:
        return nominal_s * (1.0 - self.mean_factor * math.log1p(-uniform))

    def durations_s(self, nominal_s: Array, devices: IntArray, start_s: float, uniform: Array) -> Array:
        logs = np.array(list(map(math.log1p, (-uniform).tolist())))
        return nominal_s * (1.0 - self.mean_factor * logs)


class LogNormal(Straggler):
    """Log-normal time with the nominal time T0 as median: T = T0 exp(sigma Z), where Z is standard normal."""

    sigma: float = Field(ge=0, le=10)
    """Standard deviation of the natural logarithm of the time; if it is 0, all times are nominal."""

    def duration_s(self, nominal_s: float, device: int, start_s: float, uniform: float) -> float:
        return nominal_s * math.exp(self.sigma * float(scipy.special.ndtri(uniform)))


class NormalSteps(Straggler):
    """Normally distributed step times: n steps take T0 + deviation_s sqrt(n) Z, where Z is standard normal.

    T0 is the nominal time of the n steps. Wang et al. (IEEE Journal on Selected Areas in Communications 37(6), 2019)
    measured this distribution.
    """

    step_s: float = Field(gt=0)
    """Nominal time of one step, in s; the number n of steps is the nominal time of the computation divided by `step_s`.
    """
    deviation_s: float = Field(ge=0)
    """Standard deviation of the time of one step, in s."""

    def duration_s(self, nominal_s: float, device: int, start_s: float, uniform: float) -> float:
        deviation_s = self.deviation_s * math.sqrt(nominal_s / self.step_s)
        return max(nominal_s + deviation_s * float(scipy.special.ndtri(uniform)), 1e-9)


class Pareto(Straggler):
    """Pareto-distributed time, at least the nominal time T0: P(T > t) = (T0 / t)^alpha."""

    alpha: float = Field(gt=1)
    """Exponent alpha of the tail, which is heavier for smaller exponents; the mean time is T0 alpha / (alpha - 1)."""

    def duration_s(self, nominal_s: float, device: int, start_s: float, uniform: float) -> float:
        return nominal_s * math.pow(1.0 - uniform, -1.0 / self.alpha)


class SlowWindow(Straggler):
    """The listed devices compute at 1 / `factor` of their speed from `from_s` to `to_s`."""

    devices: tuple[int, ...] = Field(min_length=1)
    """Indices of the slow devices, from 0."""
    factor: float = Field(gt=1)
    """Factor by which the listed devices are slower."""
    from_s: float = Field(ge=0)
    """Start of the window, in s of simulated time."""
    to_s: float = Field(gt=0)
    """End of the window, in s of simulated time."""

    def _check(self) -> None:
        if self.to_s <= self.from_s:
            raise ValueError(f"to_s must be after from_s, got {self.from_s:g} and {self.to_s:g}")

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        count = scenario.devices.count
        if unknown := [device for device in self.devices if not 0 <= device < count]:
            yield "devices", f"no such devices, got {unknown}; must be from 0 to {count - 1}"

    def duration_s(self, nominal_s: float, device: int, start_s: float, uniform: float) -> float:
        if device not in self.devices or start_s >= self.to_s:
            return nominal_s
        before_s = max(self.from_s - start_s, 0.0)
        if nominal_s <= before_s:
            return nominal_s
        inside_s = self.to_s - max(start_s, self.from_s)
        slow_s = (nominal_s - before_s) * self.factor
        if slow_s <= inside_s:
            return before_s + slow_s
        return before_s + inside_s + (nominal_s - before_s - inside_s / self.factor)


STRAGGLERS = kinds(NoStraggler, ShiftedExponential, LogNormal, NormalSteps, Pareto, SlowWindow)
AnyStraggler = Annotated[Straggler, Slot("straggler", STRAGGLERS)]

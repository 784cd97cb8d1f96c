"""Computing speeds of devices, in floating-point operations per second."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from fednet_emu.arrays import Array, exp
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.files.data_folder import locate
from fednet_emu.files.flash import batch_times_s, benchmark_scores, user_scores

Speed = Annotated[float, Field(gt=1e-3, le=1e21)]


class Speeds(Component):
    """Distribution of computing speeds over devices."""

    relative: ClassVar[bool] = False
    """Whether the drawn numbers are factors by which the speeds of `devices.profile` are multiplied; else they are
    speeds."""

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator, data_dir: Path | None = None) -> Array:
        """Return the speeds [count] in FLOP/s or, if `relative` is True, factors of the profile's speeds."""


class FixedSpeed(Speeds):
    """The same speed for all devices."""

    kind = "fixed"
    flop_per_s: Speed
    """Speed of every device in FLOP/s."""

    def draw(self, count: int, rng: np.random.Generator, data_dir: Path | None = None) -> Array:
        return np.full(count, self.flop_per_s)


class LogNormalSpeed(Speeds):
    """Log-normally distributed speeds: median * exp(sigma Z), where Z is standard normal."""

    kind = "log-normal"
    median_flop_per_s: Speed | None = None
    """Median speed of the devices in FLOP/s; null for the speed of `devices.profile`."""
    sigma: float = Field(ge=0, le=10)
    """Standard deviation of the natural logarithm of the speed; if it is 0, all devices have the same speed."""

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.median_flop_per_s is None

    def draw(self, count: int, rng: np.random.Generator, data_dir: Path | None = None) -> Array:
        return (self.median_flop_per_s or 1.0) * exp(self.sigma * rng.standard_normal(count))


class ListedSpeeds(Speeds):
    """Given speeds, one per device."""

    kind = "list"
    flop_per_s: tuple[Speed, ...] = Field(min_length=1)
    """Speeds in FLOP/s, one per device, in the order of the devices."""

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        if len(self.flop_per_s) != (count := scenario.devices.count):
            what = f"not one for each device, got {len(self.flop_per_s)}"
            yield "flop_per_s", f"{what}; must be as many as devices.count, {count}"

    def draw(self, count: int, rng: np.random.Generator, data_dir: Path | None = None) -> Array:
        return np.array(self.flop_per_s)


class FlashSpeed(Speeds):
    """Phones of real users, with speeds from FLASH's AI-Benchmark scores and measured training times.

    Each device is assigned the phone model of a random user in FLASH. The speed of the device is `median_flop_per_s`,
    multiplied by the speed of its phone model relative to the median over all users. Source: Yang et al.,
    "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone data", WWW 2021.
    """

    kind = "flash"
    median_flop_per_s: Speed
    """Median speed of the phone models, in FLOP/s."""
    path: str = "device_flash"
    """Folder of FLASH's files, as a path within the data folder or an absolute path."""
    rule: Literal["nearest", "interpolated"] = "interpolated"
    """Speed of phone models that were not measured: `nearest` takes the speed of the measured phone with the nearest
    score, as in FLASH; `interpolated` interpolates by score between measured phones."""

    def draw(self, count: int, rng: np.random.Generator, data_dir: Path | None = None) -> Array:
        folder = locate(self.path, data_dir)
        scores = np.array(list(user_scores(folder).values()))
        times_s = batch_times_s(scores, benchmark_scores(folder), self.rule)
        picked = (rng.random(count) * len(scores)).astype(np.int64)
        return self.median_flop_per_s * np.median(times_s) / times_s[picked]


SPEEDS = kinds(FixedSpeed, LogNormalSpeed, ListedSpeeds, FlashSpeed)
AnySpeeds = Annotated[Speeds, Slot("speed", SPEEDS)]


def _numbered(slowdown: Any) -> Any:
    if not isinstance(slowdown, Mapping):
        return slowdown
    return {key.removeprefix("dev-") if isinstance(key, str) else key: factor for key, factor in slowdown.items()}


Slowdowns = Annotated[dict[int, Annotated[float, Field(ge=1e-6, le=1e6)]], BeforeValidator(_numbered)]
"""Factors by which the computation times of some devices are multiplied, by device index."""


class Frequency(Component):
    """Range of the clock frequencies, and the rule by which a device lowers its clock frequency.

    At a fraction x of the clock frequency f, a computation takes 1/x of the time and x^2 of the dynamic energy kappa C
    D f^2. Here kappa is the effective capacitance of the processor, and C D the number of clock cycles. Measured energy
    (`compute_energy: measured`) is power times time at any clock frequency. Ignored here: discrete steps of the clock
    frequency, and the time of a change.
    """

    part: float = Field(1.0, gt=0, le=100)
    """Clock frequency of every device, relative to the frequency of its nominal speed. If a plan or `within_s` chooses
    the clock frequency, this is the maximum."""
    min_part: float = Field(0.1, gt=0, le=100)
    """Minimum clock frequency that a plan or `within_s` may choose, relative to the frequency of the nominal speed; at
    most `part`."""
    within_s: float | None = Field(None, gt=0)
    """Target duration T in s of a computation. A computation of C clock cycles runs at the lowest sufficient clock
    frequency, f = C / T. Null: the clock frequency is set by `part`. A clock frequency from a plan of the round takes
    precedence."""

    @property
    def least(self) -> float:
        return min(1.0, self.min_part / self.part)

    def chosen(self, duration_s: float) -> float:
        """Return the chosen fraction of the maximum clock frequency; `duration_s` is the duration at the maximum."""
        return 1.0 if self.within_s is None else min(1.0, max(self.least, duration_s / self.within_s))

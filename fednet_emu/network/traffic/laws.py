"""Probability distributions of file sizes, and of time gaps between files, given by their quantile functions."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar

import scipy
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import Array, exp, log1p, power
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Law(Component):
    """A probability distribution of file sizes in bytes, or of time gaps between files in s."""

    UNIT: ClassVar[str]
    """Unit of the distribution, `byte` or `s`, which is the last part of the names of its settings."""

    @abstractmethod
    def quantiles(self, uniform: Array) -> Array:
        """Return the quantiles [n] of the distribution at the probabilities `uniform` [n] in (0, 1)."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Mean of the distribution, in bytes or in s."""

    def of(self, what: str) -> Any:
        """Return the value of the setting whose name consists of `what` and the unit, such as `mean_byte`."""
        return getattr(self, f"{what}_{self.UNIT}")


class FixedLaw(Law):
    """A constant size or gap."""

    @override
    def quantiles(self, uniform: Array) -> Array:
        return 0.0 * uniform + self.mean


class ExponentialLaw(Law):
    """The exponential distribution."""

    @override
    def quantiles(self, uniform: Array) -> Array:
        return -self.mean * log1p(-uniform)

    @property
    @override
    def mean(self) -> float:
        return float(self.of("mean"))


class LogNormalLaw(Law):
    """The log-normal distribution, truncated at an upper limit."""

    sigma: float = Field(gt=0, le=10)
    """Standard deviation of the natural logarithm of the size or gap."""

    @property
    def _level(self) -> float:
        """Logarithm of the upper limit, in standard deviations above the mean logarithm; infinity if unlimited."""
        most = self.of("max")
        return math.inf if most is None else math.log(most / self.of("mean")) / self.sigma + self.sigma / 2

    @override
    def quantiles(self, uniform: Array) -> Array:
        normal = scipy.special.ndtri(uniform * float(scipy.special.ndtr(self._level)))
        return float(self.of("mean")) * exp(self.sigma * normal - self.sigma**2 / 2)

    @property
    @override
    def mean(self) -> float:
        below = scipy.special.ndtr(self._level - self.sigma) / scipy.special.ndtr(self._level)
        return float(self.of("mean") * below)


class ParetoLaw(Law):
    """Bounded Pareto distribution, in which most values are small and a few large values make up most of the sum."""

    shape: float = Field(gt=0, le=10)
    """Tail exponent (shape parameter) of the Pareto distribution; values from 1.1 to 1.5 give heavy tails."""

    def _check(self) -> None:
        key, least, most = f"max_{self.UNIT}", self.of("min"), self.of("max")
        if most is None:
            raise ValueError(f"a Pareto law without an end has no variance, give {key}")
        if most <= least:
            raise ValueError(f"{key} must be above min_{self.UNIT}, got {most:g} and {least:g}")

    @override
    def quantiles(self, uniform: Array) -> Array:
        within = 1.0 - (self.of("min") / self.of("max")) ** self.shape
        return float(self.of("min")) * power(1.0 - uniform * within, -1.0 / self.shape)

    @property
    @override
    def mean(self) -> float:
        least, ratio, shape = self.of("min"), self.of("min") / self.of("max"), self.shape
        if shape == 1.0:
            return float(-least * math.log(ratio) / (1.0 - ratio))
        return float(shape / (shape - 1.0) * least * (1.0 - ratio ** (shape - 1.0)) / (1.0 - ratio**shape))


_MOST = 1e15


class FixedSize(FixedLaw):
    """Files that all have the same size."""

    kind, UNIT = "fixed", "byte"
    byte: float = Field(gt=0, le=_MOST)
    """Size of every file, in bytes."""

    @property
    @override
    def mean(self) -> float:
        return self.byte


class ExponentialSize(ExponentialLaw):
    """Exponentially distributed file sizes."""

    kind, UNIT = "exponential", "byte"
    mean_byte: float = Field(gt=0, le=_MOST)
    """Mean size of a file, in bytes."""


class LogNormalSize(LogNormalLaw):
    """Log-normally distributed file sizes."""

    kind, UNIT = "log-normal", "byte"
    mean_byte: float = Field(gt=0, le=_MOST)
    """Mean size of a file in bytes, before the distribution is truncated at `max_byte`."""
    max_byte: float | None = Field(None, gt=0, le=_MOST)
    """Maximum size of a file in bytes, at which the distribution is truncated; null for no maximum."""


class ParetoSize(ParetoLaw):
    """File sizes with a bounded Pareto distribution: many small files, and most bytes in a few large files."""

    kind, UNIT = "bounded-pareto", "byte"
    min_byte: float = Field(gt=0, le=_MOST)
    """Minimum size of a file, in bytes."""
    max_byte: float | None = Field(None, gt=0, le=_MOST)
    """Maximum size of a file, in bytes; required."""


class FixedGap(FixedLaw):
    """Equal gaps between files."""

    kind, UNIT = "fixed", "s"
    mean_s: float = Field(ge=0, le=1e9)
    """Gap between files, in s."""

    @property
    @override
    def mean(self) -> float:
        return self.mean_s


class ExponentialGap(ExponentialLaw):
    """Exponentially distributed gaps between files; if `after` is `arrival`, files arrive by a Poisson process."""

    kind, UNIT = "exponential", "s"
    mean_s: float = Field(gt=0, le=1e9)
    """Mean gap between files, in s."""


class LogNormalGap(LogNormalLaw):
    """Log-normally distributed gaps between files."""

    kind, UNIT = "log-normal", "s"
    mean_s: float = Field(gt=0, le=1e9)
    """Mean gap between files in s, before the distribution is truncated at `max_s`."""
    max_s: float | None = Field(None, gt=0, le=1e9)
    """Maximum gap in s, at which the distribution is truncated; null for no maximum."""


class ParetoGap(ParetoLaw):
    """Gaps between files with a bounded Pareto distribution."""

    kind, UNIT = "bounded-pareto", "s"
    min_s: float = Field(gt=0, le=1e9)
    """Minimum gap between files, in s."""
    max_s: float | None = Field(None, gt=0, le=1e9)
    """Maximum gap between files, in s; required."""


SIZES: dict[str, type[Law]] = kinds(FixedSize, ExponentialSize, LogNormalSize, ParetoSize)
GAPS: dict[str, type[Law]] = kinds(FixedGap, ExponentialGap, LogNormalGap, ParetoGap)
AnySize = Annotated[Law, Slot("size", SIZES)]
AnyGap = Annotated[Law, Slot("gap", GAPS)]

"""Fading: the fast fluctuation of a link's power that multipath causes, constant over one coherence block."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
import scipy
from pydantic import Field, field_validator

from fednet_emu.arrays import Array, Mask, expm1, log1p
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.units import SPEED_OF_LIGHT_M_S, db_to_linear

RARE = 1e-8
"""Share of the fading blocks that is too small to count on: one in fifty days of blocks of 43.5 ms."""


_LONGEST_SPREAD_S = 1e-4
_NARROW = 1e-3


class Fading(Component):
    """The law of the power gain in one coherence block, of mean 1 in linear power.

    A kind is the quantile function of its law: it maps a uniform variable to a gain and never decreases, so one set of
    uniforms compares two kinds on the same draws. Kinds whose law depends on line of sight are told; others ignore it.
    """

    if TYPE_CHECKING:  # pydantic lets no field implement an abstract property: only the type checker sees this one

        @property
        def coherence_s(self) -> float:
            """Duration of a block, after which the gain is drawn again; infinity when it never changes."""

    @abstractmethod
    def gain(self, uniform: float, los: bool = False) -> float:
        """Power gain of one block for a uniform in the open interval (0, 1)."""

    @abstractmethod
    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """Power gains of many blocks, the same law as `gain` for every element; `los` broadcasts."""

    @abstractmethod
    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """Probability that the gain of a block is at most each of `gain`."""

    def peak(self, los: bool = False) -> float:
        """The gain that fewer than one block in 10^8 exceeds, 18.4 (12.7 dB) under Rayleigh fading.

        A link whose SNR times this gain is too low counts as one that never carries anything. A gain that never
        changes is that of the one block.
        """
        return self.gain(0.5 if math.isinf(self.coherence_s) else 1.0 - RARE, los)

    def combined(self, branches: int) -> Fading:
        """The law of the mean of the gains of so many antennas that fade independently; of one, the law itself.

        That many times its gain is what maximum-ratio combining makes of them: the gains add up.

        Raises:
            ScenarioError: the sum of such gains has no known law.
        """
        if branches == 1:
            return self
        kind = self.kind
        raise ScenarioError(
            f"fading has no law of several antennas, got {kind} with {branches}; choose another one, a single antenna, "
            "or define its method `combined`"
        )


class NoFading(Fading):
    """The gain of a link never fluctuates."""

    kind = "none"

    @property
    def coherence_s(self) -> float:
        """Infinity: one block lasts for the whole run."""
        return math.inf

    def gain(self, uniform: float, los: bool = False) -> float:
        """Always 1."""
        return 1.0

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """Ones in the shape of `uniform`."""
        return np.ones_like(uniform)

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """A step from 0 to 1 at a gain of 1."""
        return np.where(gain < 1.0, 0.0, 1.0)

    def combined(self, branches: int) -> Fading:
        """The same: every antenna has a gain of 1."""
        return self


class BlockFading(Fading):
    """A gain that is drawn again in each block."""

    coherence_s: float = Field(default=0.0435, gt=0)
    """Duration of a block in s; left out, that of `speed_m_s` at `channel.carrier_hz`, to three digits: 0.0435 for
    3 km/h at 3.5 GHz. See `coherence_time_s`."""

    speed_m_s: float = Field(default=3.0 / 3.6, gt=0)
    """Speed in m/s of the terminals, by which a block lasts where `coherence_s` is left out; 3 km/h."""

    delay_spread_s: float | Literal["from-scenario"] | None = None
    """Root-mean-square spread in s of the delays of the paths, by which a wide band is selective: its rate is the mean
    over parts that fade independently (`independent_parts`). `from-scenario` is the median of TR 38.901 Table 7.5-6 for
    the path loss, with line of sight under Rician fading; null for one gain in the whole band."""

    @field_validator("delay_spread_s")
    @classmethod
    def _is_short(cls, spread_s: float | str | None) -> float | str | None:
        if isinstance(spread_s, float) and not 0 < spread_s <= _LONGEST_SPREAD_S:
            raise ValueError(
                f"is a time of nanoseconds to microseconds, got {spread_s:g} s; 3e-8 indoors and 3e-7 in cities are "
                "usual"
            )
        return spread_s

    def at_carrier(self, carrier_hz: float) -> Self:
        """The same with the coherence time of its speed at a carrier, unless it states one."""
        if "coherence_s" in self.model_fields_set:
            return self
        coherence_s = float(f"{coherence_time_s(self.speed_m_s, carrier_hz):.3g}")
        return self.model_copy(update={"coherence_s": coherence_s})

    @property
    def shape(self) -> float:
        """Squared mean over variance of the gain, by which parts of a band add up; 0 if that depends on the link."""
        return 0.0

    def over_band(self, parts: float) -> Fading:
        """The law of the mean gain over so many parts of a band: Gamma, of mean 1 and a variance divided by `parts`."""
        return Nakagami(m=self.shape * parts, coherence_s=self.coherence_s)

    def in_band(self, parts: float, branches: int) -> Fading:
        """The law of the gain of a part over the mean of the band, at so many antennas."""
        return InBand(shape=self.shape * branches, parts=parts)


class Rayleigh(BlockFading):
    """Rayleigh block fading: many paths, none dominant, so the power gain is exponential with mean 1.

    Ignored here: correlation between successive blocks. Averages of dB values are 2.5 dB below the dB value of the
    average.
    """

    @property
    def shape(self) -> float:
        """One: the variance is that of the mean squared."""
        return 1.0

    def gain(self, uniform: float, los: bool = False) -> float:
        """Exponential quantile -ln(1 - u)."""
        return -math.log1p(-uniform)

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """Exponential quantile -ln(1 - u) of every element."""
        return -log1p(-uniform)

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """1 - exp(-x)."""
        return -expm1(-gain)

    def combined(self, branches: int) -> Fading:
        """Gamma of shape `branches`, the law of a sum of exponential gains."""
        return self if branches == 1 else Nakagami(m=branches, coherence_s=self.coherence_s)


class Rician(BlockFading):
    """Rician block fading: one dominant path with K times the power of all others together.

    The gain is |sqrt(K / (K + 1)) + CN(0, 1 / (K + 1))|^2, so 2 (K + 1) times it is non-central chi-squared with two
    degrees of freedom and non-centrality 2 K. TR 38.901 Table 7.5-6 has K = 9 dB in cities and 7 dB indoors, both with
    line of sight.
    Ignored here: the spread of K between places (3.5 to 8 dB there), correlation between blocks. With a delay spread
    the law is Nakagami's of the same variance.
    """

    k_db: float = Field(ge=-40, le=40)
    """Power of the dominant path over that of all others, in dB; -40 is Rayleigh, 40 hardly any fading."""

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the chi-squared law: two for each antenna."""
        return 2.0

    @property
    def shape(self) -> float:
        """(K + 1)^2 / (2 K + 1)."""
        k = db_to_linear(self.k_db)
        return (k + 1.0) ** 2 / (2.0 * k + 1.0)

    def gain(self, uniform: float, los: bool = False) -> float:
        """Non-central chi-squared quantile, scaled to mean 1."""
        k, degrees = db_to_linear(self.k_db), self.degrees
        return float(scipy.special.chndtrix(uniform, degrees, degrees * k)) / (degrees * (k + 1.0))

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """Non-central chi-squared quantile of every element, scaled to mean 1."""
        k, degrees = db_to_linear(self.k_db), self.degrees
        return np.asarray(scipy.special.chndtrix(uniform, degrees, degrees * k)) / (degrees * (k + 1.0))

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """Non-central chi-squared distribution function."""
        k, degrees = db_to_linear(self.k_db), self.degrees
        return np.asarray(scipy.special.chndtr(degrees * (k + 1.0) * gain, degrees, degrees * k))

    def combined(self, branches: int) -> Fading:
        """Non-central chi-squared with twice `branches` degrees of freedom and non-centrality 2 K `branches`."""
        if branches == 1:
            return self
        return CombinedRician(k_db=self.k_db, coherence_s=self.coherence_s, branches=branches)


class CombinedRician(Rician):
    """The mean of the gains of several antennas under Rician fading, each with the same K factor."""

    branches: int = Field(gt=0)
    """Number of antennas."""

    @property
    def degrees(self) -> float:
        """Two for each antenna."""
        return 2.0 * self.branches


class Nakagami(BlockFading):
    """Nakagami-m block fading: the power gain is Gamma with shape m and mean 1.

    m = 1 is Rayleigh, m = 0.5 the one-sided Gaussian, a large m hardly any fading.
    Ignored here: correlation between successive blocks.
    """

    m: float = Field(ge=0.5, le=1e6)
    """Shape; the variance of the power is 1 / m."""

    @property
    def shape(self) -> float:
        """`m`."""
        return self.m

    def gain(self, uniform: float, los: bool = False) -> float:
        """Gamma quantile, scaled to mean 1."""
        return float(scipy.special.gammaincinv(self.m, uniform)) / self.m

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """Gamma quantile of every element, scaled to mean 1."""
        return np.asarray(scipy.special.gammaincinv(self.m, uniform)) / self.m

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """Regularised lower incomplete Gamma function."""
        return np.asarray(scipy.special.gammainc(self.m, self.m * gain))

    def combined(self, branches: int) -> Fading:
        """Gamma of shape m `branches`."""
        return self if branches == 1 else Nakagami(m=self.m * branches, coherence_s=self.coherence_s)


class FadingByLineOfSight(BlockFading):
    """Rician fading on links with line of sight, Rayleigh on all others.

    Ignored here: correlation between successive blocks and between frequencies.
    """

    kind = "by-line-of-sight"

    delay_spread_s: None = None
    """One gain in the whole band: the parts of a band would differ with the state of the link."""

    k_db: float = Field(default=9.0, ge=-40, le=40)
    """K factor with line of sight; 9 dB is the mean in cities (TR 38.901 Table 7.5-6)."""

    def of(self, los: bool) -> Fading:
        """The law of a link in one of the two states."""
        if los:
            return Rician(k_db=self.k_db, coherence_s=self.coherence_s)
        return Rayleigh(coherence_s=self.coherence_s)

    def gain(self, uniform: float, los: bool = False) -> float:
        """Quantile of the law of the link's state."""
        if not los:
            return -math.log1p(-uniform)
        k = db_to_linear(self.k_db)
        return float(scipy.special.chndtrix(uniform, 2.0, 2.0 * k)) / (2.0 * (k + 1.0))

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """Quantile of the law of each element's state."""
        uniform, los = np.broadcast_arrays(uniform, los)
        gains = self.of(False).gains(uniform)
        gains[los] = self.of(True).gains(uniform[los])
        return gains

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """Distribution function of the law of each element's state."""
        return np.where(los, self.of(True).cdf(gain), self.of(False).cdf(gain))

    def combined(self, branches: int) -> Fading:
        """Each state's own law of several antennas, which are all in the same state."""
        if branches == 1:
            return self
        return CombinedByLineOfSight(k_db=self.k_db, coherence_s=self.coherence_s, branches=branches)


class CombinedByLineOfSight(FadingByLineOfSight):
    """The mean of the gains of several antennas, which are all in line of sight or none."""

    branches: int = Field(gt=0)
    """Number of antennas."""

    def of(self, los: bool) -> Fading:
        """The law of a link in one of the two states."""
        return super().of(los).combined(self.branches)

    def gain(self, uniform: float, los: bool = False) -> float:
        """Quantile of the law of the link's state."""
        return self.of(los).gain(uniform)


class InBand(Fading):
    """The gain of a part of a band over the mean of all parts: `parts` times a Beta variable, of mean 1.

    Parts with Gamma gains of one shape m have it, whatever their mean is: it is independent of it.
    """

    kind = "in-band"

    shape: float = Field(gt=0)
    """Shape m of the gain of a part."""

    parts: float = Field(gt=1)
    """Number of parts, which need not be whole."""

    @property
    def coherence_s(self) -> float:
        """Infinity: all parts are there at once."""
        return math.inf

    def gain(self, uniform: float, los: bool = False) -> float:
        """Beta quantile, scaled to mean 1."""
        return self.parts * float(scipy.special.betaincinv(self.shape, self.shape * (self.parts - 1.0), uniform))

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """Beta quantile of every element, scaled to mean 1."""
        return self.parts * np.asarray(scipy.special.betaincinv(self.shape, self.shape * (self.parts - 1.0), uniform))

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """Regularised incomplete Beta function."""
        share = np.minimum(gain / self.parts, 1.0)
        return np.asarray(scipy.special.betainc(self.shape, self.shape * (self.parts - 1.0), share))


def independent_parts(bandwidth_hz: float, delay_spread_s: float) -> float:
    """How many independent parts have the variance of the mean gain over a band, at least 1.

    Paths of a power that falls exponentially with their delay have gains at two frequencies with the correlation 1 / (1
    + (2 pi d tau)^2). Its mean over a band is 1 / L = (2 a arctan(a) - ln(1 + a^2)) / a^2 with a = 2 pi tau B: L is 1
    in a narrow band and 2 B tau in a wide one, whose coherence bandwidth is 1 / (2 tau).
    """
    a = 2.0 * math.pi * delay_spread_s * bandwidth_hz
    if a < _NARROW:
        return 1.0
    return a * a / (2.0 * a * math.atan(a) - math.log1p(a * a))


def coherence_time_s(speed_m_s: float, carrier_hz: float) -> float:
    """Coherence time 0.423 / f_D of a terminal that moves at a speed, f_D = v f / c; infinity at rest.

    This is the geometric mean of 1 / f_D and 9 / (16 pi f_D) (Rappaport, Wireless Communications): a convention, other
    texts differ by a factor of two either way.
    Ignored here: the angular spread of the paths, and scatterers that move while the terminal rests.
    """
    doppler_hz = speed_m_s * carrier_hz / SPEED_OF_LIGHT_M_S
    return 0.423 / doppler_hz if doppler_hz > 0 else math.inf


FADINGS: dict[str, type[Fading]] = kinds(NoFading, Rayleigh, Rician, Nakagami, FadingByLineOfSight)

AnyFading = Annotated[Fading, Slot("fading", FADINGS)]

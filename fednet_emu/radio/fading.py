"""Fading: the fast fluctuation of a link's power due to multipath; the power is constant within a coherence block."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
import scipy
from pydantic import Field, field_validator

from fednet_emu.arrays import Array, Mask, expm1, log1p
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.units import SPEED_OF_LIGHT_M_S, db_to_linear

RARE = 1e-8
"""Share of fading blocks that counts as negligible, 10^-8: one block of 43.5 ms in fifty days."""

_LONGEST_SPREAD_S = 1e-4
_NARROW = 1e-3


class Fading(Component):
    """The distribution of the power gain in one coherence block, with mean 1 in linear power.

    A kind of fading is a quantile function: it maps a uniform random number to a gain and never decreases. Two kinds
    can therefore be compared with the same uniform random numbers. The argument `los` is True for a link with line of
    sight; most kinds ignore it.
    """

    if TYPE_CHECKING:  # for the type checker only, because a pydantic field cannot implement an abstract property

        @property
        def coherence_s(self) -> float:
            """Duration of a fading block in s, after which the gain is drawn again; infinity for a constant gain."""

    def gain(self, uniform: float, los: bool = False) -> float:
        """Return the power gain of one block for a uniform random number in (0, 1); `los` is True for line of sight."""
        return float(self.gains(np.asarray(uniform), los))

    @abstractmethod
    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """Return the power gain for each number in `uniform`, with which `los` (line of sight) is broadcast."""

    @abstractmethod
    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """Return the probability that the gain of a block is at most `gain`, element by element; `los` is broadcast."""

    def peak(self, los: bool = False) -> float:
        """Return the power gain that one block in 10^8 exceeds, for example 18.4 (12.7 dB) under Rayleigh fading.

        A link counts as unable to carry data if even the product of its mean SNR and the peak gain is too low. If the
        gain never changes, the median gain serves as the peak.
        """
        return self.gain(0.5 if math.isinf(self.coherence_s) else 1.0 - RARE, los)

    def combined(self, branches: int) -> Fading:
        """Return the distribution of the mean gain of `branches` antennas that fade independently.

        Maximum-ratio combining adds up the gains of the antennas, so the combined gain is `branches` times the mean
        gain. A kind of fading without such a distribution raises a `ScenarioError` for more than one antenna.
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
    coherence_s: ClassVar[float] = math.inf

    def gain(self, uniform: float, los: bool = False) -> float:
        return 1.0

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        return np.ones_like(uniform)

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        return np.where(gain < 1.0, 0.0, 1.0)

    def combined(self, branches: int) -> Fading:
        return self


class BlockFading(Fading):
    """Block fading: the gain is drawn again in each block."""

    coherence_s: float = Field(default=0.0435, gt=0)
    """Duration of a block in s. By default, it is the coherence time at `speed_m_s` and `channel.carrier_hz` (see
    `coherence_time_s`), rounded to three digits. It is 0.0435 for 3 km/h at 3.5 GHz."""
    speed_m_s: float = Field(default=3.0 / 3.6, gt=0)
    """Speed of the terminals in m/s, by default 3 km/h, which sets the duration of a block if `coherence_s` is not
    given. It is not taken from `devices.mobility`."""
    delay_spread_s: float | Literal["from-scenario"] | None = None
    """Root-mean-square delay spread of the paths in s, which makes a wide band frequency selective: the rate is then
    the mean over parts of the band that fade independently (`independent_parts`). `from-scenario` takes the median of
    TR 38.901 Table 7.5-6 for the path-loss model, with line of sight if the fading is Rician. Null means one gain in
    the whole band."""

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
        """Return a copy with the coherence time at `speed_m_s` and `carrier_hz`, unless `coherence_s` is set."""
        if "coherence_s" in self.model_fields_set:
            return self
        coherence_s = float(f"{coherence_time_s(self.speed_m_s, carrier_hz):.3g}")
        return self.model_copy(update={"coherence_s": coherence_s})

    @property
    def shape(self) -> float:
        """Shape (squared mean / variance) of the Gamma approximation of the gain; 0 if it differs between links."""
        return 0.0

    def over_band(self, parts: float) -> Fading:
        """Return the distribution of the mean gain of `parts` sub-bands: Gamma with the shape `shape` x `parts`."""
        return Nakagami(m=self.shape * parts, coherence_s=self.coherence_s)

    def in_band(self, parts: float, branches: int) -> Fading:
        """Return the distribution of one sub-band's gain divided by the mean gain of all `parts` sub-bands.

        The gain of a sub-band is combined over `branches` antennas.
        """
        return InBand(shape=self.shape * branches, parts=parts)


class Rayleigh(BlockFading):
    """Rayleigh block fading for many paths, none of them dominant: the power gain is exponential with mean 1.

    Ignored here: correlation between successive blocks. The mean of the gains in dB is 2.5 dB lower than the mean gain
    converted to dB.
    """

    shape: ClassVar[float] = 1.0

    def gain(self, uniform: float, los: bool = False) -> float:
        return -math.log1p(-uniform)

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        return -log1p(-uniform)

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        return -expm1(-gain)

    def combined(self, branches: int) -> Fading:
        return self if branches == 1 else Nakagami(m=branches, coherence_s=self.coherence_s)


class Rician(BlockFading):
    """Rician block fading: one dominant path has K times the power of all other paths together.

    The gain is |sqrt(K / (K + 1)) + CN(0, 1 / (K + 1))|^2, where CN(m, v) is complex Gaussian with mean m and variance
    v. So 2 (K + 1) times the gain has a non-central chi-squared distribution with two degrees of freedom and
    non-centrality 2 K. TR 38.901 Table 7.5-6 gives K = 9 dB in cities and 7 dB indoors, both with line of sight.
    Ignored here: the standard deviation of K over positions (3.5 to 8 dB in the table), and correlation between blocks.
    If a delay spread is set, the gain has a Nakagami distribution with the same variance.
    """

    k_db: float = Field(ge=-40, le=40)
    """K factor in dB: ratio of the dominant path's power to the power of all other paths. At -40, the fading is
    Rayleigh; at 40, the gain is almost constant."""

    @property
    def degrees(self) -> float:
        return 2.0

    @property
    def shape(self) -> float:
        k = db_to_linear(self.k_db)
        return (k + 1.0) ** 2 / (2.0 * k + 1.0)

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        k, degrees = db_to_linear(self.k_db), self.degrees
        return np.asarray(scipy.special.chndtrix(uniform, degrees, degrees * k)) / (degrees * (k + 1.0))

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        k, degrees = db_to_linear(self.k_db), self.degrees
        return np.asarray(scipy.special.chndtr(degrees * (k + 1.0) * gain, degrees, degrees * k))

    def combined(self, branches: int) -> Fading:
        if branches == 1:
            return self
        return CombinedRician(k_db=self.k_db, coherence_s=self.coherence_s, branches=branches)


class CombinedRician(Rician):
    """The mean gain of several antennas under Rician fading, all with the same K factor."""

    branches: int = Field(gt=0)
    """Number of antennas."""

    @property
    def degrees(self) -> float:
        return 2.0 * self.branches


class Nakagami(BlockFading):
    """Nakagami-m block fading: the power gain is Gamma with shape m and mean 1.

    m = 1 is Rayleigh fading, m = 0.5 one-sided Gaussian fading, and a large m means hardly any fading.
    Ignored here: correlation between successive blocks.
    """

    m: float = Field(ge=0.5, le=1e6)
    """Shape of the distribution; the variance of the power gain is 1 / m."""

    @property
    def shape(self) -> float:
        return self.m

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        return np.asarray(scipy.special.gammaincinv(self.m, uniform)) / self.m

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        return np.asarray(scipy.special.gammainc(self.m, self.m * gain))

    def combined(self, branches: int) -> Fading:
        return self if branches == 1 else Nakagami(m=self.m * branches, coherence_s=self.coherence_s)


class FadingByLineOfSight(BlockFading):
    """Rician fading on links with line of sight, Rayleigh fading on all other links.

    Ignored here: correlation between successive blocks and between frequencies.
    """

    kind = "by-line-of-sight"
    delay_spread_s: None = None
    """Always null (one gain in the whole band), because the fading of sub-bands would depend on the line of sight."""
    k_db: float = Field(default=9.0, ge=-40, le=40)
    """K factor in dB of links with line of sight; 9 dB is the mean in cities (TR 38.901 Table 7.5-6)."""

    def of(self, los: bool) -> Fading:
        return self._states[los]

    @cached_property
    def _states(self) -> tuple[Fading, Fading]:
        return Rayleigh(coherence_s=self.coherence_s), Rician(k_db=self.k_db, coherence_s=self.coherence_s)

    def gain(self, uniform: float, los: bool = False) -> float:
        return self._states[los].gain(uniform)

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        uniform, los = np.broadcast_arrays(uniform, los)
        gains = self.of(False).gains(uniform)
        gains[los] = self.of(True).gains(uniform[los])
        return gains

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        return np.where(los, self.of(True).cdf(gain), self.of(False).cdf(gain))

    def combined(self, branches: int) -> Fading:
        if branches == 1:
            return self
        return CombinedByLineOfSight(k_db=self.k_db, coherence_s=self.coherence_s, branches=branches)


class CombinedByLineOfSight(FadingByLineOfSight):
    """The mean gain of several antennas, of which either all or none have line of sight."""

    branches: int = Field(gt=0)
    """Number of antennas."""

    @cached_property
    def _states(self) -> tuple[Fading, Fading]:
        without, with_ = super()._states
        return without.combined(self.branches), with_.combined(self.branches)


class InBand(Fading):
    """Ratio of the gain of one part of a band to the mean gain of all parts: `parts` times a Beta variable (mean 1).

    This distribution holds if all parts have Gamma gains of the same shape m; the ratio is then independent of the mean
    gain. The ratio varies over frequency and not over time, so the coherence time is infinite.
    """

    kind = "in-band"
    coherence_s: ClassVar[float] = math.inf
    shape: float = Field(gt=0)
    """Shape m of the Gamma distribution of a part's gain."""
    parts: float = Field(gt=1)
    """Number of parts of the band, not necessarily an integer."""

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        return self.parts * np.asarray(scipy.special.betaincinv(self.shape, self.shape * (self.parts - 1.0), uniform))

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        share = np.minimum(gain / self.parts, 1.0)
        return np.asarray(scipy.special.betainc(self.shape, self.shape * (self.parts - 1.0), share))


def independent_parts(bandwidth_hz: float, delay_spread_s: float) -> float:
    """Return the number (at least 1) of independent parts whose mean gain varies as much as that of the whole band.

    If the power of the paths falls exponentially with their delay, the gains at two frequencies d apart have the
    correlation 1 / (1 + (2 pi d tau)^2), where tau is the delay spread. The mean correlation over a band of width B is
    1 / L = (2 a arctan(a) - ln(1 + a^2)) / a^2 with a = 2 pi tau B. The number of parts L is 1 in a narrow band and
    about 2 B tau in a wide band, so the coherence bandwidth of a wide band is 1 / (2 tau).
    """
    a = 2.0 * math.pi * delay_spread_s * bandwidth_hz
    if a < _NARROW:
        return 1.0
    return a * a / (2.0 * a * math.atan(a) - math.log1p(a * a))


def coherence_time_s(speed_m_s: float, carrier_hz: float) -> float:
    """Return the coherence time 0.423 / f_D in s with the Doppler frequency f_D = v f / c; infinity at speed 0.

    This time is the geometric mean of 1 / f_D and 9 / (16 pi f_D) (Rappaport, Wireless Communications). The choice is a
    convention; values in other textbooks are between half and twice this time.
    Ignored here: the angular spread of the paths, and scatterers that move while the terminal does not.
    """
    doppler_hz = speed_m_s * carrier_hz / SPEED_OF_LIGHT_M_S
    return 0.423 / doppler_hz if doppler_hz > 0 else math.inf


FADINGS: dict[str, type[Fading]] = kinds(NoFading, Rayleigh, Rician, Nakagami, FadingByLineOfSight)

AnyFading = Annotated[Fading, Slot("fading", FADINGS)]

"""Fading: the fast fluctuation of a link's power that multipath causes, constant over one coherence block."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from fednet_emu.component import Component, Slot
from fednet_emu.units import SPEED_OF_LIGHT_M_S, Array


class Fading(Component):
    """The law of the power gain in one coherence block, of mean 1 in linear power.

    A kind is the quantile function of its law: it maps a uniform variable to a gain and never decreases, so one set of
    uniforms compares two kinds on the same luck.
    """

    if TYPE_CHECKING:  # pydantic lets no field implement an abstract property: only the type checker sees this one

        @property
        def coherence_s(self) -> float:
            """Duration of a block, after which the gain is drawn again; infinity when it never changes."""

    @abstractmethod
    def gain(self, uniform: float) -> float:
        """Power gain of one block for a uniform in the open interval (0, 1)."""

    @abstractmethod
    def gains(self, uniform: Array) -> Array:
        """Power gains of many blocks, the same law as `gain` for every element."""


class NoFading(Fading):
    """The gain of a link never fluctuates."""

    kind: Literal["none"] = "none"

    @property
    def coherence_s(self) -> float:
        """Infinity: one block lasts for the whole run."""
        return math.inf

    def gain(self, uniform: float) -> float:
        """Always 1."""
        return 1.0

    def gains(self, uniform: Array) -> Array:
        """Ones in the shape of `uniform`."""
        return np.ones_like(uniform)


class Rayleigh(Fading):
    """Rayleigh block fading: many paths, none dominant, so the power gain is exponential with mean 1.

    Ignored here: correlation between successive blocks and between frequencies (one gain for the whole band). Averages
    of dB values are 2.5 dB below the dB value of the average.
    """

    kind: Literal["rayleigh"] = "rayleigh"

    coherence_s: float = Field(default=0.0435, gt=0)
    """Duration of a block; the default is that of 3 km/h at 3.5 GHz, see `coherence_time_s`."""

    def gain(self, uniform: float) -> float:
        """Exponential quantile -ln(1 - u)."""
        return -math.log1p(-uniform)

    def gains(self, uniform: Array) -> Array:
        """Exponential quantile -ln(1 - u) of every element."""
        return -np.log1p(-uniform)


def coherence_time_s(speed_m_s: float, carrier_hz: float) -> float:
    """Coherence time 0.423 / f_D of a terminal that moves at a speed, f_D = v f / c; infinity at rest.

    This is the geometric mean of 1 / f_D and 9 / (16 pi f_D) (Rappaport, Wireless Communications): a convention, other
    texts differ by a factor of two either way.
    Ignored here: the angular spread of the paths, and scatterers that move while the terminal rests.
    """
    doppler_hz = speed_m_s * carrier_hz / SPEED_OF_LIGHT_M_S
    return 0.423 / doppler_hz if doppler_hz > 0 else math.inf


FADINGS: dict[str, type[Fading]] = {"none": NoFading, "rayleigh": Rayleigh}

AnyFading = Annotated[Fading, Slot("fading", FADINGS)]

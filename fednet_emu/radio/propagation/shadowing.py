"""Shadowing: the slow, random part of the loss of a link that buildings and hills cause."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, cos, sin
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Shadowing(Component):
    """The law of the loss that is added to the mean path loss, drawn once per pair of places."""

    @abstractmethod
    def loss_db(self, standard_normal: Array, stated_sigma_db: Array | float = 0.0) -> Array:
        """Additional loss in dB, one value per standard normal draw; positive draws lose more.

        Args:
            standard_normal: one draw per link.
            stated_sigma_db: standard deviation that the path loss states for each link.
        """

    @abstractmethod
    def correlation_m(self, stated_m: Array) -> Array:
        """Distance over which the shadowing of each link falls to a correlation of 1/e, from the one stated for it."""


class NoShadowing(Shadowing):
    """Every link has exactly its mean path loss."""

    kind = "none"

    def loss_db(self, standard_normal: Array, stated_sigma_db: Array | float = 0.0) -> Array:
        """Zero dB for every link."""
        return np.zeros_like(standard_normal)

    def correlation_m(self, stated_m: Array) -> Array:
        """Infinity: there is nothing that could change."""
        return np.full_like(stated_m, np.inf)


class LogNormalShadowing(Shadowing):
    """Loss that is Gaussian in dB with mean zero, so that the gain is log-normal.

    The median gain is that of the path loss; the linear mean is higher by sigma^2 ln(10) / 20 dB (7.4 dB for 8 dB).
    Ignored here: the correlation between the links of one device to several receivers.
    """

    kind = "log-normal"

    sigma_db: float = Field(ge=0)
    """Standard deviation in dB: 4 to 8 outdoors (TR 38.901 Table 7.4.1-1), 8 in most federated-learning papers."""

    decorrelation_m: float = Field(default=50.0, gt=0)
    """Distance of movement over which the correlation falls to 1/e; 50 m is that of urban macro cells."""

    def loss_db(self, standard_normal: Array, stated_sigma_db: Array | float = 0.0) -> Array:
        """Gaussian loss in dB of standard deviation `sigma_db`."""
        return self.sigma_db * standard_normal

    def correlation_m(self, stated_m: Array) -> Array:
        """`decorrelation_m` for every link."""
        return np.full_like(stated_m, self.decorrelation_m)


class ShadowingOfPathLoss(Shadowing):
    """Log-normal shadowing as the path-loss model states it, by scenario and by the state of each link.

    TR 38.901 has 4 dB with line of sight in cities, 6 to 8 dB without, 7 dB indoors (Tables 7.4.1-1 and 7.5-6).
    Ignored here: the correlation between the links of one device to several receivers.
    """

    kind = "of-path-loss"

    def loss_db(self, standard_normal: Array, stated_sigma_db: Array | float = 0.0) -> Array:
        """Gaussian loss in dB of the standard deviation that is stated for each link."""
        return stated_sigma_db * standard_normal

    def correlation_m(self, stated_m: Array) -> Array:
        """The distance that is stated for each link."""
        return stated_m


SHADOWINGS: dict[str, type[Shadowing]] = kinds(NoShadowing, LogNormalShadowing, ShadowingOfPathLoss)

AnyShadowing = Annotated[Shadowing, Slot("shadowing", SHADOWINGS)]


WAVES = 96
"""Sinusoids per link that `shadow_normals` is meant to be called with."""


def shadow_normals(position_m: Array, correlation_m: Array | float, uniform: Array) -> Array:
    """Standard normal shadowing of links as a random function of where their ends are, a sum of N sinusoids.

    The correlation at two places a distance d apart is exp(-d / d_corr), as Gudmundson (Electronics Letters 1991)
    measured; as a function of position it may be looked up along a path at any instants in any order.

    Each link has its own random plane waves, whose wave vectors follow the spectral density of the exponential
    correlation (a bivariate Cauchy law) for each moving end. Over links, mean 0, variance 1 and correlation
    exp(-d / d_corr), times the same for the other end, are exact for every N; the marginal law is normal up to an
    excess kurtosis of -1.5 / N (-0.016 at 96 waves), and along the path of one link the sample correlation scatters by
    about 1 / sqrt(N). Passed through the normal distribution function it is a spatially consistent uniform, for example
    for line of sight (TR 38.901 clause 7.6.3.3).
    Ignored here: the correlation between links that share one end.

    Args:
        position_m: [..., 2] where one end moves, [..., 4] where both do: x, y of one end, then of the other, in an
            order that does not depend on who sends.
        correlation_m: d_corr of each link.
        uniform: [..., waves, 1 + coordinates] in (0, 1), fixed per link; `WAVES` waves are plenty.
    """
    scaled = position_m / np.asarray(correlation_m)[..., None]
    phase = 2.0 * math.pi * uniform[..., 0]
    for end in range(position_m.shape[-1] // 2):
        radial, turn = uniform[..., 1 + 2 * end], uniform[..., 2 + 2 * end]
        wave = np.sqrt(1.0 / (1.0 - radial) ** 2 - 1.0)
        angle = 2.0 * math.pi * turn
        x, y = scaled[..., None, 2 * end], scaled[..., None, 2 * end + 1]
        phase = phase + wave * (x * cos(angle) + y * sin(angle))
    return np.asarray(math.sqrt(2.0 / uniform.shape[-2]) * cos(phase).sum(axis=-1))

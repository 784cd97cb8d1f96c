"""Shadowing: the slowly varying random loss of a link in addition to its path loss, caused by buildings and hills."""

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
    """Model of the random loss in addition to the mean path loss, drawn once per pair of positions."""

    @abstractmethod
    def loss_db(self, standard_normal: Array, stated_sigma_db: Array | float = 0.0) -> Array:
        """Return the shadowing loss in dB for each draw in `standard_normal`.

        `stated_sigma_db` is the standard deviation in dB that the path-loss model gives; some kinds ignore it.
        """

    @abstractmethod
    def correlation_m(self, stated_m: Array) -> Array:
        """Return the distance in m at which the correlation is 1/e; `stated_m` is that of the path-loss model."""


class NoShadowing(Shadowing):
    """No shadowing: every link has exactly its mean path loss."""

    kind = "none"

    def loss_db(self, standard_normal: Array, stated_sigma_db: Array | float = 0.0) -> Array:
        return np.zeros_like(standard_normal)

    def correlation_m(self, stated_m: Array) -> Array:
        return np.full_like(stated_m, np.inf)


class LogNormalShadowing(Shadowing):
    """Loss that is Gaussian in dB with mean zero, so that the gain is log-normal.

    The median gain is the gain without shadowing; the linear mean gain is sigma^2 ln(10) / 20 dB above the median (7.4
    dB for sigma = 8 dB).
    Ignored here: the correlation between the links of one device to several receivers.
    """

    kind = "log-normal"
    sigma_db: float = Field(ge=0)
    """Standard deviation in dB: 4 to 8 outdoors (TR 38.901 Table 7.4.1-1), 8 in most federated-learning papers."""
    decorrelation_m: float = Field(default=50.0, gt=0)
    """Distance in m between positions at which the correlation is 1/e; 50 m for urban macro cells."""

    def loss_db(self, standard_normal: Array, stated_sigma_db: Array | float = 0.0) -> Array:
        return self.sigma_db * standard_normal

    def correlation_m(self, stated_m: Array) -> Array:
        return np.full_like(stated_m, self.decorrelation_m)


class ShadowingOfPathLoss(Shadowing):
    """Log-normal shadowing with the path-loss model's parameters for links with and without line of sight.

    In TR 38.901, the standard deviation is 4 dB with line of sight in cities, 6 to 8 dB without, and 7 dB indoors
    (Tables 7.4.1-1 and 7.5-6).
    Ignored here: the correlation between the links of one device to several receivers.
    """

    kind = "of-path-loss"

    def loss_db(self, standard_normal: Array, stated_sigma_db: Array | float = 0.0) -> Array:
        return stated_sigma_db * standard_normal

    def correlation_m(self, stated_m: Array) -> Array:
        return stated_m


SHADOWINGS: dict[str, type[Shadowing]] = kinds(NoShadowing, LogNormalShadowing, ShadowingOfPathLoss)

AnyShadowing = Annotated[Shadowing, Slot("shadowing", SHADOWINGS)]

WAVES = 96
"""Number of sinusoids per link that `shadow_normals` adds up."""


def shadow_normals(position_m: Array, correlation_m: Array | float, uniform: Array) -> Array:
    """Return the standard normal shadowing of links, a random function (sum of N sinusoids) of the end positions.

    The correlation at two positions d apart is exp(-d / d_corr), as measured by Gudmundson (Electronics Letters 1991).
    `correlation_m` is d_corr in m. Because shadowing is a function of position, it can be evaluated along a path at any
    times in any order.

    Each link has N random plane waves of its own, whose wave vectors follow the spectral density of the exponential
    correlation (a bivariate Cauchy distribution) for each moving end. Averaged over links, the mean 0, the variance 1
    and the correlation exp(-d / d_corr) are exact for every N. If both ends move, the correlation is the product of one
    factor exp(-d / d_corr) per end. The marginal distribution is normal up to an excess kurtosis of -1.5 / N (-0.016 at
    96 waves). Along the path of one link, the sample correlation deviates by about 1 / sqrt(N).
    Ignored here: the correlation between links that share one end.

    `position_m` in m is [..., 2] if one end moves, or [..., 4] (x and y of both ends) if both ends move; the order of
    the ends must not depend on the direction of transmission. `uniform` [..., waves, 1 + coordinates] in (0, 1) is
    fixed per link.
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

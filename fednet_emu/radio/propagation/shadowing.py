"""Shadowing: the slow, random part of the loss of a link that buildings and hills cause."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array
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

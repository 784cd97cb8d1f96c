"""Shadowing: the slow, random part of the loss of a link that buildings and hills cause."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fednet_emu.component import Component, Slot
from fednet_emu.units import Array


class Shadowing(Component):
    """The law of the loss that is added to the mean path loss, drawn once per pair of places."""

    @abstractmethod
    def loss_db(self, standard_normal: Array) -> Array:
        """Additional loss in dB, one value per standard normal draw; positive draws lose more."""


class NoShadowing(Shadowing):
    """Every link has exactly its mean path loss."""

    kind: Literal["none"] = "none"

    def loss_db(self, standard_normal: Array) -> Array:
        """Zero dB for every link."""
        return np.zeros_like(standard_normal)


class LogNormalShadowing(Shadowing):
    """Loss that is Gaussian in dB with mean zero, so that the gain is log-normal.

    The median gain is that of the path loss; the linear mean is higher by sigma^2 ln(10) / 20 dB (7.4 dB for 8 dB).
    Ignored here: the correlation of nearby places, and of the links of one device to several receivers.
    """

    kind: Literal["log-normal"] = "log-normal"

    sigma_db: float = Field(ge=0)
    """Standard deviation in dB: 4 to 8 outdoors (TR 38.901 Table 7.4.1-1), 8 in most federated-learning papers."""

    def loss_db(self, standard_normal: Array) -> Array:
        """Gaussian loss in dB of standard deviation `sigma_db`."""
        return self.sigma_db * standard_normal


SHADOWINGS: dict[str, type[Shadowing]] = {"none": NoShadowing, "log-normal": LogNormalShadowing}

AnyShadowing = Annotated[Shadowing, Slot("shadowing", SHADOWINGS)]

"""Weights of stale updates: the functions s(tau) of FedAsync. FedBuff uses one of these functions.

Xie, Koyejo, Gupta: "Asynchronous Federated Optimization", 2019, https://arxiv.org/abs/1903.03934
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Staleness(Component):
    """The weight of an update as a non-increasing function of its staleness; 1 for a fresh update."""

    @abstractmethod
    def weight(self, tau: int) -> float:
        """Return the weight s(`tau`) of an update that was trained from the model `tau` versions ago."""


class Constant(Staleness):
    """All updates have the weight s = 1."""

    def weight(self, tau: int) -> float:
        return 1.0


class Polynomial(Staleness):
    """The weight falls as a power: s = (tau + 1)^-a."""

    a: float = Field(0.5, ge=0)
    """Exponent a; if it is 0.5, the weight is 1 / sqrt(1 + tau)."""

    def weight(self, tau: int) -> float:
        return float((tau + 1.0) ** -self.a)


class Hinge(Staleness):
    """The weight is 1 up to a staleness of b, and 1 / (a (tau - b) + 1) for a larger staleness tau."""

    a: float = Field(10.0, ge=0)
    """Factor a, which determines how fast the weight falls for a staleness above b; 10 in the paper's experiments."""
    b: float = Field(4.0, ge=0)
    """Largest staleness with the full weight of 1, in versions; 4 in the paper's experiments."""

    def weight(self, tau: int) -> float:
        return 1.0 / (self.a * max(tau - self.b, 0.0) + 1.0)


STALENESS: dict[str, type[Staleness]] = kinds(Constant, Hinge, Polynomial)

AnyStaleness = Annotated[Staleness, Slot("staleness", STALENESS)]

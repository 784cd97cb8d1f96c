"""Random loss of whole transfers, in addition to losses by the radio itself."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Loss(Component):
    """Decides which transfers are lost although the radio delivered them."""

    @abstractmethod
    def erases(self, uniform: float) -> bool:
        """Whether the transfer with this uniform draw is lost."""


class NoLoss(Loss):
    """No random loss: transfers are lost by the radio only."""

    kind = "none"

    def erases(self, uniform: float) -> bool:
        """Never."""
        return False


class RandomLoss(Loss):
    """Each transfer is lost with the same probability, independently; its airtime and energy are spent nevertheless."""

    kind = "random"
    probability: float = Field(ge=0, lt=1)

    def erases(self, uniform: float) -> bool:
        """With the given probability."""
        return uniform < self.probability


LOSSES = kinds(NoLoss, RandomLoss)
AnyLoss = Annotated[Loss, Slot("loss", LOSSES)]

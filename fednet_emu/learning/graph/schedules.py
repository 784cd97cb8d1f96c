"""Schedules of the step size of local training, which depends on the round as in PyTorch's `lr_scheduler`."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Schedule(Component):
    """A rule for the step size in each round."""

    @abstractmethod
    def factor(self, t: int) -> float:
        """Return the factor by which the step size is multiplied in round t = 0, 1, ...; it is not negative."""


class Constant(Schedule):
    """The same step size in all rounds."""

    def factor(self, t: int) -> float:
        return 1.0


class Step(Schedule):
    """Step size that is multiplied by the same factor each time that a certain number of rounds has passed."""

    every_rounds: int = Field(gt=0)
    """Number of rounds between two changes of the step size."""
    gamma: float = Field(0.1, ge=0)
    """Factor by which the step size is multiplied at each change."""

    def factor(self, t: int) -> float:
        return float(self.gamma ** (t // self.every_rounds))


class Exponential(Schedule):
    """A step size that is multiplied by the same factor after every round."""

    gamma: float = Field(ge=0)
    """Factor by which the step size is multiplied after every round."""

    def factor(self, t: int) -> float:
        return float(self.gamma**t)


class Cosine(Schedule):
    """A step size that decreases along half a cosine wave and then stays constant."""

    rounds: int = Field(gt=0)
    """Number of rounds until the end of the decrease."""
    final_share: float = Field(0.0, ge=0)
    """Final step size, as a share of the step size in the first round."""

    def factor(self, t: int) -> float:
        """Return a factor that decreases from 1 to `final_share` along a cosine, and then stays constant.

        In round t, the share (1 + cos(pi t / rounds)) / 2 of the total decrease remains.
        """
        left = (1 + math.cos(math.pi * min(t / self.rounds, 1))) / 2
        return self.final_share + (1 - self.final_share) * left


SCHEDULES: dict[str, type[Schedule]] = kinds(Constant, Cosine, Exponential, Step)

AnySchedule = Annotated[Schedule, Slot("lr_schedule", SCHEDULES)]

"""Schedules: how the step size of local training changes from round to round, as in PyTorch's `lr_scheduler`."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Schedule(Component):
    """A rule for the step size of a round."""

    @abstractmethod
    def factor(self, t: int) -> float:
        """Factor of the step size in round t = 0, 1, ...; 0 or more."""


class Constant(Schedule):
    """The same step size in all rounds."""

    def factor(self, t: int) -> float:
        return 1.0


class Step(Schedule):
    """A step size that falls from time to time, by the same factor."""

    every_rounds: int = Field(gt=0)
    """Number of rounds between two falls."""
    gamma: float = Field(0.1, ge=0)
    """Factor of each fall."""

    def factor(self, t: int) -> float:
        return float(self.gamma ** (t // self.every_rounds))


class Exponential(Schedule):
    """A step size that falls in every round, by the same factor."""

    gamma: float = Field(ge=0)
    """Factor from one round to the next."""

    def factor(self, t: int) -> float:
        return float(self.gamma**t)


class Cosine(Schedule):
    """A step size that falls along half a cosine wave and then stays."""

    rounds: int = Field(gt=0)
    """Number of rounds until the end of the fall."""
    final_share: float = Field(0.0, ge=0)
    """Step size at the end, as a share of that in the first round."""

    def factor(self, t: int) -> float:
        """From 1 to final_share by (1 + cos(pi t / rounds)) / 2; final_share afterwards."""
        left = (1 + math.cos(math.pi * min(t / self.rounds, 1))) / 2
        return self.final_share + (1 - self.final_share) * left


SCHEDULES: dict[str, type[Schedule]] = kinds(Constant, Cosine, Exponential, Step)

AnySchedule = Annotated[Schedule, Slot("lr_schedule", SCHEDULES)]

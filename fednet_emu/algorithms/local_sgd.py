"""Settings shared by algorithms whose devices make some steps of SGD at a time: the local steps, and the cohort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from fednet_emu.algorithms.base import RoundBased
from fednet_emu.component.component import ExactlyOne
from fednet_emu.federation import AnyOptimizer, AnySchedule, CohortSize, Constant, Sgd, SgdPlan, cohort_size


class LocalWork(RoundBased, ExactlyOne):
    """Settings of a device's local training; subclasses define which devices train, and what becomes of the results."""

    alternatives: ClassVar[tuple[str, ...]] = ("local_epochs", "local_steps")
    otherwise: ClassVar[Mapping[str, Any]] = {"local_epochs": 1}

    lr: float = Field(0.1, ge=0)
    """Step size of the devices."""
    batch_size: int | None = Field(20, gt=0)
    """Samples per gradient step; null takes all of the device's samples."""
    local_epochs: int | None = Field(None, gt=0)
    """Passes over the device's samples per round; 1 unless this or `local_steps` is given."""
    local_steps: int | None = Field(None, gt=0)
    """Gradient steps per round, in the place of `local_epochs`."""
    local_optimizer: AnyOptimizer = Sgd()
    """Optimizer of the devices; its state begins anew in every round."""
    lr_schedule: AnySchedule = Constant()
    """How the step size of the devices, `lr`, changes from round to round."""
    clip_norm: float | None = Field(None, gt=0)
    """Longest gradient of a step: a longer one is scaled down to this Euclidean norm. Null for no limit."""
    plain_steps: ClassVar[bool] = False
    """Whether the algorithm's formulas hold for plain steps of one size only, so that it refuses any others."""

    @model_validator(mode="after")
    def _plain_where_assumed(self) -> Self:
        plain = self.local_optimizer == Sgd() and type(self.lr_schedule) is Constant and self.clip_norm is None
        if self.plain_steps and not plain:
            raise ValueError(
                "the formulas of this algorithm hold for plain steps of one size, got "
                f"local_optimizer={self.local_optimizer!r}, lr_schedule={self.lr_schedule!r} and "
                f"clip_norm={self.clip_norm}; leave them out"
            )
        return self

    @cached_property
    def plan(self) -> SgdPlan:
        """The local steps of a device in a round; `Federation.train` applies the schedule."""
        return SgdPlan(
            lr=self.lr,
            batch_size=self.batch_size,
            steps=self.local_steps,
            epochs=self.local_epochs,
            optimizer=self.local_optimizer,
            schedule=self.lr_schedule,
            clip_norm=self.clip_norm,
        )


class LocalSgd(LocalWork):
    """Settings of a cohort that trains locally; subclasses define what the server does with the results."""

    cohort: CohortSize = 0.5
    """Number of devices invited per round, or, below 1, their share of all devices; fewer if fewer are present."""

    def participants(self, count: int) -> int:
        """The largest number of devices, out of `count`, that take part in a round: the cohort."""
        return min(cohort_size(self.cohort, count), count)

    def demands(self) -> Iterator[tuple[str, str, int]]:
        """Settings that need a minimum number of devices, as (key, what is wrong with fewer, that minimum)."""
        yield "cohort", "invites more devices than there are", cohort_size(self.cohort, 1)

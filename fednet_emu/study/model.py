"""The study file: the fields of this component are its keys."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from fednet_emu.component import Component


class Target(Component):
    """What a run has to reach; time, bits and energy are read off where it first does."""

    accuracy: float | None = Field(None, gt=0, le=1)
    """Pooled test accuracy, at least."""
    loss: float | None = Field(None, gt=0)
    """Test loss, at most."""

    @model_validator(mode="after")
    def _one_measure(self) -> Target:
        if (self.accuracy is None) == (self.loss is None):
            raise ValueError(f"exactly one of accuracy and loss is needed, got {self.accuracy} and {self.loss}")
        return self


class Limits(Component):
    """What one cell may use of its host; a cell that wants more has failed."""

    time_s: float | None = Field(None, gt=0)
    """Host time of one attempt; the next attempt goes on from the last checkpoint."""
    memory_mb: float | None = Field(None, gt=0)
    """Resident memory; a cluster also reserves so much for each cell."""
    gpus: float = Field(0, ge=0)
    """GPUs that a cluster reserves for each cell."""


class Study(Component):
    """A base scenario, what is varied, and how often each setting is repeated."""

    title: str = ""
    """A name for people."""
    base: str
    """The scenario that everything starts from: a path from the study file, or a name in scenarios/."""
    set: dict[str, Any] = Field({})
    """Settings of every cell, as `key.path: value`, unless the grid has others."""
    grid: dict[str, Any] = Field({})
    """The axes, whose product is run: a list for one key, named variants, or lists that go together."""
    seeds: int | tuple[int, ...] = 5
    """So many seeds from 0 on, or a list of them."""
    target: Target | None = None
    limits: Limits = Limits()
    minutes: float | None = Field(None, gt=0)
    """Host time of the whole study on two cores; a study with this may be run by `make reproduce`."""

    @model_validator(mode="after")
    def _seeds_are_few_and_distinct(self) -> Study:
        seeds = self.all_seeds
        if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds: expected a number above 0 or different numbers from 0 on, got {self.seeds}")
        return self

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds one by one."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

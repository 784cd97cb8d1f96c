"""The study: the fields of the class `Study` are the keys of a study file."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from fednet_emu.component import Component
from fednet_emu.limits import MAX_CELLS


class Target(Component):
    """The target of a study; time, bits and energy are reported for the first evaluation at which a run reaches it."""

    accuracy: float | None = Field(None, gt=0, le=1)
    """Lowest pooled test accuracy that reaches the target, from 0 to 1; null if the target is a loss."""
    loss: float | None = Field(None, gt=0)
    """Highest test loss that reaches the target; null if the target is an accuracy."""

    @model_validator(mode="after")
    def _one_measure(self) -> Target:
        if (self.accuracy is None) == (self.loss is None):
            raise ValueError(f"exactly one of accuracy and loss is needed, got {self.accuracy} and {self.loss}")
        return self


class Limits(Component):
    """Resources of the host that one cell may use; a cell that exceeds its time or memory fails."""

    time_s: float | None = Field(None, gt=0)
    """Longest host time of one attempt, in seconds; null for no limit. The next attempt continues from the last
    checkpoint."""
    memory_mb: float | None = Field(None, gt=0)
    """Most resident memory, in 10^6 bytes; null for no limit. A Ray cluster also reserves this amount for each cell."""
    gpus: float = Field(0, ge=0)
    """Number of GPUs that a Ray cluster reserves for each cell."""


class Study(Component):
    """A study: a base scenario, the settings that are varied, and how often each combination is repeated."""

    title: str = ""
    """A readable title; it does not affect the runs."""
    base: str
    """The scenario that the study varies: a path relative to the study file, or a name in scenarios/."""
    set: dict[str, Any] = Field({})
    """Settings of every cell, as `key.path: value`; the grid overrides them."""
    grid: dict[str, Any] = Field({})
    """The axes; every combination of their levels is run. An axis is a list of values for one key, a mapping of named
    variants, or a mapping of lists of equal length whose entries are used together."""
    seeds: int | tuple[int, ...] = 5
    """The number of seeds, counted from 0, or a list of seeds; every combination is run once with each seed."""
    target: Target | None = None
    limits: Limits = Limits()
    minutes: float | None = Field(None, gt=0)
    """Host time in minutes that the whole study takes on two cores; null if unknown. `make reproduce` runs only studies
    that give it."""

    figures: tuple[str, ...] | None = None
    """Names of the figures that `make reproduce` keeps, those that tell the story of the study, for example
    `bits-to-target`; null for all but those against rounds."""

    @model_validator(mode="after")
    def _seeds_are_few_and_distinct(self) -> Study:
        if isinstance(self.seeds, int) and self.seeds > MAX_CELLS:
            raise ValueError(f"seeds: a study has at most {MAX_CELLS} cells, got {self.seeds} seeds; give fewer")
        seeds = self.all_seeds
        if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds: expected a number above 0 or different numbers from 0 on, got {self.seeds}")
        return self

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds as a tuple."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

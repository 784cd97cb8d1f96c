"""Find when a run first reached a target, and how much it had spent by then."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import pandas as pd

from fednet_emu.analysis.scales import COSTS, RECORDED

Measure = Literal["accuracy", "loss"]

TO_TARGET = tuple(cost.to_target for cost in RECORDED.values())
"""Columns with what reaching a target cost."""


def with_total_bits(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Add the column `total_bit`, the sum of the bits of all links, to evaluations."""
    return evaluations.assign(total_bit=COSTS["bits"].of(evaluations))


def first_reached(
    evaluations: pd.DataFrame, cells: Iterable[str], measure: Measure | None, level: float
) -> pd.DataFrame:
    """Return what it cost each run to reach a target first: time (s), bits, energy (J) and rounds.

    Args:
        evaluations: the evaluations of runs, those of each in the order of time, with the columns `cell` and
            `total_bit`.
        cells: the names of the runs.
        measure: `accuracy`, which must be at least `level`, or `loss`, which must be at most `level`; None for no
            target.
        level: the level of the target.

    Returns:
        The columns `TO_TARGET`, one row for each name in their order; NaN for runs that never reached the target.
    """
    wanted = pd.Index(list(cells), name="cell")
    if measure is None:
        return pd.DataFrame(math.nan, wanted, list(TO_TARGET))
    scores = evaluations[measure]
    reached = evaluations[scores >= level if measure == "accuracy" else scores <= level].drop_duplicates("cell")
    costs = reached.set_index("cell")[[cost.column for cost in RECORDED.values()]].astype(float)
    return costs.set_axis(list(TO_TARGET), axis="columns").reindex(wanted)

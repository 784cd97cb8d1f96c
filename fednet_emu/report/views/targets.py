"""Find when a run first reached a target, and how much it had spent by then."""

from __future__ import annotations

import math
from typing import Literal

import pandas as pd

Measure = Literal["accuracy", "loss"]

AT_TARGET = {
    "time_to_target_s": "simulated_s",
    "bits_to_target": "total_bit",
    "energy_to_target_j": "energy_j",
    "rounds_to_target": "round",
}
"""What reaching a target cost, and the column of the evaluations that it is read from."""
TO_TARGET = tuple(AT_TARGET)


def with_total_bits(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Add the column `total_bit`, the sum of the bits of all links, to evaluations."""
    total = evaluations["uplink_bit"] + evaluations["downlink_bit"] + evaluations["sidelink_bit"]
    return evaluations.assign(total_bit=total)


def first_reached(evaluations: pd.DataFrame, measure: Measure | None, level: float) -> dict[str, float]:
    """Return time (s), bits, energy (J) and rounds at the first evaluation that reaches a target; NaN if none does.

    Args:
        evaluations: the evaluations of one run in the order of time, with the column `total_bit`.
        measure: `accuracy`, which must be at least `level`, or `loss`, which must be at most `level`; None for no
            target.
        level: the level of the target.
    """
    if measure is None or not len(evaluations):
        return dict.fromkeys(TO_TARGET, math.nan)
    scores = evaluations[measure]
    reached = evaluations[scores >= level if measure == "accuracy" else scores <= level]
    if not len(reached):
        return dict.fromkeys(TO_TARGET, math.nan)
    return {name: float(reached[column].iloc[0]) for name, column in AT_TARGET.items()}

"""The scores of a model and the costs of learning, as figures and pages name and measure them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from fednet_emu.analysis.quantities import BITS, ENERGIES, LONG_TIMES, Unit

OWN_METRICS = {
    **{f"top_{k}": f"Top-{k} accuracy" for k in range(2, 11)},
    "macro_f1": "Macro F1",
    "balanced_accuracy": "Balanced accuracy",
    "perplexity": "Perplexity",
    "mae": "Mean absolute error",
    "rmse": "Root mean squared error",
    "r2": "R\u00b2",
    "micro_f1": "Micro F1",
    "exact_match": "Exact matches",
    "average_precision": "Average precision",
}
"""The metrics that a scenario may ask for (`evaluation.metrics`), by their columns, with their titles."""

METRICS = {
    "accuracy": "Accuracy",
    "loss": "Loss",
    "worst_accuracy": "Accuracy of the worst device",
    "std_accuracy": "Spread of accuracy over devices",
    "worst_train_loss": "Largest training loss",
    "attack_success": "Success of the attack",
    **OWN_METRICS,
}
"""The scores in a table of evaluations, with their titles."""


@dataclass(frozen=True)
class Cost:
    """A cost of learning.

    Attributes:
        title: its name on the axis.
        units: the units among which an axis chooses.
        of: computes the cost in SI units or bits, one value for each row, from a table of evaluations.
    """

    title: str
    units: tuple[Unit, ...]
    of: Callable[[pd.DataFrame], pd.Series]


COSTS = {
    "time": Cost("Simulated time", LONG_TIMES, lambda rows: rows["simulated_s"]),
    "bits": Cost(
        "Transmitted data", BITS, lambda rows: rows["uplink_bit"] + rows["downlink_bit"] + rows["sidelink_bit"]
    ),
    "energy": Cost("Energy", ENERGIES, lambda rows: rows["energy_j"]),
}
STUDY_COSTS = {**COSTS, "rounds": Cost("Rounds", (Unit(1.0, ""),), lambda rows: rows["round"])}

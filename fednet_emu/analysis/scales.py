"""Names, columns and formats of the scores of a model, the costs of a run, and the costs to reach a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from fednet_emu.analysis.quantities import (
    BITS,
    ENERGIES,
    LONG_TIMES,
    MASSES,
    Unit,
    axis_unit,
    format_alike,
    format_bits,
    format_carbon,
    format_energy,
    format_seconds,
)

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
    "roc_auc": "Area under the ROC curve",
}
"""Titles of the optional metrics, which the setting `evaluation.metrics` selects, by column name."""

METRICS = {
    "accuracy": "Accuracy",
    "loss": "Loss",
    "worst_accuracy": "Accuracy of the worst device",
    "std_accuracy": "Spread of accuracy over devices",
    "worst_train_loss": "Largest training loss",
    "attack_success": "Success of the attack",
    **OWN_METRICS,
}
"""Titles of the scores in a table of evaluations, by column name."""

RANGES = {
    **dict.fromkeys(("loss", "worst_train_loss", "perplexity", "mae", "rmse"), (0.0, math.inf)),
    "r2": (-math.inf, 1.0),
}
"""Minimum and maximum possible value of each score whose range is not 0 to 1."""


def measured(tables: Iterable[pd.DataFrame]) -> dict[str, str]:
    """Return the titles, by column name, of the scores that have a value in at least one table of evaluations."""
    known = list(tables)
    return {
        name: title
        for name, title in METRICS.items()
        if any(np.isfinite(table.get(name, np.nan)).any() for table in known)
    }


@dataclass(frozen=True)
class Cost:
    """A type of cost of a run (such as time, bits or energy), with its names, table columns and text formats."""

    name: str
    """Short name in arguments and command-line options."""
    title: str
    column: str
    """Column with this cost in the tables of evaluations and of runs, in simulated seconds, bits, joules or rounds."""
    to_target: str
    """Column with the cost to reach the target in the table of the runs of a study."""
    units: tuple[Unit, ...]
    kind: str
    """Name of the group of units that formats this cost on HTML pages, as defined in `browser/units.js`."""
    show: Callable[[float], str]
    less: str
    """Word for a lower cost to reach the target, such as `sooner`."""
    more: str
    """Word for a higher cost to reach the target, such as `later`."""
    run: str
    """Format string that compares the costs of two runs. Its two placeholders are the amount of the difference and the
    word `less` or `more`."""
    reached: str
    """Format string that compares two costs to reach the target. Its placeholders are the target, the amount of the
    difference, and the word for a lower or higher cost."""
    best: str
    """Phrase for the lowest cost to reach the target, such as `soonest`."""
    after: str = "with {}"
    """Format string for the cost at which the target is reached, which results in texts such as `after 3 s`."""
    limit: str = "{}"
    """Format string for an upper limit of the cost, with a placeholder for the amount."""

    def of(self, evaluations: pd.DataFrame) -> pd.Series:
        """Return the cost from the start of the run up to each row of `evaluations`, in SI units, bits or rounds.

        If the cost is the number of bits, it is the sum over uplink, downlink and sidelink.
        """
        if self.column == TOTAL_BIT:
            return evaluations["uplink_bit"] + evaluations["downlink_bit"] + evaluations["sidelink_bit"]
        return evaluations[self.column]

    def unit(self, largest: float) -> Unit:
        """Return the unit of an axis that ends at `largest`."""
        return axis_unit(largest, self.units)

    def row(self, amounts: Iterable[float]) -> list[str]:
        """Return the amounts as texts in a common unit, which suits the largest amount."""
        given = list(amounts)
        return [self.show(each) for each in given] if self.name == "rounds" else format_alike(given, self.units)

    def label(self, unit: Unit, aim: str = "") -> str:
        """Return the label of an axis. `aim` is the target as text, for an axis with costs to reach the target."""
        title = f"{self.title} to {aim}" if aim else self.title
        return f"{title} ({unit.symbol})" if unit.symbol else title


TOTAL_BIT = "total_bit"
DEVICE_ENERGY = "device-energy"


def _rounds(number: float) -> str:
    return f"{number:.4g} round{'' if abs(number) == 1 else 's'}"


_TIME = Cost(
    "time", "Time", "simulated_s", "time_to_target_s", LONG_TIMES, "time", format_seconds, "sooner", "later",
    "the run takes {} {}", "{target} is reached {} {}", "soonest", "after {}",
)  # fmt: skip
_BITS = Cost(
    "bits", "Bits", TOTAL_BIT, "bits_to_target", BITS, "bits", format_bits, "less", "more",
    "the run sends {} {}", "{target} is reached with {} {}", "with the fewest bits",
)  # fmt: skip
_ENERGY = Cost(
    "energy", "Energy", "energy_j", "energy_to_target_j", ENERGIES, "energy", format_energy, "less", "more",
    "the run spends {} {}", "{target} is reached with {} {}", "with the least energy", limit="{} of energy",
)  # fmt: skip
_DEVICE_ENERGY = replace(
    _ENERGY,
    name=DEVICE_ENERGY,
    title="Energy per device",
    to_target="device_energy_to_target_j",
    after="with {} per device",
    limit="{} per device",
)
_ROUNDS = Cost(
    "rounds", "Rounds", "round", "rounds_to_target", (Unit(1.0, ""),), "count", _rounds, "fewer", "more",
    "the run has {} {}", "{target} is reached in {} {}", "in the fewest rounds", "in {}",
)  # fmt: skip

_NEIGHBOURS = Cost(
    "neighbours", "95 % delay of other users", "neighbours_p95_s", "neighbours_p95_s", LONG_TIMES, "time",
    format_seconds, "shorter", "longer", "other users wait {} {}", "{target} is reached with delays {} {}",
    "with the shortest delays of other users", "with a delay of {}", "a delay of {}",
)  # fmt: skip
_CARBON = Cost(
    "carbon", "Carbon", "carbon_g", "carbon_to_target_g", MASSES, "carbon", format_carbon, "less", "more",
    "the run causes {} of CO2 {}", "{target} is reached with {} of CO2 {}", "with the least carbon",
    "with {} of CO2", "{} of CO2",
)  # fmt: skip
PER_RUN = {_NEIGHBOURS.name: _NEIGHBOURS}
"""Costs that are known for a whole run, but not at each evaluation. They are columns of the table of the runs of a
study."""
CARBON = _CARBON.name
COSTS = {its.name: its for its in (_TIME, _BITS, _ENERGY, _DEVICE_ENERGY, _ROUNDS, _NEIGHBOURS, _CARBON)}
"""The costs of a run, by short name. `energy` is the energy of all devices and base stations. `device-energy` is this
energy divided by the number of devices, and evaluations have no column for it. `neighbours` is the 95 % quantile of the
delays of other users of the network (background traffic). If there are several classes of other users, it is the
largest of their quantiles. `carbon` is the CO2 emission in g. Evaluations of a study have a column for it if scenarios
have the section `carbon`."""
OF_ENERGY = ("energy", DEVICE_ENERGY, CARBON)
"""The costs that are proportional to energies."""
RECORDED = {name: its for name, its in COSTS.items() if name not in (DEVICE_ENERGY, CARBON, *PER_RUN)}
"""The costs that have a column in the table of evaluations of each run."""
TRADED = {name: RECORDED[name] for name in ("time", "bits", "energy")}
"""The costs that Pareto fronts trade off against accuracy."""


def limits_text(limits: Mapping[str, float]) -> str:
    """Return limits in words, as in ` within 4 J of energy and 20 Mbit`. The text is empty if there are no limits."""
    texts = [COSTS[name].limit.format(COSTS[name].show(most)) for name, most in limits.items()]
    return f" within {' and '.join(texts)}" if texts else ""


Measure = Literal["accuracy", "loss"]

TO_TARGET = tuple(cost.to_target for cost in RECORDED.values())
"""Table columns with the costs to reach a target: time, bits, energy and rounds."""


def with_total_bits(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return a table of evaluations with the additional column `total_bit`, the number of bits on all links."""
    return evaluations.assign(total_bit=COSTS["bits"].of(evaluations))


def first_reached(
    evaluations: pd.DataFrame, runs: Iterable[str], measure: Measure | None, level: float
) -> pd.DataFrame:
    """Return for each run the time (s), bits, energy (J) and rounds at which it first reached the target.

    Args:
        evaluations: the evaluations of runs, in order of time per run, with the columns `run` and `total_bit`.
        runs: the names of the runs.
        measure: `accuracy`, which must be at least `level`, or `loss`, which must be at most `level`. None for no
            target.
        level: the value that the score must reach.

    Returns:
        The columns `TO_TARGET`, with one row for each name in order. Runs that missed the target have NaN.
    """
    wanted = pd.Index(list(runs), name="run")
    if measure is None:
        return pd.DataFrame(math.nan, wanted, list(TO_TARGET))
    scores = evaluations[measure]
    reached = evaluations[scores >= level if measure == "accuracy" else scores <= level].drop_duplicates("run")
    costs = reached.set_index("run")[[cost.column for cost in RECORDED.values()]].astype(float)
    return costs.set_axis(list(TO_TARGET), axis="columns").reindex(wanted)

"""A recorded search for the best settings, with its trials, its finalists, and the importance of the parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from typing_extensions import override

from fednet_emu.analysis.confidence_set import confidence_set
from fednet_emu.analysis.quantities import TextResult, counted
from fednet_emu.analysis.ranked import DIVERGED
from fednet_emu.analysis.scales import COSTS, limits_text
from fednet_emu.analysis.statistics import cost_interval, fewest_seeds, mean_interval
from fednet_emu.analysis.study import target_text
from fednet_emu.arrays import Array
from fednet_emu.errors import DataError
from fednet_emu.files.writing import read_csv

TRIALS, SEARCH = "trials.csv", "search.json"


@dataclass(frozen=True, repr=False)
class SearchRecords(TextResult):
    """The records of a search for the best settings: trials, finalists and importance of parameters.

    Trials are settings that were tried with few seeds. Finalists are the best trials, which were run with more seeds.
    """

    name: str
    """The name of the study."""
    costs: Sequence[str]
    """Names of the minimised costs. Empty if the accuracy was maximised."""
    limits: Mapping[str, float]
    """The upper limits of costs, by the name of the cost."""
    target: Mapping[str, float]
    """The target's metric and the value it must reach. Empty if costs of whole runs were minimised."""
    trials: pd.DataFrame
    """One row for each tried setting."""
    finalists: Sequence[int]
    """Trial numbers of the finalists that were not eliminated by the runs with further seeds, best first."""
    dropped: Mapping[int, tuple[int, float]]
    """For each eliminated finalist, by trial number: the number of seeds at the elimination, and the p-value (NaN if
    several costs are minimised)."""
    runs: Mapping[int, Array]
    """The costs of the runs of each finalist [seeds, costs], by trial number. A run that missed the target has NaN."""
    importance: Mapping[str, float]
    """The fraction of the variance of the first cost that each parameter explains, by parameter, largest first."""
    parameters: Sequence[str]
    """Names of the varied parameters."""
    complete: bool = True
    """False if the search was interrupted."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns of `trials` with the optimised quantities: the minimised costs, or the accuracy."""
        return self.costs or ["accuracy"]

    @classmethod
    def opened(cls, folder: Path) -> Self:
        """Open the search in a folder.

        Raises:
            DataError: the folder contains no search, or a file of the search is unreadable.
        """
        if not is_search(folder):
            raise DataError(str(folder), "no such folder of a search", "give the folder that `fednet search` wrote")
        try:
            found = json.loads((folder / SEARCH).read_text(encoding="utf-8"))
            trials = read_csv(folder / TRIALS, dtype={"why_not": str}).fillna({"why_not": ""})
            return cls(
                found["name"],
                found["costs"],
                found["limits"],
                found["target"],
                trials,
                found["finalists"],
                {its["trial"]: (its["seeds"], math.nan if its["p"] is None else its["p"]) for its in found["dropped"]},
                {int(number): np.array(runs, np.float64) for number, runs in found["runs"].items()},
                found["importance"],
                found["parameters"],
                found.get("complete", True),
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            files = f"{folder / SEARCH}, {TRIALS}"
            raise DataError(files, f"unreadable, got '{error}'", "run the search again") from error

    @classmethod
    def found(cls, folder: Path) -> Self | None:
        """Open the search in the folder of a study, or return None if the folder contains no search.

        Raises:
            DataError: a file of the search is unreadable.
        """
        return cls.opened(folder) if is_search(folder) else None

    @override
    def lines(self) -> list[str]:
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self._tried()
        if not self.complete:
            yield "interrupted before its end: the same command continues it"
            return
        if not self.finalists:
            sound = self.trials[~self.trials["why_not"].str.contains(DIVERGED)]
            best = sound["score"].max() if "accuracy" in self.target else math.nan
            seen = f"; the highest accuracy was {best:.3g}" if math.isfinite(best) else ""
            easier = ["raise a limit"] if self.limits else []
            easier += [f"{'raise' if 'loss' in self.target else 'lower'} the target"] if self.target else []
            yield f"none of them gets there{seen}: {', '.join([*easier, 'or widen' if easier else 'widen'])} the space"
            return
        yield from self._finalists()
        if self.importance:
            shares = [f"{name} {share:.0%}" for name, share in self.importance.items()]
            yield f"what matters for {self.columns[0]}, as shares of its variation: {', '.join(shares)}"

    def _tried(self) -> str:
        trials, runs = self.trials, self.trials["runs"] > 0
        whole = int((runs & (trials["reached"] == trials["runs"])).sum())
        why = trials["why_not"]
        costly, invalid = int(why.str.startswith("too costly").sum()), int(why.str.startswith("invalid").sum())
        bad = {cause: int((runs & why.str.contains(cause)).sum()) for cause in (DIVERGED, "failed")}
        others = int(runs.sum()) - whole - int((runs & why.str.contains(f"{DIVERGED}|failed")).sum())
        aim = f"reach {target_text(self.target)}" if self.target else "end"
        parts = [f"{whole} {aim}{limits_text(self.limits)}"]
        parts += [f"{others} do not, or are ended as too late"] if others else []
        parts += [f"{number} {cause}" for cause, number in bad.items() if number]
        parts += [f"{costly} are too costly by the clock alone"] if costly else []
        parts += [f"{invalid} are no valid scenarios"] if invalid else []
        return f"{self.name}: {counted(len(trials), 'setting')} tried: {'; '.join(parts)}"

    def _finalists(self) -> Iterator[str]:
        labels = dict(zip(self.trials["trial"], self.trials["setting"], strict=True))
        sign = 1.0 if self.costs else -1.0
        seeds = max(len(self.runs[number]) for number in self.finalists)
        left = f"{counted(len(self.finalists), 'setting')} left"
        yield f"{left} after a race over {counted(seeds, 'seed')}, the best first"
        for place, number in enumerate(self.finalists, 1):
            runs, amounts = sign * self.runs[number], []
            for column, costs in zip(self.columns, runs.T, strict=True):
                its = cost_interval(costs) if column in COSTS else mean_interval(costs)
                mean, low, high = COSTS[column].row(its) if column in COSTS else (f"{each:.4g}" for each in its)
                wide = "" if math.isnan(its.low) else f" ({low} to {high})"
                amounts.append(f"{column} unknown" if math.isnan(its.mean) else f"{column} {mean}{wide}")
            missed = int((~np.isfinite(runs).all(axis=1)).sum())
            late = f", {missed} of {len(runs)} did not get there" if missed else ""
            yield f" {place}. {labels[number]}: {', '.join(amounts)}{late}; best/{place}.yaml"
        yield from self._undecided()
        for number, (after, p) in self.dropped.items():
            why = "another is better in all costs" if math.isnan(p) else f"not the best, p = {p:.2g}"
            yield f" dropped: {labels[number]}: {why}, after {counted(after, 'seed')}"

    def _undecided(self) -> Iterator[str]:
        if len(self.finalists) < 2 or len(self.columns) > 1:
            return
        costs = np.concatenate([self.runs[number] for number in self.finalists], axis=1)
        few = f"; between two, at least {fewest_seeds()} seeds can decide" if len(costs) < fewest_seeds() else ""
        if np.isfinite(costs).all() and confidence_set(costs)[0].all():
            yield f"each of these may be the best, after {counted(len(costs), 'seed')}{few}"


def is_search(folder: Path) -> bool:
    """Return True if a folder contains a search."""
    return (folder / SEARCH).is_file()

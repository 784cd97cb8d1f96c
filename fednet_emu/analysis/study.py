"""A recorded study, with its axes, its target, and its tables of evaluations and of runs."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from fednet_emu.analysis.quantities import number_text
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.scales import (
    CARBON,
    COSTS,
    DEVICE_ENERGY,
    OF_ENERGY,
    PER_RUN,
    TO_TARGET,
    Measure,
    first_reached,
    measured,
    with_total_bits,
)
from fednet_emu.errors import DataError, FednetError, did_you_mean, one_line, require_known
from fednet_emu.files.writing import flaw
from fednet_emu.records.folder import AGAIN, SUMMARY, read_manifest


def cycle_times(turns: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return a table with the `cycle_columns` of several runs. Runs without a complete cycle are omitted."""
    runs = pd.DataFrame([cycle_columns(table) for table in turns], columns=["grouping", "groups_formed", "cycle_s"])
    return runs.dropna().reset_index(drop=True)


def cycle_columns(turns: pd.DataFrame) -> dict[str, Any]:
    """Return the kind of grouping, the mean number of groups and the mean cycle time from a run's `cyclic_turns`.

    Returns:
        `grouping` (structure and access scheme as text), `groups_formed`, and `cycle_s` in simulated seconds. Means are
        over complete cycles, and they are NaN if there is no complete cycle.
    """
    cycles = turns.groupby("cycle").agg(
        turns=("group", "size"), groups=("groups", "first"), start_s=("started_s", "min"), end_s=("ended_s", "max")
    )
    whole = cycles[cycles["turns"] == cycles["groups"]]
    return {
        "grouping": ", ".join(turns[["structure", "access"]].iloc[0]) if len(turns) else "",
        "groups_formed": float(whole["groups"].mean()),
        "cycle_s": float((whole["end_s"] - whole["start_s"]).mean()),
    }


DESCRIPTION = "study.json"
UNFINISHED = "run the sweep that writes it again, which mends it"
NEEDED = ("seed", "status", "uplink_bit", "downlink_bit", "sidelink_bit")
"""Entries of a run's summary that comparisons need."""
DATA_SET, DEVICE_COUNT = "data_set", "device_count"
"""Columns of the table of runs that contain the unique name of the data set, and the number of devices."""
LOWER_BOUND = "neighbours_at_least"
"""Column of the table of runs that is True if the delay of other users is a lower bound, because too many files were
unfinished at the end of the run."""
UNCOUNTED = "compute_unknown_share"
"""Column of the table of runs with the share of devices whose computing is not in the energy, because its power is
unknown. Studies of older versions have no such column."""

Levels = Mapping[str, Any]
"""A mapping from some axes of a study to a level of each axis."""
Condition = str | Mapping[str, Any]
"""The levels of some axes, as text `axis=level` (separated by commas if there are several) or as `{axis: level}`."""
Within = Mapping[str, float] | Iterable[str]
"""Upper limits of costs, as a mapping such as `{"time": 60}` (in s) or as strings such as `time=60`."""


@dataclass(frozen=True)
class StudyRecords:
    """The records of a study: its axes, its target, and the tables of its runs and of their evaluations."""

    name: str
    axes: Mapping[str, Sequence[Any]]
    """The axes by name, each with its levels in order."""
    target: Mapping[str, float]
    """The metric of the target (`accuracy` or `loss`) and the value it must reach; empty if there is no target."""
    evaluations: pd.DataFrame
    """One row for each evaluation of each finished run, with `seed` and a column for each axis."""
    runs: pd.DataFrame
    """One row for each finished run, in the order of the study, with its levels, total costs, costs to reach the
    target, and summaries of recorded series."""
    unfinished: Sequence[str]
    """Labels of the unfinished runs."""
    missing: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row for each unfinished run, with its levels, `seed`, `status` and `reason`."""

    @classmethod
    def opened(cls, folder: Path) -> Self:
        """Open the study that `fednet sweep` has written to a folder.

        Raises:
            DataError: the folder or one of its tables is missing or unreadable.
        """
        if not is_study(folder):
            what = "is no folder of a study" if folder.is_dir() else "no such folder of a study"
            raise DataError(str(folder), what, "give the folder that `fednet sweep` wrote")
        try:
            described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            axes, target, name = dict(described["axes"]), dict(described["target"]), str(described["name"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(str(folder / DESCRIPTION), f"unreadable, got '{error}'", "run the sweep again") from error
        _require_present_names(folder)
        sums = described.get("files", {})
        runs, evaluations = (
            _table(folder / f"{name}.parquet", sums.get(f"{name}.parquet")) for name in ("runs", "study")
        )
        new = [f"axis '{name}'" for name in axes if name not in runs or name not in evaluations]
        new += [f"column '{name}'" for name in ("run", "seed") if name not in runs or name not in evaluations]
        new += [f"column '{name}'" for name in (DATA_SET, DEVICE_COUNT) if name not in runs]
        if new:
            raise DataError(str(folder), f"its tables are older than its {new[0]}", UNFINISHED)
        done = runs["status"].isin(["done", "diverged"])
        finished = _with_cycles(folder, runs[done].reset_index(drop=True))
        missing = runs[~done].reset_index(drop=True)
        return cls(name, axes, target, evaluations, finished, list(missing["run"]), missing)

    @classmethod
    def of_run(cls, run: RunRecords) -> Self:
        """Return a single run as a study without axes and without a target.

        Raises:
            DataError: the evaluations of the run are missing or unreadable.
        """
        lacking = [name for name in NEEDED if name not in run.summary]
        if lacking:
            where = run.name if run.folder is None else str(run.folder / SUMMARY)
            raise DataError(where, f"has no entry '{lacking[0]}'", AGAIN)
        evaluations = with_total_bits(run.table("evaluations")).assign(run=run.name, seed=run.summary["seed"])
        totals = {name: value for name, value in run.summary.items() if not isinstance(value, list | dict | str)}
        own = {
            **dict.fromkeys(TO_TARGET, math.nan),
            **delays_of_others(run.summary),
            DEVICE_COUNT: run.devices or math.nan,
            **uncounted_computing(run.summary),
        }
        named = {"status": run.summary["status"], "run": run.name, "total_bit": run.total_bit}
        return cls(run.name, {}, {}, evaluations, pd.DataFrame([{**totals, **own, **named}]), ())

    @property
    def diverged(self) -> list[str]:
        """Labels of the finished runs that diverged. These runs have scores, but count as missing every target."""
        return list(self.runs["run"][self.runs["status"] == "diverged"])

    @property
    def metrics(self) -> dict[str, str]:
        """Titles of the measured scores, by column name. The score of the target is first."""
        known = measured([self.evaluations])
        return {name: known[name] for name in (*self.target, *known) if name in known}

    def aiming_at(self, accuracy: float | None = None, loss: float | None = None) -> Self:
        """Return a copy of the study with another target, which is an accuracy or a loss.

        The costs to reach the target are computed again. If neither argument is given, the study itself is returned.

        Raises:
            FednetError: both are given, the accuracy is not above 0 and at most 1, or the loss is not above 0.
        """
        asked: dict[Measure, float | None] = {"accuracy": accuracy, "loss": loss}
        given = {measure: level for measure, level in asked.items() if level is not None}
        if not given:
            return self
        if len(given) > 1:
            raise FednetError(f"loss: a target has one measure, got {loss:g} and accuracy {accuracy:g}; leave out one")
        if accuracy is not None and not 0 < accuracy <= 1:
            raise FednetError(f"accuracy: must be above 0 and at most 1, got {accuracy:g}; for example 0.9")
        if loss is not None and not 0 < loss < math.inf:
            raise FednetError(f"loss: must be a number above 0, got {loss:g}; for example 0.3")
        ((measure, level),) = given.items()
        sound = self.evaluations[~self.evaluations["run"].isin(self.diverged)]
        reached = first_reached(sound, self.runs["run"], measure, level).set_axis(self.runs.index)
        return replace(self, target={measure: level}, runs=self.runs.drop(columns=list(TO_TARGET)).join(reached))

    def within(self, cost: str, amount: float) -> Self:
        """Return the study as if each run had ended at its last evaluation with a cost of at most `amount`.

        `cost` is the name of a cost, such as `time`. Final scores and total costs are those at this evaluation. A run
        that reaches the target only later counts as missing it.

        Raises:
            FednetError: the cost does not exist.
        """
        kept = self.evaluations[(self.spent(cost) <= amount) & ~self.is_lower_bound(cost)]
        last = kept.groupby("run").tail(1).set_index("run")
        known = last.columns.intersection(self.runs.columns).difference([*self.axes, "seed"])
        runs = self.runs.assign(**{name: self.runs["run"].map(last[name]) for name in known})
        in_time = self.runs[TO_TARGET[0]] <= self.runs["run"].map(last["simulated_s"])
        runs = runs.assign(**{name: self.runs[name].where(in_time) for name in TO_TARGET})
        return replace(self, evaluations=kept, runs=runs)

    def spent(self, cost: str) -> pd.Series:
        """Return for each row of `evaluations` the cost of the run so far, in simulated s, bits, J, rounds or g.

        If a cost is known only for the whole run, each evaluation of the run has this value.

        Raises:
            FednetError: the cost does not exist or was not recorded, or it is a cost per device and the number of
                devices is unknown.
        """
        require_known(f"{self.name}: no such cost", cost, COSTS)
        if cost in PER_RUN:
            own = self.runs.set_index("run").get(COSTS[cost].column, pd.Series(dtype=float))
            if not own.notna().any():
                raise FednetError(
                    f"{self.name}: {cost}: is not recorded, got runs without it; see docs/concepts/traffic"
                )
            return self.evaluations["run"].map(own)
        if cost == CARBON and COSTS[cost].column not in self.evaluations:
            raise FednetError(
                f"{self.name}: {cost}: is not recorded at each evaluation, got a table without it; "
                "give the scenario a section carbon, and sweep the study again"
            )
        amounts = self.evaluations[COSTS[cost].column]
        if cost != DEVICE_ENERGY:
            return amounts
        counts = self.runs.set_index("run").get(DEVICE_COUNT, pd.Series(dtype=float)).reindex(self.runs["run"])
        unknown = list(counts.index[counts.isna()])
        if unknown:
            raise FednetError(
                f"{self.name}: {cost}: needs the number of devices, got none of {unknown[0]}; limit energy"
            )
        return amounts / self.evaluations["run"].map(counts)

    def is_lower_bound(self, cost: str) -> pd.Series:
        """Return for each row of `evaluations` whether the cost of the run is known only as a lower bound."""
        if cost not in PER_RUN or LOWER_BOUND not in self.runs:
            return pd.Series(False, self.evaluations.index)
        bounds = self.runs["run"][self.runs[LOWER_BOUND].isin([True])]
        return self.evaluations["run"].isin(bounds)

    def where(self, levels: Levels) -> Self:
        """Return the subset of the study with the given levels. The axes of these levels are removed.

        Raises:
            FednetError: an axis or level does not exist.
        """
        levels = {axis: self.level(axis, level_text(level)) for axis, level in levels.items()}
        missing = rows_of(self.missing, levels) if len(self.missing) else self.missing
        return replace(
            self,
            axes={name: known for name, known in self.axes.items() if name not in levels},
            evaluations=rows_of(self.evaluations, levels),
            runs=rows_of(self.runs, levels),
            missing=missing,
            unfinished=list(missing["run"]) if len(self.missing) else self.unfinished,
        )

    def level(self, axis: str, text: str) -> Any:
        """Return the level of an axis that is written as `text`, for example the number 1e6 for `1000000`.

        Raises:
            FednetError: the axis or level does not exist.
        """
        require_known(f"{self.name}: no such axis", axis, self.axes, "its axes:")
        found = [level for level in self.axes[axis] if is_level(level, text)]
        if not found:
            hint = did_you_mean(text, map(level_text, self.axes[axis]), "its levels:")
            raise FednetError(f"{self.name}: no such level of {axis}, got '{text}'{hint}")
        return found[0]


def require_finished(view: StudyRecords, name: str) -> None:
    """Raise a `FednetError`, which begins with `name`, if the study has no finished run."""
    if not len(view.runs):
        failed = int((view.missing["status"] == "failed").sum()) if len(view.missing) else 0
        found = f"{failed} failed; see failures/" if failed else "none; sweep it first"
        raise FednetError(f"{name}: has no finished run, got {found}")


def level_text(level: Any) -> str:
    """Return a level as text. Numbers have enough digits to be distinct, and truth values are `true` and `false`."""
    if isinstance(level, bool):
        return str(level).lower()
    return number_text(level) if isinstance(level, float) else str(level)


def is_level(level: Any, text: str) -> bool:
    """Return True if `text` denotes a level, as written by `level_text` or as another form of the same number."""
    if level_text(level) == text or isinstance(level, bool) or not isinstance(level, int | float):
        return level_text(level) == text
    try:
        return bool(float(text) == level)
    except ValueError:
        return False


def combinations(view: StudyRecords, names: Sequence[str]) -> list[Levels]:
    """Return all combinations of levels of the axes `names`; a single empty combination if there are no axes."""
    return [dict(zip(names, levels, strict=True)) for levels in itertools.product(*(view.axes[name] for name in names))]


def rows_of(table: pd.DataFrame, levels: Levels) -> pd.DataFrame:
    """Return the rows of a table whose columns have the given levels, a mapping from columns (axes) to values."""
    chosen = np.ones(len(table), bool)
    for name, level in levels.items():
        chosen &= (table[name] == level).to_numpy()
    return table[chosen]


def is_study(folder: Path) -> bool:
    """Return True if a folder contains a study."""
    return any((folder / name).exists() for name in (DESCRIPTION, "study.parquet"))


def run_folders(folder: Path) -> list[Path]:
    """Return the folders of the runs of a study, in the order of their names.

    Raises:
        DataError: an earlier version has written the study.
    """
    _require_present_names(folder)
    return sorted((folder / "runs").iterdir())


def _require_present_names(folder: Path) -> None:
    if (folder / "cells.parquet").exists() and not (folder / "runs.parquet").exists():
        raise DataError(str(folder), "was written by an earlier version, got cells.parquet", UNFINISHED)


def is_one_study(folders: Sequence[Path], command: str = "plot") -> bool:
    """Return True if the folders given to a command are a single study, or False if they are runs.

    Raises:
        FednetError: a study is among several folders.
    """
    studies = [folder for folder in folders if is_study(folder)]
    if studies and len(folders) > 1:
        raise FednetError(
            f"{command}: a study cannot be drawn with other folders, got {studies[0]} among {len(folders)} folders; "
            "give its folder alone, or folders of runs"
        )
    return bool(studies)


def delays_of_others(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the largest 95 % delay of other users in s, and if it is a lower bound; empty without such delays."""
    known = [its for its in summary.get("traffic", {}).values() if its["p95_s"] is not None]
    if not known:
        return {}
    bound = any("p95_s" in its["at_least"] for its in known)
    return {COSTS["neighbours"].column: max(its["p95_s"] for its in known), LOWER_BOUND: bound}


def limit_like_energies(shares: Iterable[float], limits: Iterable[str]) -> None:
    """Check that energies of runs can be limited, given their `shares` of devices whose computing is not included.

    Raises:
        FednetError: one of the costs `limits` is an energy or carbon, and the shares differ.
    """
    if len(set(shares)) > 1 and set(OF_ENERGY) & set(limits):
        raise FednetError(
            "--within: energy cannot be limited, got energies that exclude the computing of different shares of "
            "devices, whose power is unknown; limit time, bits or rounds"
        )


def uncounted_computing(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of devices whose computing is not in the energy; summaries of older versions have no entry."""
    return {UNCOUNTED: summary.get(UNCOUNTED, float(summary.get("compute_j", 0.0) is None))}


def _with_cycles(folder: Path, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the table of runs with the `cycle_columns`, which are NaN for runs without the series `cyclic_turns`."""
    known = {
        run: cycle_columns(_table(path, ((read_manifest(path.parent) or {}).get("files") or {}).get(path.name)))
        for run in runs["run"]
        for path in [folder / "runs" / run / "cyclic_turns.parquet"]
        if path.is_file()
    }
    if not known:
        return runs
    columns = pd.DataFrame.from_dict(known, orient="index")
    return runs.join(columns[columns.columns.difference(runs.columns, sort=False)], on="run")


def _table(path: Path, expected: str | None) -> pd.DataFrame:
    problem = flaw(path, expected)
    if problem:
        raise DataError(str(path), problem, UNFINISHED)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataError(str(path), f"not a readable table, got '{one_line(error, 120)}'", UNFINISHED) from error


def target_text(target: Mapping[str, float]) -> str:
    """Return a target as text, such as `accuracy 0.9` or `loss 0.3`. The text is empty if there is no target."""
    return ", ".join(f"{measure} {level:g}" for measure, level in target.items() if math.isfinite(level))


def conditions(given: Condition | Iterable[str], option: str, axes: Iterable[str] = ()) -> Mapping[str, Any]:
    """Return conditions such as `axis=level` as a mapping from axes to levels. A mapping is returned unchanged.

    A comma separates two conditions if the name of one of the `axes` and `=` follow, or any name if `axes` is empty.
    Any other comma belongs to a level.

    Raises:
        FednetError: a condition is malformed, or an axis has two levels. The message begins with `option`, the name of
            the option or argument.
    """
    if isinstance(given, Mapping):
        return given
    separator = re.compile(rf",(?=\s*(?:{'|'.join(map(re.escape, axes)) or '[^,=]+'})\s*=)")
    found: dict[str, str] = {}
    for text in [given] if isinstance(given, str) else given:
        for axis, equals, level in (map(str.strip, part.partition("=")) for part in separator.split(text)):
            if not (axis and equals):
                raise FednetError(f"{option}: expected axis=level, got '{text}'; for example access=tdma")
            if axis in found:
                raise FednetError(f"{option}: {axis} is given twice, got {found[axis]} and {level}; give it once")
            found[axis] = level
    return found


def limits_of(within: Within) -> list[tuple[str, float]]:
    """Return upper limits as pairs of a cost and an amount.

    Raises:
        FednetError: a text does not have the form `cost=amount`.
    """
    return list(within.items()) if isinstance(within, Mapping) else [_limit(text) for text in within]


def _limit(text: str) -> tuple[str, float]:
    cost, _, amount = (part.strip() for part in text.partition("="))
    try:
        return cost, float(amount)
    except ValueError:
        raise FednetError(f"--within: expected cost=amount, got '{text}'; for example time=60 or bits=2e8") from None

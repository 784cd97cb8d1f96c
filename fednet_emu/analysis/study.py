"""Read a recorded study for figures and comparisons: its axes, its target and its two tables."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.cycles import SERIES_COLUMNS
from fednet_emu.analysis.run import RunView
from fednet_emu.analysis.targets import TO_TARGET, first_reached, with_total_bits
from fednet_emu.errors import DataError, FednetError, did_you_mean
from fednet_emu.files.writing import flaw
from fednet_emu.records.folder.manifest import AGAIN, read_manifest

DESCRIPTION = "study.json"
UNFINISHED = "run the sweep that writes it again, which mends it"
NEEDED = ("seed", "status", "uplink_bit", "downlink_bit", "sidelink_bit")
"""Entries of a run's summary without which it cannot be compared."""
DEVICE_ENERGY = "device-energy"
SPENT = {"time": "simulated_s", "bits": "total_bit", "energy": "energy_j", DEVICE_ENERGY: "energy_j", "rounds": "round"}
"""Names of costs, and their columns in the evaluations, in simulated seconds, bits, joules and rounds.

`energy` is that of all devices and base stations together, `device-energy` that over the number of devices.
"""

Levels = Mapping[str, Any]
"""One level for each of some axes."""


@dataclass(frozen=True)
class StudyView:
    """A recorded study, read-only.

    Attributes:
        name: name of the study.
        axes: the axes by name, each with its levels in order.
        target: the measure that runs have to reach, with its level; empty for no target.
        evaluations: one row for each evaluation of each finished cell, with a column for each axis, and `seed`.
        cells: one row for each finished cell, in the order of the study: levels, totals, the costs of reaching the
            target, and the columns of `SERIES_COLUMNS`.
        unfinished: labels of the cells that are not finished.
        data_sets: for each finished cell the settings of its data, as text; equal texts are equal data.
        devices: for each finished cell how many devices it has, where its scenario says so.
        missing: one row for each cell that is not finished, with its levels, `seed`, `status` and `reason`.
    """

    name: str
    axes: Mapping[str, Sequence[Any]]
    target: Mapping[str, float]
    evaluations: pd.DataFrame
    cells: pd.DataFrame
    unfinished: Sequence[str]
    data_sets: Mapping[str, str] = field(default_factory=dict)
    missing: pd.DataFrame = field(default_factory=pd.DataFrame)
    devices: Mapping[str, int] = field(default_factory=dict)

    @property
    def diverged(self) -> list[str]:
        """Labels of the finished cells that have diverged; they have scores, but count as not reaching a target."""
        return list(self.cells["cell"][self.cells["status"] == "diverged"])

    def aiming_at(self, accuracy: float) -> StudyView:
        """Return the study with another target, an accuracy from 0 to 1."""
        sound = self.evaluations[~self.evaluations["cell"].isin(self.diverged)]
        reached = first_reached(sound, self.cells["cell"], "accuracy", accuracy).set_axis(self.cells.index)
        return replace(
            self, target={"accuracy": accuracy}, cells=self.cells.drop(columns=list(TO_TARGET)).join(reached)
        )

    def within(self, cost: str, amount: float) -> StudyView:
        """Return the study as if every run had ended at its last evaluation before a cost exceeds an amount.

        Scores and totals are those at this evaluation; the costs of reaching the target stay those of the whole runs.

        Args:
            cost: a key of `SPENT`.
            amount: the largest cost that is allowed, in simulated seconds, bits, joules or rounds.

        Raises:
            FednetError: there is no such cost.
        """
        kept = self.evaluations[self.spent(cost) <= amount]
        last = kept.groupby("cell").tail(1).set_index("cell")
        known = last.columns.intersection(self.cells.columns).difference([*self.axes, "seed"])
        cells = self.cells.assign(**{name: self.cells["cell"].map(last[name]) for name in known})
        return replace(self, evaluations=kept, cells=cells)

    def spent(self, cost: str) -> pd.Series:
        """Return what a run had spent by each evaluation: simulated seconds, bits, joules or rounds.

        Args:
            cost: a key of `SPENT`.

        Raises:
            FednetError: there is no such cost, or it is one per device, and the number of devices is not known.
        """
        if cost not in SPENT:
            close = did_you_mean(cost, SPENT) or f"; choose from {', '.join(SPENT)}"
            raise FednetError(f"{self.name}: no such cost, got '{cost}'{close}")
        amounts = self.evaluations[SPENT[cost]]
        if cost != DEVICE_ENERGY:
            return amounts
        unknown = [cell for cell in self.cells["cell"] if cell not in self.devices]
        if unknown:
            raise FednetError(
                f"{self.name}: {cost}: needs the number of devices, got none of {unknown[0]}; limit energy"
            )
        return amounts / self.evaluations["cell"].map(self.devices)

    def where(self, conditions: Mapping[str, str]) -> StudyView:
        """Return the part of the study with the given levels; their axes are removed.

        Args:
            conditions: the level of each of some axes, as text.

        Raises:
            FednetError: there is no such axis or level.
        """
        levels = {axis: self.level(axis, text) for axis, text in conditions.items()}
        missing = rows_of(self.missing, levels) if len(self.missing) else self.missing
        return replace(
            self,
            axes={name: known for name, known in self.axes.items() if name not in levels},
            evaluations=rows_of(self.evaluations, levels),
            cells=rows_of(self.cells, levels),
            missing=missing,
            unfinished=list(missing["cell"]) if len(self.missing) else self.unfinished,
        )

    def level(self, axis: str, text: str) -> Any:
        """Return the level of an axis that a text means.

        Raises:
            FednetError: there is no such axis or level.
        """
        if axis not in self.axes:
            close = did_you_mean(axis, self.axes) or f"; its axes: {', '.join(self.axes) or 'none'}"
            raise FednetError(f"{self.name}: no such axis, got '{axis}'{close}")
        found = [level for level in self.axes[axis] if is_level(level, text)]
        if not found:
            texts = [level_text(level) for level in self.axes[axis]]
            close = did_you_mean(text, texts) or f"; its levels: {', '.join(texts)}"
            raise FednetError(f"{self.name}: no such level of {axis}, got '{text}'{close}")
        return found[0]


def level_text(level: Any) -> str:
    """Return a level as readable text; true and false are written in lower case, as in YAML."""
    if isinstance(level, bool):
        return str(level).lower()
    return f"{level:g}" if isinstance(level, float) else str(level)


def is_level(level: Any, text: str) -> bool:
    """Return whether a text means a level: as `level_text` writes it, or another way to write the same number."""
    if level_text(level) == text or isinstance(level, bool) or not isinstance(level, int | float):
        return level_text(level) == text
    try:
        return bool(float(text) == level)
    except ValueError:
        return False


def combinations(view: StudyView, names: Sequence[str]) -> list[Levels]:
    """Return all combinations of the levels of some axes; a single empty combination if there are no axes."""
    return [dict(zip(names, levels, strict=True)) for levels in itertools.product(*(view.axes[name] for name in names))]


def rows_of(table: pd.DataFrame, levels: Levels) -> pd.DataFrame:
    """Return the rows of a table that have these levels."""
    chosen = np.ones(len(table), bool)
    for name, level in levels.items():
        chosen &= (table[name] == level).to_numpy()
    return table[chosen]


def is_study(folder: Path) -> bool:
    """Return whether a folder holds a study."""
    return any((folder / name).exists() for name in (DESCRIPTION, "study.parquet"))


def is_one_study(folders: Sequence[Path], command: str = "plot") -> bool:
    """Whether these folders, given to a command, are that of one study, rather than those of runs.

    Raises:
        FednetError: there is a study among others.
    """
    studies = [folder for folder in folders if is_study(folder)]
    if studies and len(folders) > 1:
        raise FednetError(
            f"{command}: a study is drawn by itself, got {studies[0]} among {len(folders)} folders; "
            "give its folder alone, or folders of runs, those of its cells for example"
        )
    return bool(studies)


def open_study(folder: Path) -> StudyView:
    """Open the study that `fednet sweep` has written to a folder.

    Raises:
        DataError: the folder or one of its tables is missing or unreadable.
    """
    if not is_study(folder):
        raise DataError(str(folder), "no such folder of a study", "give the folder that `fednet sweep` wrote")
    try:
        told = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        axes, target, name = dict(told["axes"]), dict(told["target"]), str(told["name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(str(folder / DESCRIPTION), f"unreadable, got '{error}'", "run the sweep again") from error
    sums = told.get("files", {})
    cells, evaluations = (
        _table(folder / f"{name}.parquet", sums.get(f"{name}.parquet")) for name in ("cells", "study")
    )
    new = [name for name in (*axes, "cell", "seed") if name not in cells or name not in evaluations]
    if new:
        raise DataError(str(folder), f"its tables are older than its axis '{new[0]}'", UNFINISHED)
    done = cells["status"].isin(["done", "diverged"])
    finished = _with_series(folder, cells[done].reset_index(drop=True))
    missing = cells[~done].reset_index(drop=True)
    data_sets = {str(cell): _section(folder / "cells" / str(cell), "data") for cell in finished["cell"]}
    counts = {
        str(cell): re.search(r"^ +count: (\d+)$", _section(folder / "cells" / str(cell), "devices"), re.MULTILINE)
        for cell in finished["cell"]
    }
    devices = {cell: int(found[1]) for cell, found in counts.items() if found}
    return StudyView(name, axes, target, evaluations, finished, list(missing["cell"]), data_sets, missing, devices)


def _section(cell: Path, key: str) -> str:
    """The part of a run's scenario.yaml below a key, as text; nothing if it is not there."""
    path = cell / "scenario.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(rf"^{key}:.*\n(?:[ \t].*\n)*", text, re.MULTILINE)
    return found[0] if found else ""


def _with_series(folder: Path, cells: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of `SERIES_COLUMNS` to the table of cells; they are NaN in cells without the series."""
    for series, columns_of in SERIES_COLUMNS.items():
        known = {
            cell: columns_of(_table(path, ((read_manifest(path.parent) or {}).get("files") or {}).get(path.name)))
            for cell in cells["cell"]
            for path in [folder / "cells" / cell / f"{series}.parquet"]
            if path.is_file()
        }
        if known:
            told = pd.DataFrame.from_dict(known, orient="index")
            cells = cells.join(told[told.columns.difference(cells.columns, sort=False)], on="cell")
    return cells


def _table(path: Path, expected: str | None) -> pd.DataFrame:
    problem = flaw(path, expected)
    if problem:
        raise DataError(str(path), problem, UNFINISHED)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataError(
            str(path), f"not a readable table, got '{' '.join(str(error).split())[:120]}'", UNFINISHED
        ) from error


def target_text(target: Mapping[str, float]) -> str:
    """Return a target as text: `accuracy 0.9`, `loss 0.3`, or empty for no target."""
    return ", ".join(f"{measure} {level:g}" for measure, level in target.items() if math.isfinite(level))


def study_of_run(run: RunView) -> StudyView:
    """Return a single run as a study without axes and without a target.

    Raises:
        DataError: its evaluations are missing or unreadable.
    """
    lacking = [name for name in NEEDED if name not in run.summary]
    if lacking:
        where = run.label if run.folder is None else str(run.folder / "summary.json")
        raise DataError(where, f"has no entry '{lacking[0]}'", AGAIN)
    evaluations = with_total_bits(run.table("evaluations")).assign(cell=run.label, seed=run.summary["seed"])
    totals = {name: value for name, value in run.summary.items() if not isinstance(value, list | dict | str)}
    total_bit = sum(run.summary[f"{kind}_bit"] for kind in ("uplink", "downlink", "sidelink"))
    nothing = dict.fromkeys(TO_TARGET, math.nan)
    cells = pd.DataFrame(
        [{**totals, **nothing, "status": run.summary["status"], "cell": run.label, "total_bit": total_bit}]
    )
    return StudyView(run.label, {}, {}, evaluations, cells, ())

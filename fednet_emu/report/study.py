"""A recorded study as figures and comparisons see it: its axes, its target and its two tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fednet_emu.component import did_you_mean
from fednet_emu.errors import DataError, FednetError
from fednet_emu.report.run import open_run
from fednet_emu.report.targets import TO_TARGET, first_reached, with_total_bits

DESCRIPTION = "study.json"
UNFINISHED = "finish the sweep that writes it"


@dataclass(frozen=True)
class StudyView:
    """A study, read-only.

    Attributes:
        name: of its file.
        axes: what is varied, each with its levels in order.
        target: the measure and level that runs have to reach; empty for none.
        evaluations: every evaluation of every finished cell, with a column for each axis, and `seed`.
        cells: one row for each finished cell, in the order of the study: totals and what the target had cost.
        unfinished: labels of the cells that are not there.
    """

    name: str
    axes: Mapping[str, Sequence[Any]]
    target: Mapping[str, float]
    evaluations: pd.DataFrame
    cells: pd.DataFrame
    unfinished: Sequence[str]

    def aiming_at(self, accuracy: float) -> StudyView:
        """The study with another target accuracy."""
        aimed = [
            first_reached(self.evaluations[self.evaluations["cell"] == cell], "accuracy", accuracy)
            for cell in self.cells["cell"]
        ]
        reached = pd.DataFrame(aimed, columns=list(TO_TARGET), index=self.cells.index)
        return replace(
            self, target={"accuracy": accuracy}, cells=self.cells.drop(columns=list(TO_TARGET)).join(reached)
        )

    def where(self, conditions: Mapping[str, str]) -> StudyView:
        """The part of the study with these levels, which are no longer axes.

        Raises:
            FednetError: there is no such axis or level.
        """
        part = self
        for axis, text in conditions.items():
            level = part.level(axis, text)
            part = replace(
                part,
                axes={name: levels for name, levels in part.axes.items() if name != axis},
                evaluations=part.evaluations[part.evaluations[axis] == level],
                cells=part.cells[part.cells[axis] == level],
            )
        return part

    def level(self, axis: str, text: str) -> Any:
        """The level of an axis that reads `text`.

        Raises:
            FednetError: there is no such axis or level.
        """
        if axis not in self.axes:
            close = did_you_mean(axis, self.axes) or f"; its axes: {', '.join(self.axes) or 'none'}"
            raise FednetError(f"{self.name}: no such axis, got '{axis}'{close}")
        found = [level for level in self.axes[axis] if level_text(level) == text]
        if not found:
            texts = [level_text(level) for level in self.axes[axis]]
            close = did_you_mean(text, texts) or f"; its levels: {', '.join(texts)}"
            raise FednetError(f"{self.name}: no such level of {axis}, got '{text}'{close}")
        return found[0]


def level_text(level: Any) -> str:
    """A level as people write it."""
    if isinstance(level, bool):
        return str(level).lower()
    return f"{level:g}" if isinstance(level, float) else str(level)


def is_study(folder: Path) -> bool:
    """Whether a folder is that of a study."""
    return (folder / DESCRIPTION).is_file()


def open_study(folder: Path) -> StudyView:
    """The study that `fednet sweep` has left in a folder.

    Raises:
        DataError: the folder or one of its tables is missing or unreadable.
    """
    if not is_study(folder):
        raise DataError(str(folder), "no such folder of a study", "give the folder that `fednet sweep` wrote")
    try:
        told = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        axes, target, name = dict(told["axes"]), dict(told["target"]), str(told["name"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(str(folder / DESCRIPTION), f"unreadable, got '{error}'", "run the sweep again") from error
    cells, evaluations = _table(folder, "cells"), _table(folder, "study")
    done = cells["status"] == "done"
    return StudyView(name, axes, target, evaluations, cells[done].reset_index(drop=True), list(cells["cell"][~done]))


def _table(folder: Path, name: str) -> pd.DataFrame:
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise DataError(str(path), "no such table", UNFINISHED)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataError(
            str(path), f"not a readable table, got '{' '.join(str(error).split())[:120]}'", UNFINISHED
        ) from error


def target_text(target: Mapping[str, float]) -> str:
    """A target in words: `accuracy 0.9`, `loss 0.3`, or nothing."""
    return ", ".join(f"{measure} {level:g}" for measure, level in target.items() if math.isfinite(level))


def study_of_run(folder: Path) -> StudyView:
    """A single run as a study without axes.

    Raises:
        DataError: as `open_run`.
    """
    run = open_run(folder)
    evaluations = with_total_bits(run.table("evaluations")).assign(cell=run.label, seed=run.summary["seed"])
    totals = {name: value for name, value in run.summary.items() if not isinstance(value, list | dict | str)}
    total_bit = sum(run.summary[f"{kind}_bit"] for kind in ("uplink", "downlink", "sidelink"))
    nothing = dict.fromkeys(TO_TARGET, math.nan)
    cells = pd.DataFrame([{**totals, **nothing, "cell": run.label, "total_bit": total_bit}])
    return StudyView(run.label, {}, {}, evaluations, cells, ())

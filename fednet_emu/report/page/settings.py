"""The settings of a study as a page names them: levels, a label that cannot be mistaken, and the data set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fednet_emu.errors import DataError
from fednet_emu.records.manifest import AGAIN
from fednet_emu.report.figures.study_curves import Levels, combinations, rows_of
from fednet_emu.report.views.study import StudyView, level_text

_DATA = re.compile(r"^data:.*\n(?:[ -].*\n?)*", re.MULTILINE)


@dataclass(frozen=True)
class Setting:
    """One combination of levels of a study, whose cells differ only in the seed.

    Attributes:
        levels: the level of each axis.
        label: its name in figures.
        data_set: the data set that its cells learn; scores on different data sets are never put on one front.
        cells: its finished cells.
        missing: its cells that failed or wait.
    """

    levels: dict[str, Any]
    label: str
    data_set: str
    cells: pd.DataFrame
    missing: pd.DataFrame

    @property
    def sound(self) -> bool:
        """Whether it has finished cells, and none of them diverged."""
        return len(self.cells) > 0 and not (self.cells["status"] == "diverged").any()

    @property
    def of(self) -> int:
        """How many cells it has, finished or not."""
        return len(self.cells) + len(self.missing)


def settings_of(view: StudyView, folder: Path) -> list[Setting]:
    """Return the settings of a study of which there are cells, in its order.

    Args:
        view: the study.
        folder: its folder, from which the data set of each setting is read.

    Raises:
        DataError: the scenario of a finished cell is missing or unreadable.
    """
    found = []
    for levels in combinations(view, list(view.axes)):
        cells = rows_of(view.cells, levels)
        missing = rows_of(view.missing, levels) if len(view.missing) else view.missing
        if len(cells) or len(missing):
            found.append((levels, cells, missing))
    data = [_data(folder / "cells" / str(cells["cell"].iloc[0])) if len(cells) else {} for _, cells, _ in found]
    return [
        Setting(dict(levels), setting_text(levels, view.axes) or view.name, name, cells, missing)
        for (levels, cells, missing), name in zip(found, data_set_names(data), strict=True)
    ]


def setting_text(levels: Levels, axes: Mapping[str, Sequence[Any]]) -> str:
    """Return levels as text; names of axes are whole, and left out where a level is text that only one axis has."""
    texts = Counter(level_text(level) for known in axes.values() for level in known)
    return ", ".join(
        level_text(level) if isinstance(level, str) and texts[level] == 1 else f"{axis} = {level_text(level)}"
        for axis, level in levels.items()
    )


def data_set_names(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for each data set, equal if and only if they are; short if its kind alone tells them apart."""
    kinds = Counter(kind for kind, _ in {(str(block.get("kind", "")), _detail(block)) for block in blocks})
    names = [(str(block.get("kind", "")), _detail(block)) for block in blocks]
    return [f"{kind} ({detail})" if kinds[kind] > 1 else kind for kind, detail in names]


def _detail(block: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in block.items() if key != "kind")


def _data(folder: Path) -> dict[str, Any]:
    """Return the data set of a run; only its part of the scenario is parsed, because a study has many cells."""
    path = folder / "scenario.yaml"
    try:
        block = _DATA.search(path.read_text(encoding="utf-8"))
        told = YAML(typ="safe", pure=True).load(block[0])["data"] if block else {}
    except (OSError, ValueError, YAMLError) as error:
        raise DataError(str(path), f"unreadable, got '{' '.join(str(error).split())[:120]}'", AGAIN) from error
    return told if isinstance(told, dict) else {"kind": told}

"""The settings of a study as texts name them: levels, a label that cannot be mistaken, and the data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from ruamel.yaml import YAML

from fednet_emu.report.views.study import Levels, StudyView, combinations, level_text, rows_of


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


def settings_of(view: StudyView) -> list[Setting]:
    """Return the settings of a study of which there are cells, in its order."""
    found = []
    for levels in combinations(view, list(view.axes)):
        cells = rows_of(view.cells, levels)
        missing = rows_of(view.missing, levels) if len(view.missing) else view.missing
        if len(cells) or len(missing):
            found.append((levels, cells, missing))
    data = [view.data_sets.get(str(cells["cell"].iloc[0]), "") if len(cells) else "" for _, cells, _ in found]
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


def data_set_names(blocks: Sequence[str]) -> list[str]:
    """Return a name for each data set, equal if and only if they are: its kind, if that tells it from the others.

    Args:
        blocks: the settings of each data set, as YAML; empty where they are not known.
    """
    known = {block: _named(block) for block in blocks}
    kinds = Counter(kind for kind, _ in known.values())
    return [f"{kind} ({detail})" if kinds[kind] > 1 else kind for kind, detail in (known[block] for block in blocks)]


def _named(block: str) -> tuple[str, str]:
    """The kind of a data set, and its other settings."""
    told = (YAML(typ="safe", pure=True).load(block) or {}).get("data") or {}
    return str(told.get("kind", "")), ", ".join(f"{key}: {value}" for key, value in told.items() if key != "kind")

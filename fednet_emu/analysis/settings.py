"""The settings of a study: full names in text, short names in figures, and the costs to reach the target."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.quantities import Unit, counted, fitting_unit, number_text, prefixed
from fednet_emu.analysis.scales import METRICS, TO_TARGET
from fednet_emu.analysis.statistics import cost_interval
from fednet_emu.analysis.study import DATA_SET, Levels, StudyRecords, combinations, is_level, level_text, rows_of
from fednet_emu.errors import FednetError, did_you_mean
from fednet_emu.units import UNITS, unit_of

MANY = 4
"""Number of settings from which the title of the legend, instead of each label, contains the names of the axes."""
PREFIXED = frozenset({"Hz", "bit", "bit/s", "FLOP/s", "W", "J"})
"""Units that may have an SI prefix, such as k or M, in the name of a level (a value of an axis of the study)."""


@dataclass(frozen=True)
class Setting:
    """A setting of a study: one combination of levels of the axes. Its runs differ only in the seed."""

    levels: dict[str, Any]
    label: str
    data_set: str
    """Name of the data set of the runs. Only settings with the same data set are on a common Pareto front."""
    runs: pd.DataFrame
    missing: pd.DataFrame
    """Table of the failed runs, and of the runs that have not been executed yet."""

    @property
    def sound(self) -> bool:
        """True if the setting has finished runs and no finished run diverged."""
        return len(self.runs) > 0 and not (self.runs["status"] == "diverged").any()

    @property
    def of(self) -> int:
        """Number of finished and unfinished runs of the setting."""
        return len(self.runs) + len(self.missing)


def settings_of(study: StudyRecords) -> list[Setting]:
    """Return the settings of a study that have finished or unfinished runs, in the order of the study."""
    found, names = list[Setting](), Names(study.axes)
    for levels in combinations(study, list(study.axes)):
        runs = rows_of(study.runs, levels)
        missing = rows_of(study.missing, levels) if len(study.missing) else study.missing
        if len(runs) or len(missing):
            known = runs if len(runs) else missing
            data_set = str(known[DATA_SET].iloc[0]) if DATA_SET in known else ""
            found.append(Setting(dict(levels), names.whole(levels) or study.name, data_set, runs, missing))
    return found


@dataclass(frozen=True)
class Names:
    """Names of the axes, levels and metrics of a study for text and for figures.

    An axis is a varied setting, and its levels are the values of this setting. Text contains full names, which the user
    can copy into conditions such as `axis=level`. Figures contain short names with units, or names chosen by the user.
    """

    axes: Mapping[str, Sequence[Any]]
    """The axes, each with its levels."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Names chosen by the user; the keys are original names of an axis, level (`level` or `axis=level`) or metric."""

    @staticmethod
    def of(axes: Mapping[str, Sequence[Any]], given: Mapping[str, str] | None = None) -> Names:
        """Return the names for a study with the axes `axes` and with the names `given` by the user.

        Raises:
            FednetError: a name is given for an unknown axis, level or metric.
        """
        pairs = [(axis, level) for axis, levels in axes.items() for level in levels]
        known = [*axes, *METRICS, *(text for axis, level in pairs for text in (level_text(level), axis))]
        for name in given or {}:
            if name not in known and not any(is_level(level, name.removeprefix(f"{axis}=")) for axis, level in pairs):
                hint = did_you_mean(name, known) or f"; its axes: {', '.join(axes) or 'none'}"
                raise FednetError(f"--rename: no axis, level or metric has this name, got '{name}'{hint}")
        return Names(axes, given or {})

    def metric(self, name: str) -> str:
        """Return the title of a metric, such as `Accuracy` for `accuracy`."""
        return self.given.get(name, METRICS[name])

    def axis(self, name: str) -> str:
        """Return the name of an axis in figures.

        By default, it is the key of the setting without section and unit, shortened to its last two components.
        """
        return self.given.get(name) or self._short[name]

    def level(self, axis: str, level: Any) -> str:
        """Return a level of an axis as text. A number is followed by the unit at the end of the axis's key: `1 MHz`."""
        text = level_text(level)
        unit = self._unit(axis) if _is_number(level) else None
        return self._renamed(axis, level) or (text if unit is None else with_unit(float(level), unit))

    def whole(self, levels: Levels) -> str:
        """Return levels as text. The full name of an axis is added unless the level or its unit identifies the axis."""
        return self._listed(levels, str)

    def text(self, levels: Levels) -> str:
        """Return levels as text for figures. An axis's short name is included unless the level identifies the axis."""
        return self._listed(levels, self.axis)

    def _listed(self, levels: Levels, name: Callable[[str], str]) -> str:
        texts = {axis: self.level(axis, level) for axis, level in levels.items()}
        return ", ".join(
            f"{name(axis)} = {text}" if self._needs_axis(axis, levels[axis]) else text for axis, text in texts.items()
        )

    def legend(self, settings: Sequence[Levels]) -> tuple[str, list[str]]:
        """Return the heading of a legend, and a label for each setting.

        If there are at least four settings, the heading contains the names of the axes, and the labels do not.
        """
        named = any(self._needs_axis(axis, level) for levels in settings for axis, level in levels.items())
        if len(settings) < MANY or not named:
            return "", [self.text(levels) for levels in settings]
        heading = ", ".join(map(self.axis, settings[0]))
        return heading, [", ".join(self.level(*pair) for pair in levels.items()) for levels in settings]

    @cached_property
    def _short(self) -> dict[str, str]:
        endings = {name: next((ending for ending in UNITS if name.endswith(ending)), "") for name in self.axes}
        keys = {name: name.removesuffix(ending).split(".") for name, ending in endings.items()}
        parts = {name: key[:1] if key[1:] == ["count"] else key[1:][-2:] or key for name, key in keys.items()}
        short = {name: ".".join(its) for name, its in parts.items()}
        counts = Counter(short.values())
        return {
            name: (text if counts[text] == 1 else ".".join(keys[name][-2:])).replace("_", " ")
            for name, text in short.items()
        }

    def _unit(self, axis: str) -> str | None:
        return "FLOP/s" if axis.endswith("flop_per_s") else unit_of(axis.rpartition(".")[2])

    def _renamed(self, axis: str, level: Any) -> str | None:
        pair = f"{axis}="
        whole = (text for key, text in self.given.items() if key.startswith(pair) and is_level(level, key[len(pair) :]))
        return next(whole, next((text for key, text in self.given.items() if is_level(level, key)), None))

    def _needs_axis(self, axis: str, level: Any) -> bool:
        if self._renamed(axis, level) is not None:
            return False
        if isinstance(level, str):
            return is_bare_number(level) or self._texts[level] != 1
        units = [self._unit(other) for other, levels in self.axes.items() if all(map(_is_number, levels))]
        return self._unit(axis) is None or not _is_number(level) or units.count(self._unit(axis)) > 1

    @cached_property
    def _texts(self) -> Counter[str]:
        return Counter(level_text(level) for levels in self.axes.values() for level in levels)


def with_unit(value: float, unit: str) -> str:
    """Return a value with its unit as text, such as `1 MHz`. Only units in `PREFIXED` can have an SI prefix."""
    its = fitting_unit(value, prefixed(unit) if unit in PREFIXED else (Unit(1.0, unit),))
    return f"{number_text(float(f'{value / its.size:.15g}'))} {its.symbol}"


def is_bare_number(level: Any) -> bool:
    """Return True if a level is a number, or text that represents a number."""
    try:
        return not isinstance(level, bool) and math.isfinite(float(level))
    except (TypeError, ValueError):
        return False


def _is_number(level: Any) -> bool:
    return isinstance(level, int | float) and not isinstance(level, bool)


def data_set_names(data: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """Return a unique name for each data set, given by its settings as in a scenario file.

    The name is the kind of the data set. If several data sets have the same kind, their settings follow in brackets.
    """
    named = [
        (str(its.get("kind", "")), ", ".join(f"{key}: {value}" for key, value in its.items() if key != "kind"))
        for its in (each or {} for each in data)
    ]
    kinds = Counter(kind for kind, _ in set(named))
    return [f"{kind} ({detail})" if kinds[kind] > 1 else kind for kind, detail in named]


def costs_to_target(settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """Yield for each setting the costs of its runs to reach the target, and the mean costs with 95 % intervals.

    The cost is NaN for a run that missed the target. The means are over the runs that reached the target. `failures` is
    the number of runs that missed the target by reason, as text.
    """
    for place, setting in enumerate(settings):
        seeds = [*setting.runs["seed"], *setting.missing.get("seed", ())]
        ends = [*setting.runs["status"], *setting.missing.get("status", ())]
        needed = {column: setting.runs[column].to_numpy(np.float64) for column in TO_TARGET}
        reached = np.isfinite(needed[TO_TARGET[0]])
        yield {
            "setting": place,
            "seeds": [int(seed) for seed in seeds],
            "status": ends,
            "reached": int(reached.sum()),
            "of": setting.of,
            "failures": failures_text(ends, reached),
            "costs": {
                column: {"values": values, **cost_interval(values[reached])._asdict()}
                for column, values in needed.items()
            },
        }


def failures_text(ends: Sequence[str], reached: Sequence[bool] | np.ndarray[Any, np.dtype[np.bool_]]) -> str:
    """Return the number of runs that missed the target for each reason, as text. Empty if all runs reached the target.

    Args:
        ends: the status of each run. Unfinished runs are last.
        reached: for each finished run, True if it reached the target.
    """
    late = [end for end, got in zip(ends, reached, strict=False) if not got]
    unfinished = list(ends[len(reached) :])
    kinds = {
        "never got there": late.count("done"),
        "diverged": late.count("diverged"),
        "failed": unfinished.count("failed"),
        "not run yet": len(unfinished) - unfinished.count("failed"),
    }
    counts = [f"{counted(number, 'run')} {what}" for what, number in kinds.items() if number]
    return ", ".join(counts)

"""From a study file to its cells: every scenario of the product is made and checked before anything runs."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import Document, apply_overrides, dump, find, load
from fednet_emu.scenario.includes import read_tree
from fednet_emu.scenario.load import checked
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.search import STUDIES, locate, no_such
from fednet_emu.scenario.tree import Node, Place, file_text, problem_text
from fednet_emu.study.grid import Axis, Level, axes_of, option_text, settings_of
from fednet_emu.study.model import Study

NAME_LENGTH, DIGEST_LENGTH = 100, 12


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Attributes:
        label: the levels and the seed, for people.
        columns: the varied keys with their values.
        scenario: what is run, with its seed.
        digest: fingerprint of the resolved scenario; whether it learns counts, too.
        replay: the command that runs the same scenario by itself.
    """

    label: str
    columns: Mapping[str, Any]
    scenario: Scenario
    digest: str
    replay: str

    @property
    def name(self) -> str:
        """The name of its run folder."""
        readable = re.sub(r"[^\w.=+-]+", "-", self.label.replace(", ", "__"))[:NAME_LENGTH]
        return f"{readable}__{self.digest}"


@dataclass(frozen=True)
class LoadedStudy:
    """A study whose cells are all possible."""

    name: str
    path: Path
    study: Study
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    timing_only: bool


def load_study(name: str | Path, overrides: Iterable[str] = (), *, timing_only: bool = False) -> LoadedStudy:
    """Read a study and make its cells.

    Args:
        name: a path, or the name of a file in scenarios/studies/.
        overrides: settings of every cell as `key.path=value`; they win over those of the study, but not over its grid.
        timing_only: whether the cells leave out training.

    Raises:
        ScenarioError: every problem of the study and of its scenarios, each with its line.
    """
    path = find(str(name), STUDIES)
    problems: list[str] = []
    root = read_tree(path, problems)
    if root is None:
        raise ScenarioError(*problems)
    study = validate(Study, Document(root, path, {}))
    base = _base(root.value["base"], path)
    axes = axes_of(root.value.get("grid"))
    own = settings_of(root.value["set"]) if "set" in root.value else ()
    common = (*_repeatable(base), *own, *map(Setting.parse, overrides))
    _check_common(common, axes)
    cells = list(_cells(base, study, common, axes, timing_only))
    return LoadedStudy(path.stem, path, study, tuple(axes), tuple(cells), timing_only)


def _base(node: Node, study: Path) -> Document:
    path = locate(node.value, "scenarios", study)
    if path is None:
        raise ScenarioError(problem_text(node.place, ("base",), no_such(node.value, "scenarios")))
    return load(path)


def _repeatable(base: Document) -> Iterator[Setting]:
    """What makes a cell repeat bit by bit: one thread, and an engine that is not chosen by a stopwatch."""
    training = base.data.get("training")
    given = training if isinstance(training, dict) else {}
    for key, value, vague in (("threads", 1, (None,)), ("engine", "batched", (None, "auto"))):
        if given.get(key) in vague:
            yield Setting(f"training.{key}", Node(value, Place("study")))


def _check_common(common: Iterable[Setting], axes: Iterable[Axis]) -> None:
    varied = {setting.name: axis.name for axis in axes for level in axis.levels for setting in level.settings}
    problems = []
    for setting in common:
        if setting.name == "seed":
            problems.append(problem_text(setting.value.place, (setting.name,), "the study has 'seeds' for that"))
        elif setting.name in varied:
            what = f"is varied by the axis '{varied[setting.name]}' of the grid; set it there"
            problems.append(problem_text(setting.value.place, (setting.name,), what))
    if problems:
        raise ScenarioError(*problems)


def _cells(
    base: Document, study: Study, common: Iterable[Setting], axes: list[Axis], timing_only: bool
) -> Iterator[Cell]:
    """The product of the axes and the seeds, in the order of the file."""
    problems: list[str] = []
    for levels in itertools.product(*(axis.levels for axis in axes)):
        settings = [*common, *(setting for level in levels for setting in level.settings)]
        try:
            for seed in study.all_seeds:
                seeded = [*settings, Setting("seed", Node(seed, Place("seeds")))]
                yield _cell(base, axes, levels, settings, checked(apply_overrides(base, seeded)), timing_only)
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(*dict.fromkeys(problems))


def _cell(
    base: Document,
    axes: list[Axis],
    levels: tuple[Level, ...],
    settings: list[Setting],
    scenario: Scenario,
    timing_only: bool,
) -> Cell:
    label = ", ".join([f"{axis.name}={level.label}" for axis, level in zip(axes, levels, strict=True)])
    whole = f"{label}, seed={scenario.seed}" if label else f"seed={scenario.seed}"
    columns = {name: value for level in levels for name, value in level.columns.items()}
    text = dump(scenario) + ("timing only\n" if timing_only else "")
    digest = blake2b(text.encode(), digest_size=DIGEST_LENGTH // 2).hexdigest()
    command = ["fednet", "run", file_text(base.path or Path())]
    for setting in settings:
        command += ["--set", f"{setting.name}={option_text(setting.value.plain())}"]
    command += ["--seed", str(scenario.seed), *(["--timing-only"] if timing_only else [])]
    return Cell(whole, columns, scenario, digest, shlex.join(command))

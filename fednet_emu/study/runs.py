"""Make the runs of a study: each scenario of the product of axes and seeds is checked before the first one runs."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fednet_emu.emulation.load import refuse_contradictions, refuse_unreachable
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import ScenarioError
from fednet_emu.limits import MAX_RUNS
from fednet_emu.scenario.document import Document, apply_overrides, filled, load, with_includes
from fednet_emu.scenario.includes import read_text
from fednet_emu.scenario.library import STUDIES, another_kind, find, is_study, locate, no_such, run_name
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.problems import LOG, validate
from fednet_emu.scenario.tree import Node, Place, file_text, node_of, problem_text
from fednet_emu.scenario.yaml_text import dump, parse
from fednet_emu.study.grid import Axis, axes_of, option_text, settings_of
from fednet_emu.study.model import Study

NAME_LENGTH, DIGEST_LENGTH = 100, 12


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
        label: the levels and the seed as readable text.
        columns: the varied keys and their values.
        scenario: the scenario to run, including its seed.
        digest: fingerprint of the resolved scenario and of whether it is timing-only.
        base: the file of the scenario that the study varies; None if it comes from no file.
        settings: what the study changes in it, apart from the seed.
        timing_only: whether it leaves out training.
    """

    label: str
    columns: Mapping[str, Any]
    scenario: Scenario
    digest: str
    base: Path | None
    settings: tuple[Setting, ...]
    timing_only: bool

    @property
    def command(self) -> tuple[str, ...]:
        """The command that runs the same scenario alone; empty if the scenario comes from no file."""
        if self.base is None:
            return ()
        command = ["fednet", "run", file_text(self.base)]
        for setting in self.settings:
            command += ["--set", f"{setting.name}={option_text(setting.value.plain())}"]
        return (*command, "--seed", str(self.scenario.seed), *(["--timing-only"] if self.timing_only else []))

    @property
    def name(self) -> str:
        """The name of its run folder."""
        readable = re.sub(r"[^\w.=+-]+", "-", self.label.replace(", ", "__"), flags=re.ASCII)[:NAME_LENGTH]
        return f"{readable}__{self.digest}"


@dataclass(frozen=True)
class LoadedStudy:
    """A study whose runs have all been checked.

    Attributes:
        name: name of the study.
        text: the text of its file; for a study made in Python, the text that such a file would have.
        study: the validated study.
        axes: what is varied, in the order of the file.
        runs: the runs, in the order of the product.
        timing_only: whether the runs leave out training.
    """

    name: str
    text: str
    study: Study
    axes: tuple[Axis, ...]
    runs: tuple[StudyRun, ...]
    timing_only: bool

    @property
    def extent(self) -> str:
        """The number of runs and how it comes about: `6 runs, 2 access x 3 seeds: all possible`."""
        axes = [*((len(axis.levels), axis.name) for axis in self.axes), (len(self.study.all_seeds), "seeds")]
        return f"{len(self.runs)} runs, {' x '.join(f'{size} {name}' for size, name in axes)}: all possible"


@dataclass(frozen=True)
class Sources:
    """A study as it was written, before any of its runs is made.

    Attributes:
        name: name of the study.
        text: the text of its file; for a study made in Python, the text that such a file would have.
        base: the scenario that the study varies.
        root: the content of the file, with the places of all values.
        study: the validated study.
    """

    name: str
    text: str
    base: Document
    root: Node
    study: Study

    def common(self, asked: Iterable[str | Setting], axes: Iterable[Axis]) -> tuple[Setting, ...]:
        """Return the settings that all runs share: those that make them repeat, the study's own, and those asked for.

        Raises:
            ScenarioError: one of them is a seed, or is asked for and varied by an axis.
        """
        own = settings_of(self.root.value["set"]) if "set" in self.root.value else ()
        wanted = tuple(Setting.parse(override) if isinstance(override, str) else override for override in asked)
        _check(own, wanted, axes)
        return (*_repeatable(self.base), *own, *wanted)


def opened(name: str | Path) -> Document | Sources:
    """Read a scenario or a study by path or name, one without the key `base` as a scenario, which takes precedence.

    Raises:
        ScenarioError: there is no such file, or every problem of it; of a scenario also those of its includes.
    """
    path = locate(str(name), "scenarios") or locate(str(name), STUDIES) or find(str(name))
    text = read_text(path)
    root = parse(text, file_text(path))
    return _study_of(path, text, root) if is_study(root) else filled(with_includes(root, path))


def study_file(name: str | Path) -> Sources:
    """Read a study by path, or by the name of a file in scenarios/studies/.

    Raises:
        ScenarioError: every problem of the file itself, or its base is not there.
    """
    path = find(str(name), STUDIES)
    text = read_text(path)
    return _study_of(path, text, parse(text, file_text(path)))


def _study_of(path: Path, text: str, root: Node) -> Sources:
    if not is_study(root) and set(root.value) & (set(Scenario.model_fields) - set(Study.model_fields)):
        what = f"{another_kind(str(path), 'scenario')}; a study has it as base, and a grid"
        raise ScenarioError(f"{file_text(path)}: {what}")
    study = validate(Study, Document(root, path, {}))
    return Sources(run_name(path), text, _base(root.value["base"], path), root, study)


def study_values(name: str, base: Document, settings: Mapping[str, Any]) -> Sources:
    """Like `study_file`, but from Python values.

    Args:
        name: name of the study.
        base: the scenario that the study varies.
        settings: the keys of a study file; its `base` is only used as a name.

    Raises:
        ScenarioError: every problem of the settings.
    """
    root = node_of(settings, Place("study", 0))
    study = validate(Study, Document(root, None, {}))
    return Sources(name, dump(study), base, root, study)


def load_study(
    study: Sources | str | Path, overrides: Iterable[str | Setting] = (), *, timing_only: bool = False
) -> LoadedStudy:
    """Make the runs of a study.

    Args:
        study: the study; or its path, or the name of a file in scenarios/studies/.
        overrides: settings of every run, for example as `key.path=value`; they override those under `set` in the
            study, and must not be varied by its grid.
        timing_only: whether the runs leave out training.

    Raises:
        ScenarioError: every problem of the study and of its scenarios, each with its line.
    """
    sources = study if isinstance(study, Sources) else study_file(study)
    name, text, its = sources.name, sources.text, sources.study
    if its.search is not None:
        raise ScenarioError(f"{name}: is searched, not swept, got 'search' in place of a grid; fednet search {name}")
    axes = axes_of(sources.root.value.get("grid"))
    common = sources.common(overrides, axes)
    size = math.prod(len(axis.levels) for axis in axes) * len(its.all_seeds)
    if size > MAX_RUNS:
        raise ScenarioError(f"grid: a study has at most {MAX_RUNS} runs, got {size}; remove levels or seeds")
    runs = list(_runs(RunMaker(sources.base, common, timing_only), its.all_seeds, axes))
    _refuse_twins(runs)
    return LoadedStudy(name, text, its, tuple(axes), tuple(runs), timing_only)


def _refuse_twins(runs: Iterable[StudyRun]) -> None:
    first: dict[str, StudyRun] = {}
    for run in runs:
        twin = first.setdefault(run.digest, run)
        if twin is not run:
            raise ScenarioError(f"grid: two runs are the same run, got {twin.label} and {run.label}; remove a level")


def _base(node: Node, study: Path) -> Document:
    path = locate(node.value, "scenarios", study)
    if path is None:
        raise ScenarioError(problem_text(node.place, ("base",), no_such(node.value, "scenarios", study)))
    return filled(load(path))


def _repeatable(base: Document) -> Iterator[Setting]:
    """Return the settings that make runs repeat bit by bit: one thread, unless the scenario has a number."""
    training = base.data.get("training")
    if not isinstance(training, dict) or training.get("threads") is None:
        yield Setting("training.threads", Node(1, Place("study")))


def _check(own: Iterable[Setting], asked: Iterable[Setting], axes: Iterable[Axis]) -> None:
    """Check that no setting is `seed`, and that the grid does not vary what the command line sets.

    Raises:
        ScenarioError: every setting that breaks these rules.
    """
    varied = {setting.name: axis.name for axis in axes for level in axis.levels for setting in level.settings}
    problems = [
        problem_text(setting.value.place, (setting.name,), "the study has 'seeds' for that")
        for setting in (*own, *asked)
        if setting.name == "seed"
    ]
    problems += [
        problem_text(setting.value.place, (setting.name,), f"is varied by the axis '{axis}' of the grid")
        for setting in asked
        for axis in [axis for name, axis in varied.items() if f"{setting.name}.".startswith(f"{name}.")][:1]
    ]
    if problems:
        raise ScenarioError(*problems)


class RunMaker:
    """Makes the runs of settings; settings that share devices, channel and network are checked once for reachability.

    Args:
        base: the scenario that the study varies.
        common: settings of all runs.
        timing_only: whether the runs leave out training.
    """

    def __init__(self, base: Document, common: Iterable[Setting], timing_only: bool) -> None:
        self._base, self._common, self._timing_only = base, tuple(common), timing_only
        self._reached: set[str] = set()
        self._told: set[str] = set()

    def runs(
        self, label: str, columns: Mapping[str, Any], settings: Iterable[Setting], seeds: Sequence[int]
    ) -> Iterator[StudyRun]:
        """Yield the run of a setting with each seed.

        Args:
            label: the setting as readable text.
            columns: the varied keys and their values.
            settings: what is varied.
            seeds: the seeds.

        Raises:
            ScenarioError: every problem of the scenario.
        """
        asked, timing_only = (*self._common, *settings), self._timing_only
        document = apply_overrides(self._base, asked)
        for scenario in _seeded(document, seeds, self._tell):
            content = scenario.model_dump(mode="json")
            world = _digest([content[key] for key in _WORLD])
            if world not in self._reached:
                refuse_unreachable(Outlook(scenario), document)
                self._reached.add(world)
            digest = _digest([content, timing_only])
            where = ", ".join(part for part in (label, f"seed={scenario.seed}") if part)
            yield StudyRun(where, columns, scenario, digest, self._base.path, asked, timing_only)

    def _tell(self, line: str) -> None:
        """Say what a changed kind leaves out of the base, once for all runs."""
        if line not in self._told:
            self._told.add(line)
            LOG.warning(line)


def _runs(maker: RunMaker, seeds: Sequence[int], axes: list[Axis]) -> Iterator[StudyRun]:
    """Yield a run for each combination of levels and seed, in the order of the file."""
    problems: list[str] = []
    for levels in itertools.product(*(axis.levels for axis in axes)):
        label = ", ".join(f"{axis.name}={level.label}" for axis, level in zip(axes, levels, strict=True))
        columns = {name: value for level in levels for name, value in level.columns.items()}
        try:
            yield from maker.runs(label, columns, [its for level in levels for its in level.settings], seeds)
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(*dict.fromkeys(problems))


_WORLD = ("seed", "devices", "channel", "network")
"""Sections of a scenario that decide whether anybody can be reached; runs that share them are checked once."""


def _seeded(document: Document, seeds: Sequence[int], tell: Callable[[str], None]) -> Iterator[Scenario]:
    """Yield the scenario of a document with each seed; all of it that no seed changes is validated once.

    Raises:
        ScenarioError: every problem of the document.
    """
    seeded = apply_overrides(document, [Setting("seed", Node(seeds[0], Place("seeds")))])
    first = validate(Scenario, seeded, tell)
    refuse_contradictions(Outlook(first), seeded)
    yield first
    for seed in seeds[1:]:
        yield first.model_copy(update={"seed": seed})


def _digest(content: list[Any]) -> str:
    return blake2b(json.dumps(content).encode(), digest_size=DIGEST_LENGTH // 2).hexdigest()

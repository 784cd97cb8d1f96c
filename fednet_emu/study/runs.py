"""The runs of a study, one for each combination of levels and seeds; all are checked before the first run starts."""

from __future__ import annotations

import itertools
import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fednet_emu.emulation.load import refuse, refuse_contradictions
from fednet_emu.emulation.outlook import Outlook, unreachable
from fednet_emu.emulation.play import tried
from fednet_emu.errors import ScenarioError, ScenarioWarning
from fednet_emu.limits import MAX_RUNS
from fednet_emu.scenario.document import Document, apply_overrides
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.problems import LOG, validate
from fednet_emu.scenario.tree import Node, Place, file_text, problem_text
from fednet_emu.study.file import StudyFile
from fednet_emu.study.grid import Axis, Level, option_text, settings_of

NAME_LENGTH, DIGEST_LENGTH = 100, 12
MOST_NAMED = 5
"""Maximum number of algorithms that a warning names."""
_REACH = ("seed", "devices", "channel", "network")
"""Sections of a scenario that determine whether messages can arrive; runs in which these sections are the same are
checked once."""


_LEARNT = ("seed", "scene_seed", "data", "partition", "groups", "feature_noise", "attack", "model")
"""Sections of a scenario that affect the results of training in other ways than through the network."""
_MAYBE_LEARNT = ("deadline_s", "patience_s", "retries", "record_every")
"""Settings of an algorithm that affect training only if they change which replies arrive, or not at all."""


@dataclass(frozen=True)
class StudyRun:
    """One run of a study, which has one level of each axis and one seed."""

    study: StudyFile
    label: str
    """The levels and the seed of the run, as readable text."""
    columns: Mapping[str, Any]
    """The columns that identify the run in tables: the varied quantities and their values."""
    scenario: Scenario
    digest: str
    """Fingerprint of the resolved scenario and of `timing_only`."""
    settings: tuple[Setting, ...]
    """Changes by the study to the settings of the base scenario, apart from the seed."""
    timing_only: bool

    @property
    def program(self) -> str:
        """Fingerprint of the settings that determine which training a run needs.

        Two runs with the same fingerprint may still need different training, because of deadlines or lost messages. The
        fingerprint is empty for a run that cannot reuse training results of other runs.
        """
        scenario = self.scenario
        if self.timing_only or scenario.algorithm.own_learning:
            return ""
        content = scenario.model_dump(mode="json")
        algorithm = {name: its for name, its in content["algorithm"].items() if name not in _MAYBE_LEARNT}
        server = [content["server"][name] for name in ("samples", "validation_samples")]
        return _digest([*(content[name] for name in _LEARNT), algorithm, server, scenario.devices.count])

    @property
    def group(self) -> str:
        """Name of the group of runs that probably need the same training; empty if the algorithm is asynchronous."""
        return "" if self.scenario.algorithm.asynchronous else self.program

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments of the command that executes only this run; empty if the base scenario is not in a file."""
        if self.study.scenario.path is None:
            return ()
        command = ["fednet", "run", file_text(self.study.scenario.path)]
        for setting in self.settings:
            command += ["--set", f"{setting.name}={option_text(setting.value.plain())}"]
        return (*command, "--seed", str(self.scenario.seed), *(["--timing-only"] if self.timing_only else []))

    @property
    def name(self) -> str:
        """Name of the run folder."""
        readable = re.sub(r"[^\w.=+-]+", "-", self.label.replace(", ", "__"), flags=re.ASCII)[:NAME_LENGTH]
        return f"{readable}__{self.digest}"


def runs_of(
    study: StudyFile | str | Path,
    overrides: Iterable[str | Setting] = (),
    *,
    data_dir: Path | str | None = None,
    timing_only: bool = False,
) -> list[StudyRun]:
    """Return all runs of a study with a grid, in the order of the file, after checks of their scenarios.

    Args:
        study: the study, the path of a study file, or the name of a file in scenarios/studies/.
        overrides: settings that apply to every run, for example as `key.path=value`; they replace settings under `set`
            in the study, and the grid must not vary them.

    Raises:
        ScenarioError: the study or one of its scenarios is invalid; all problems are listed, with their lines.
    """
    study, axes = _swept(study)
    seeds, maker = study.all_seeds, RunMaker(study, overrides, axes, data_dir=data_dir, timing_only=timing_only)
    size = math.prod(len(axis.levels) for axis in axes) * len(seeds)
    if size > MAX_RUNS:
        raise ScenarioError(f"grid: a study has at most {MAX_RUNS} runs, got {size}; remove levels or seeds")
    runs, problems = list[StudyRun](), list[str]()
    for levels in itertools.product(*(axis.levels for axis in axes)):
        try:
            runs += maker.runs(*_cell(axes, levels), seeds)
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(*dict.fromkeys(problems))
    first: dict[str, StudyRun] = {}
    for run in runs:
        twin = first.setdefault(run.digest, run)
        if twin is not run:
            raise ScenarioError(f"grid: two runs are the same run, got {twin.label} and {run.label}; remove a level")
    if what := unlike_rounds(run.scenario for run in runs):
        warnings.warn(f"{study.name}: {what}", ScenarioWarning, stacklevel=2)
    return runs


def unlike_rounds(scenarios: Iterable[Scenario]) -> str:
    """Return a warning if scenarios that end after a number of rounds have rounds of different sizes; otherwise empty.

    The size of a round is its number of updates. In some asynchronous algorithms, a round has a single update; if the
    server invites a cohort, a round has one update per device in the cohort.
    """
    ended = [its for its in scenarios if its.stop.rounds is not None and its.stop.simulated_s is None]
    sizes: dict[str, set[int]] = {}
    for its in ended:
        sizes.setdefault(its.algorithm.kind, set()).add(its.algorithm.answers(its.devices.count))
    if not any(its.algorithm.asynchronous for its in ended) or len(set[int]().union(*sizes.values())) < 2:
        return ""
    spans = {kind: sorted({min(own), max(own)}) for kind, own in sorted(sizes.items())}
    each = [f"{' to '.join(f'{size:,}' for size in span)} with {kind}" for kind, span in spans.items()]
    what = f"a round takes different numbers of updates, {', '.join(each[:MOST_NAMED])}"
    return f"stop.rounds: {what}, got no other limit for them; give stop.simulated_s, the same for all"


def try_levels(runs: Iterable[StudyRun], data_dir: Path | str | None = None) -> None:
    """For each level of each axis, build the first run that has this level, and simulate one round without training.

    Raises:
        ScenarioError: a run is invalid; all problems are listed, each after the label of its run.
        Deadlock: a run waits for an impossible event.
    """
    seen, problems = set[tuple[str, str]](), list[str]()
    for run in runs:
        new = {("", ""), *((name, repr(value)) for name, value in run.columns.items())} - seen
        seen |= new
        try:
            if new:
                tried(Outlook(run.scenario, data_dir))
        except ScenarioError as error:
            problems += [f"{run.label}: {problem}" for problem in error.problems]
    if problems:
        raise ScenarioError(*problems)


def run_of(
    study: StudyFile | str | Path,
    levels: Mapping[str, str],
    overrides: Iterable[str | Setting] = (),
    *,
    seed: int | None = None,
    data_dir: Path | str | None = None,
    timing_only: bool = False,
) -> StudyRun:
    """Return one run of a study with a grid.

    Args:
        study: the study, the path of a study file, or the name of a file in scenarios/studies/.
        levels: the label of the chosen level, by the name of the axis; upper and lower case are equivalent. Axes with a
            single level may be left out.
        overrides: settings of the run, which take precedence over settings of the study and of the levels.
        seed: the seed of the run, not necessarily a seed of the study; None for the first seed of the study.

    Raises:
        ScenarioError: an axis or level does not exist, a level is missing, or the scenario has problems.
    """
    study, axes = _swept(study)
    names = [axis.name for axis in axes]
    problems = [
        f"where: {study.name} has no axis '{name}'; it has {', '.join(names)}" for name in levels if name not in names
    ]
    chosen = list[Level]()
    for axis in axes:
        given, labels = levels.get(axis.name), ", ".join(level.label for level in axis.levels)
        meant = [its for its in axis.levels if given is None or its.label.casefold() == str(given).casefold()]
        meant = meant or [its for its in axis.levels if _same_number(its.label, str(given))]
        if len(meant) != 1:
            got = "none" if given is None else repr(given)
            problems.append(f"where: expected one level of {axis.name}, got {got}; give one of {labels}")
        chosen += meant[:1]
    if problems:
        raise ScenarioError(*problems)
    asked = _parsed(overrides)
    _check((), asked, ())
    maker = RunMaker(study, (), axes, data_dir=data_dir, timing_only=timing_only)
    label, columns, settings = _cell(axes, chosen)
    return next(maker.runs(label, columns, [*settings, *asked], [study.all_seeds[0] if seed is None else seed]))


def _swept(study: StudyFile | str | Path) -> tuple[StudyFile, list[Axis]]:
    study = study if isinstance(study, StudyFile) else StudyFile.read(study)
    if study.search is not None:
        name = study.name
        raise ScenarioError(f"{name}: is searched, not swept, got 'search' in place of a grid; fednet search {name}")
    return study, study.axes


def _same_number(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def _cell(axes: Sequence[Axis], levels: Sequence[Level]) -> tuple[str, dict[str, Any], list[Setting]]:
    label = ", ".join(f"{axis.name}={level.label}" for axis, level in zip(axes, levels, strict=True))
    columns = {name: value for level in levels for name, value in level.columns.items()}
    return label, columns, [its for level in levels for its in level.settings]


class RunMaker:
    """Makes runs from settings, and checks that messages can arrive (once for each combination of devices and network).

    All runs have the settings under `set` in the study, the overrides, and a fixed number of threads, so that results
    are repeatable.

    Args:
        overrides: settings of all runs, for example as `key.path=value`.

    Attributes:
        example: the scenario of the first run; None before the first run is made.

    Raises:
        ScenarioError: the study or an override sets `seed`, or overrides a setting that the axes vary.
    """

    def __init__(
        self,
        study: StudyFile,
        overrides: Iterable[str | Setting] = (),
        axes: Iterable[Axis] = (),
        *,
        data_dir: Path | str | None = None,
        timing_only: bool = False,
    ) -> None:
        self.study, self.data_dir, self.timing_only = study, data_dir, timing_only
        self.example: Scenario | None = None
        own = settings_of(study.root.value["set"]) if "set" in study.root.value else ()
        asked = _parsed(overrides)
        _check(own, asked, axes)
        training = study.scenario.data.get("training")
        threads_given = isinstance(training, dict) and training.get("threads") is not None
        repeatable = () if threads_given else (Setting("training.threads", Node(1, Place("study"))),)  # bit-identical
        self._common = (*repeatable, *own, *asked)
        self._reached: set[str] = set()
        self._warned: set[str] = set()

    def runs(
        self, label: str, columns: Mapping[str, Any], settings: Iterable[Setting], seeds: Sequence[int]
    ) -> Iterator[StudyRun]:
        """Yield one run with the given settings for each seed; `columns` identifies the runs in tables.

        Raises:
            ScenarioError: the scenario is invalid; all problems are listed.
        """
        changed = (*self._common, *settings)
        document = apply_overrides(self.study.scenario, changed)
        for scenario in self._seeded(document, seeds):
            content = scenario.model_dump(mode="json")
            reach = _digest([content[key] for key in _REACH])
            if reach not in self._reached:
                refuse(unreachable(Outlook(scenario, self.data_dir)), document)
                self._reached.add(reach)
            content["training"].pop("reuse")  # this setting does not affect results
            digest = _digest([content, self.timing_only])
            where = ", ".join(part for part in (label, f"seed={scenario.seed}") if part)
            self.example = self.example or scenario
            yield StudyRun(self.study, where, columns, scenario, digest, changed, self.timing_only)

    def _seeded(self, document: Document, seeds: Sequence[int]) -> Iterator[Scenario]:
        """Yield the scenario in a document once for each seed; only the scenario with the first seed is validated."""
        seeded = apply_overrides(document, [Setting("seed", Node(seeds[0], Place("seeds")))])
        first = validate(Scenario, seeded, self._warn)
        refuse_contradictions(Outlook(first, self.data_dir), seeded)
        refuse(self.study.unfit_aims(first), Document(self.study.root, None))
        yield first
        for seed in seeds[1:]:
            yield first.model_copy(update={"seed": seed})

    def _warn(self, line: str) -> None:
        """Log a warning about settings that do not fit the new kind of a component, once for all runs."""
        if line not in self._warned:
            self._warned.add(line)
            LOG.warning(line)


def _parsed(overrides: Iterable[str | Setting]) -> tuple[Setting, ...]:
    return tuple(Setting.parse(override) if isinstance(override, str) else override for override in overrides)


def _check(own: Iterable[Setting], asked: Iterable[Setting], axes: Iterable[Axis]) -> None:
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


def _digest(content: list[Any]) -> str:
    return blake2b(json.dumps(content).encode(), digest_size=DIGEST_LENGTH // 2).hexdigest()

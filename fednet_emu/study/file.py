"""Study files: the class `StudyFile`, whose fields are the keys of a study file, and functions that read studies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from fednet_emu.component.component import Component, exactly_one
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.stop import NO_ACCURACY
from fednet_emu.limits import MAX_RUNS
from fednet_emu.scenario.document import Document, filled, load, with_includes
from fednet_emu.scenario.includes import read_text
from fednet_emu.scenario.library import STUDIES, another_kind, find, is_study, locate, no_such, run_name
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import Node, Place, file_text, node_of, problem_text
from fednet_emu.scenario.yaml_text import dump, parse
from fednet_emu.study.grid import Axis, axes_of


class Target(Component):
    """Target of a study: an accuracy or a loss. Costs are reported for the first evaluation that reaches the target."""

    _one_measure = exactly_one("accuracy", "loss")

    accuracy: float | None = Field(None, gt=0, le=1)
    """Minimum pooled test accuracy that reaches the target, from 0 to 1; null if the target is a loss."""
    loss: float | None = Field(None, gt=0)
    """Maximum test loss that reaches the target; null if the target is an accuracy."""


class Limits(Component):
    """Limits on the host resources of each run; a run that exceeds its time limit or its memory limit fails."""

    time_s: float | None = Field(None, gt=0)
    """Maximum host time of one attempt to execute a run, in seconds; null for no limit. The next attempt continues from
    the last checkpoint."""
    memory_mb: float | None = Field(None, gt=0)
    """Maximum resident memory, in 10^6 bytes; null for no limit. A Ray cluster reserves this memory for each run."""
    gpus: float = Field(0, ge=0)
    """Number of GPUs that a Ray cluster reserves for each run."""


Cost = Literal["time", "bits", "energy", "device-energy", "rounds"]
"""The costs that can be minimised and limited: simulated time in seconds, bits sent on all links, total energy of
devices and base stations in joules, this energy divided by the number of devices, and number of rounds."""


class Search(Component):
    """Search for the best settings, which replaces the grid of a study."""

    space: dict[str, Any] = Field(min_length=1)
    """The varied settings. Each entry is an axis as in `grid`, or a range of numbers, such as `{low: 0.01, high: 1,
    log: true}`. The values of a range are integers if `low`, `high` and `step` (if set) are integers. With the key
    `when: {ENTRY: LEVEL}` next to `low` and `high`, or next to `choices`, an entry is varied only where the earlier
    entry ENTRY has the given level; a list allows several levels."""
    minimise: Cost | tuple[Cost, ...] = "time"
    """Cost that the search minimises, counted until the target is reached. With a list of costs, the search finds a
    Pareto front. Without a target, the cost of the whole run is minimised."""
    maximise: Literal["accuracy"] | None = None
    """With `accuracy`, the search maximises the test accuracy at the last evaluation within the limits; with null, it
    minimises costs."""
    within: dict[Cost, Annotated[float, Field(gt=0)]] = Field({})
    """Limits on the costs of a run, for example `time: 60` for at most 60 simulated seconds."""
    trials: int = Field(40, gt=0, le=MAX_RUNS)
    """Number of settings to try."""
    batch: int = Field(4, gt=0)
    """Number of settings per batch. The settings of a batch are proposed together, before the outcome of any of them is
    known. The results depend on this number, but not on the number of workers."""
    trial_seeds: int = Field(2, gt=0)
    """Number of seeds with which each setting is tried; only finalists are run with the remaining seeds of the
    study."""
    finalists: int = Field(8, gt=0)
    """Number of finalists, which are the settings of lowest cost. Each finalist is run with the remaining seeds, and is
    dropped as soon as it cannot be the best."""
    cap: float | None = Field(2.0, ge=1)
    """Maximum cost of a trial, as a multiple of the cost of the best setting so far with the same seed. A trial ends
    when its cost reaches this maximum, which is called its cap. Null for no cap. Applies only if a single cost is
    minimised."""
    behind: float | None = Field(None, gt=0, le=0.5)
    """Quantile of the accuracies of earlier settings that a trial must reach to continue. The accuracies are compared
    at equal costs: at 1/4, 1/2 and 3/4 of the cap. With null, trials are not ended for this reason. Applies only if the
    target is an accuracy."""
    min_rounds: int = Field(1, gt=0)
    """Minimum number of rounds that any setting needs to reach the target. The cost of these rounds is computed without
    training; if it exceeds a limit, the setting is not tried."""
    seed: int = Field(0, ge=0)
    """Seed of the random numbers from which settings are proposed."""

    @model_validator(mode="after")
    def _one_aim(self) -> Self:
        if len(set(self.costs)) < max(len(self.costs), 1):
            raise ValueError(f"minimise: expected different costs, got {list(self.costs)}; give each once")
        if self.maximise and "minimise" in self.model_fields_set:
            raise ValueError("maximise: stands alone, got minimise as well; leave out one of them")
        if self.behind is not None and (self.cap is None or self.maximise or len(self.costs) > 1):
            raise ValueError("behind: is taken at parts of the cap, got none; minimise one cost, with a cap")
        if self.maximise and not self.within:
            raise ValueError("maximise: the limit is missing; give one, such as `within: {time: 60}`")
        return self

    @property
    def costs(self) -> tuple[str, ...]:
        """Names of the minimised costs."""
        return (self.minimise,) if isinstance(self.minimise, str) else self.minimise


class StudyFile(Component):
    """A study: a base scenario, the varied settings, and the seeds with which each combination of settings is run."""

    title: str = ""
    """Readable title, which does not affect the runs."""
    base: str
    """The scenario that the study varies: a path relative to the study file, or a name in scenarios/."""
    set: dict[str, Any] = Field({})
    """Settings that apply to every run, as `key.path: value`; settings of the grid take precedence."""
    grid: dict[str, Any] = Field({})
    """The axes of the grid. Every combination of their levels is run. An axis is a list of values for one key, or a
    mapping from names to variants, or a mapping from several keys to lists of the same length. Entries at the same
    index of these lists are used together."""
    search: Search | None = None
    """Search for the best settings by `fednet search`, which replaces `grid`; null for a study with a grid."""
    seeds: int | tuple[int, ...] = 5
    """Number of seeds (5 means the seeds 0 to 4), or a list of seeds; every combination of levels is run once with each
    seed."""
    target: Target | None = None
    limits: Limits = Limits()
    minutes: float | None = Field(None, gt=0)
    """Host time of the whole study on two cores, in minutes; null if unknown. `make reproduce` runs only studies with a
    known host time."""

    figures: tuple[str, ...] | None = None
    """Names of the figures that `make reproduce` stores, for example `bits-to-target`; null for all figures except
    those plotted against the number of rounds."""

    _name: str = PrivateAttr()
    _text: str = PrivateAttr()
    _scenario: Document = PrivateAttr()
    _root: Node = PrivateAttr()

    @model_validator(mode="after")
    def _seeds_are_few_and_distinct(self) -> Self:
        if isinstance(self.seeds, int) and self.seeds > MAX_RUNS:
            raise ValueError(f"seeds: a study has at most {MAX_RUNS} runs, got {self.seeds} seeds; give fewer")
        seeds = self.all_seeds
        if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds: expected a number above 0 or different numbers from 0 on, got {self.seeds}")
        return self

    @model_validator(mode="after")
    def _searched_or_swept(self) -> Self:
        if self.search is None:
            return self
        if self.grid:
            raise ValueError(
                f"search: takes the place of grid, got both; move {', '.join(self.grid)} into search.space"
            )
        if self.search.behind is not None and (self.target is None or self.target.accuracy is None):
            raise ValueError(
                f"search.behind: needs a target accuracy, got {self.search.behind:g} without; leave it out"
            )
        if self.search.maximise and self.target:
            raise ValueError("target: is not for search.maximise, got both; leave out one of them")
        return self

    @classmethod
    def read(cls, name: str | Path) -> Self:
        """Read a study by path, or by the name of a file in scenarios/studies/.

        Raises:
            ScenarioError: the study file is invalid (all problems are listed), or the base scenario does not exist.
        """
        path = find(str(name), STUDIES)
        text = read_text(path)
        return cls._parsed(path, text, parse(text, file_text(path)))

    @classmethod
    def _parsed(cls, path: Path, text: str, root: Node) -> Self:
        if not is_study(root) and set(root.value) & (set(Scenario.model_fields) - set(cls.model_fields)):
            what = f"{another_kind(str(path), 'scenario')}; a study has it as base, and a grid"
            raise ScenarioError(f"{file_text(path)}: {what}")
        study = validate(cls, Document(root, path))
        base = locate(study.base, "scenarios", path)
        if base is None:
            what = no_such(study.base, "scenarios", path)
            raise ScenarioError(problem_text(root.value["base"].place, ("base",), what))
        return study._from(run_name(path), text, filled(load(base)), root)

    @classmethod
    def of(cls, name: str, scenario: Document, keys: Mapping[str, Any]) -> Self:
        """Create a study from the keys of a study file, with `scenario` as its base scenario.

        Raises:
            ScenarioError: the keys are invalid; all problems are listed.
        """
        root = node_of(keys, Place("study", 0))
        study = validate(cls, Document(root, None))
        return study._from(name, dump(study), scenario, root)

    def _from(self, name: str, text: str, scenario: Document, root: Node) -> Self:
        self._name, self._text, self._scenario, self._root = name, text, scenario, root
        return self

    @property
    def name(self) -> str:
        """Name of the study."""
        return self._name

    @property
    def text(self) -> str:
        """Text of the study file; for a study that is created in Python, the text of an equivalent file."""
        return self._text

    @property
    def scenario(self) -> Document:
        """The base scenario of the study, before the study changes any settings."""
        return self._scenario

    @property
    def root(self) -> Node:
        """Content of the study file as a tree of values, each with its file and line."""
        return self._root

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of the study; if the study states only a number of seeds n, these are 0 to n - 1."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def axes(self) -> list[Axis]:
        """The axes of the grid, in the order of the file.

        Raises:
            ScenarioError: an axis is malformed; all such axes are listed, with their lines.
        """
        return axes_of(self.root.value.get("grid"))

    def unfit_aims(self, scenario: Scenario) -> Iterator[Problem]:
        """Yield the key path and an error text for each setting of the study that needs an accuracy, if runs have none.

        Runs of `scenario` have no accuracy if the data are a regression.
        """
        target, search = self.target, self.search
        if scenario.data is None or not scenario.data.regression:
            return
        if target is not None and target.accuracy is not None:
            yield ("target", "accuracy"), f"{NO_ACCURACY}, got {target.accuracy:g}; give target.loss"
        if search is not None and search.maximise:
            yield ("search", "maximise"), f"{NO_ACCURACY}, got {search.maximise}; give a target.loss and minimise"

    @property
    def extent(self) -> str:
        """Size of a study without errors, as text.

        An example for a grid is `6 runs, 2 access x 3 seeds: all possible`, where `all possible` means that the
        scenario of every run is valid. For a search, the text states the number of trials and the varied settings.
        """
        if self.search is not None:
            return f"{self.search.trials} trials of {', '.join(self.search.space)}; the ends of all are possible"
        axes = [*((len(axis.levels), axis.name) for axis in self.axes), (len(self.all_seeds), "seeds")]
        factors = " x ".join(f"{size} {name}" for size, name in axes)
        return f"{math.prod(size for size, _ in axes)} runs, {factors}: all possible"


def opened(name: str | Path) -> Document | StudyFile:
    """Read a scenario or a study by path or name; if both have the same name, the scenario is read.

    Raises:
        ScenarioError: the file does not exist, or the file or an included file is invalid; all problems are listed.
    """
    path = locate(str(name), "scenarios") or locate(str(name), STUDIES) or find(str(name))
    text = read_text(path)
    root = parse(text, file_text(path))
    return StudyFile._parsed(path, text, root) if is_study(root) else filled(with_includes(root, path))

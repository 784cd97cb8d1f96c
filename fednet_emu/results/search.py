"""Searching the settings of a study, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
from typing_extensions import override

from fednet_emu.analysis.searched import SearchRecords
from fednet_emu.emulation.given import ScenarioLike, Settings, changes
from fednet_emu.results.study import Home, Study
from fednet_emu.results.sweeping import folder_of, study_of, tracker_names
from fednet_emu.screen.progress import sweep_shown
from fednet_emu.study.runners import Runner, runner_of
from fednet_emu.study.runs import RunMaker
from fednet_emu.study.search.search import load_search
from fednet_emu.study.search.search import search as run_search
from fednet_emu.study.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Search(SearchRecords):
    """The results of a search: all trials, the settings that may be the best, and what matters.

    Attributes:
        home: where it is.
        failures: how many runs failed in this search.
    """

    home: Home
    failures: int = 0

    @classmethod
    @override
    def opened(cls, folder: Path, *, temporary: bool = False, failures: int = 0) -> Self:
        home = Home(folder, temporary=temporary)
        return cls(**vars(SearchRecords.opened(folder)), home=home, failures=failures)

    @property
    def folder(self) -> Path | None:
        """The folder of the search; None for a temporary one."""
        return None if self.home.temporary else self.home.path

    @property
    def best(self) -> list[dict[str, Any]]:
        """The settings that remained in the race, the best first, by the names of what was varied."""
        rows = self.trials.set_index("trial")
        values = [{name: rows[name][number] for name in self.parameters} for number in self.finalists]
        return [{name: value for name, value in each.items() if not pd.isna(value)} for each in values]

    @property
    def study(self) -> Study:
        """The finalists that remained, as a study with the axis `setting`."""
        return Study.at(self.home)

    def plot(self) -> Figure:
        """Draw what every trial cost, in the order in which they were tried, and the finalists."""
        from fednet_emu.draw.figures.study_search import search_figure
        from fednet_emu.draw.style import paper_style

        with paper_style():
            return search_figure(self)


def search(
    study: ScenarioLike,
    space: Mapping[str, Any] | None = None,
    *,
    minimise: str | Iterable[str] | None = None,
    maximise: str | None = None,
    within: Mapping[str, float] | None = None,
    target: Mapping[str, float] | None = None,
    seeds: int | Iterable[int] | None = None,
    trials: int | None = None,
    settings: Settings | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    timing_only: bool = False,
    ray: bool | str = False,
    track: str | Iterable[str] = (),
    progress: bool | None = None,
) -> Search:
    """Search the settings with which a scenario reaches a target at the least cost.

    Settings are proposed by Optuna's TPE and tried with two seeds; those that the clock alone shows to break a limit
    are dropped without training, and a run ends when it has cost twice what the best setting needed. The best ones race
    over the other seeds, until it is clear who is not the best. The same search gives the same result with any number
    of workers, and one that was interrupted goes on where it was.

    Args:
        study: a study file with the key `search`, by path or name; or a scenario, as `run` takes it, with a space.
        space: what is varied, as under `search.space` of a study file.
        minimise: the cost of reaching the target, or several: `time`, `bits`, `energy`, `device-energy` or `rounds`.
        maximise: `accuracy`, for the highest one within the limits instead.
        within: upper limits of what a run may spend, for example `{"energy": 4}` in joules.
        target: what a run has to reach, `{"accuracy": 0.9}` or `{"loss": 0.1}`.
        seeds: so many from 0 on, or a list of them; 5 for a scenario.
        trials: how many settings are tried.
        settings: of every run.
        workers: runs at a time, each in a process of its own; one per core by default.
        out: the folder of the search; None leaves no folder behind.
        data_dir: where data sets are.
        timing_only: whether to leave out training.
        ray: whether to use a Ray cluster that is started here, or the address of one.
        track: as for `sweep`.
        progress: whether to show how far the search is; None where somebody looks, in a terminal or a notebook.

    Raises:
        ScenarioError: every problem of the study, of its space, and of the scenarios at its ends.
        FednetError: Optuna is not installed, or the arguments contradict each other.
        DataError: the folder holds something else, or another search writes to it.
    """
    asked = {"space": space, "minimise": minimise, "maximise": maximise, "within": within}
    its = {key: list(value) if isinstance(value, tuple | set) else value for key, value in asked.items() if value}
    meant = study_of("search", study, space, {"search": its or None, "seeds": seeds, "target": target})
    maker = load_search(meant, changes(settings), trials=trials, timing_only=timing_only)
    runner = runner_of([maker.example], workers, ray)
    return searched(maker, out, runner, data_dir=data_dir, track=track, progress=progress)[0]


def searched(
    maker: RunMaker,
    out: str | Path | None,
    runner: Runner,
    *,
    data_dir: str | Path | None = None,
    track: str | Iterable[str] = (),
    progress: bool | None = None,
) -> tuple[Search, Sweep]:
    """Search, and open what came out."""
    names, folder = tracker_names(track), folder_of(out)
    with sweep_shown(progress) as show:
        ended = run_search(maker, folder, runner, data_dir=data_dir, track=names, on_event=show)
    return Search.opened(folder, temporary=out is None, failures=len(ended.failures)), ended

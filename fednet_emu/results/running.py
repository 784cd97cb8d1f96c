"""Functions that run a scenario, sweep a study, and search for settings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from fednet_emu.emulation.given import Network, ScenarioLike, Settings, changes, named, scenario_of
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.load import warn
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError
from fednet_emu.files.data_folder import folder_to_write
from fednet_emu.results.run import Run
from fednet_emu.results.study import Failure, Search, Study
from fednet_emu.screen.progress import run_shown, sweep_shown
from fednet_emu.study.file import StudyFile, opened
from fednet_emu.study.runners import Runner, runner_of
from fednet_emu.study.runs import RunMaker, StudyRun, runs_of
from fednet_emu.study.search.search import load_search
from fednet_emu.study.search.search import search as run_search
from fednet_emu.study.sweep import Sweep
from fednet_emu.study.sweep import sweep as run_sweep
from fednet_emu.tracking.tracker import Tracker, trackers_of

if TYPE_CHECKING:
    from fednet_emu.algorithms.base import Algorithm
    from fednet_emu.learning.data.datasets.base import Dataset, Samples


def run(
    scenario: ScenarioLike,
    *,
    seed: int | None = None,
    settings: Settings | None = None,
    out: str | Path | None = None,
    algorithm: Algorithm | str | None = None,
    model: Network | str | None = None,
    data: Dataset | Samples | str | None = None,
    data_dir: str | Path | None = None,
    timing_only: bool = False,
    force: bool = False,
    track: str | Tracker | Iterable[str | Tracker] = (),
    progress: bool | None = None,
) -> Run:
    """Run a scenario and return its results.

    Args:
        scenario: a name of the library, a path, a mapping with the keys of a scenario file, or a `Scenario`.
        seed: a seed that replaces the seed of the scenario.
        settings: changes to the scenario, for example `{"algorithm.lr": 0.05, "network.uplink.access": "ofdma"}`.
        out: the run folder, which gets the same content as from `fednet run`. An unfinished run of the same scenario in
            the folder is continued. None keeps all results in memory.
        algorithm: an algorithm object that replaces the algorithm of the scenario, or the name of another kind, such as
            `"fedprox"`. If a name is given, the settings that exist for both kinds are kept.
        model: a model that replaces the model of the scenario. It can be a component, the name of another kind, a
            `torch.nn.Module` with the initial parameters, or a function or class that creates a model. In the last
            case, the seed determines the initial parameters. If the function has parameters `input_shape` or `outputs`,
            these are passed.
        data: samples that replace the data of the scenario, or another kind of data set.
        data_dir: the folder with data sets; None for the value of the environment variable FEDNET_DATA.
        timing_only: True to omit training; time, bits and energy stay the same.
        force: True to replace an existing run in the folder, once the new run has ended.
        track: `tensorboard`, `mlflow`, `wandb`, or objects with the three methods of a tracker.
        progress: True to show progress, False to hide it; None shows progress only in a terminal or a notebook.

    Warns:
        ScenarioWarning: a setting of the scenario is suspicious, for example because devices are out of range.

    Raises:
        ScenarioError: the scenario is invalid. The error lists every problem with its location.
        FednetError: a tracker does not exist, or the library of a tracker is not installed.
        DataError: data are missing, or the folder cannot be used.
        Deadlock: the algorithm waits for an event that can never happen.
    """
    with none_left_behind():  # reading a scenario also loads libraries
        trackers = trackers_of(track)
        given = {"seed": seed, "algorithm": algorithm, "model": model, "data": data}
        name, outlook = scenario_of(scenario, settings, data_dir=data_dir, **given)
    warn(outlook)
    folder = None if out is None else folder_to_write(out, "out")
    return ran(outlook, name, folder, timing_only=timing_only, force=force, track=trackers, progress=progress)


def ran(
    outlook: Outlook,
    name: str,
    folder: Path | None,
    *,
    timing_only: bool = False,
    force: bool = False,
    track: Sequence[Tracker] = (),
    progress: bool | None = None,
) -> Run:
    """Run a validated scenario, show its progress, and return its results. See `run` for the other arguments."""
    scenario = outlook.scenario
    with run_shown(scenario.stop, progress) as on_round:
        ended = play(
            scenario,
            name,
            folder,
            data_dir=outlook.data_dir,
            timing_only=timing_only,
            force=force,
            keep_model=True,
            on_round=on_round,
            track=track,
        )
    return Run.ended(ended, scenario, folder)


def sweep(
    study: ScenarioLike,
    *,
    grid: Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] | None = None,
    settings: Settings | None = None,
    target: Mapping[str, float] | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    algorithm: Algorithm | str | None = None,
    model: Network | str | None = None,
    data: Dataset | Samples | str | None = None,
    data_dir: str | Path | None = None,
    timing_only: bool = False,
    ray: bool | str = False,
    track: str | Iterable[str] = (),
    progress: bool | None = None,
) -> Study:
    """Run every setting of a grid with several seeds.

    Runs with the same seed have the same channels, data and stragglers.

    Args:
        study: a scenario, as for `run`, whose settings are varied by the grid; or the name or path of a study file.
        grid: the axes of the grid. All combinations of their levels are run. An axis is a list of values for one key, a
            mapping with named variants, or several lists whose values vary together.
        seeds: the number of seeds, counted from 0, or a list of seeds; by default 5 for a scenario.
        settings: settings of every run; the grid overrides these settings.
        target: the target of the runs, `{"accuracy": 0.9}` or `{"loss": 0.1}`.
        workers: number of simultaneous runs, each in its own process; by default one per core.
        out: the folder of the study, which gets the same content as from `fednet sweep`. Finished runs in the folder
            are not repeated. If it is None, the results are in a temporary folder.
        algorithm: as for `run`. An object whose class is defined in a notebook or script cannot be sent to other
            processes. The runs are then executed in this process one after another.
        model: as for `run`.
        data: as for `run`.
        data_dir: the folder with data sets; None for the value of the environment variable FEDNET_DATA.
        timing_only: True to omit training.
        ray: True to start a Ray cluster here and run the study on it, or the address of a Ray cluster.
        track: `tensorboard`, `mlflow`, `wandb`, or import paths of trackers. Each run of the study is a run of the
            tracker, in a group with the name of the study.
        progress: True to show progress, False to hide it; None shows progress only in a terminal or a notebook.

    Raises:
        ScenarioError: the study or one of its scenarios is invalid. The error lists every problem.
        DataError: the folder has other content, or another sweep or search writes to the folder.
    """
    meant = study_of("sweep", study, grid, {"grid": grid, "seeds": seeds, "target": target})
    changed = changes(settings, algorithm=algorithm, model=model, data=data)
    runs = runs_of(meant, changed, data_dir=data_dir, timing_only=timing_only)
    runner = runner_of([run.scenario for run in runs], workers, ray)
    found = swept(runs, out, runner, data_dir=data_dir, track=track, progress=progress)
    if found.failures:
        first = found.failures[0]
        text = f"{len(found.failures)} of {len(runs)} runs failed, first {first.label}: {first.reason}"
        warnings.warn(text, stacklevel=2)
    return found


def study_of(command: str, study: ScenarioLike, varied: Mapping[str, Any] | None, keys: Mapping[str, Any]) -> StudyFile:
    """Return the study that a study file describes, or a new study that varies a scenario with the given `keys`.

    Raises:
        ScenarioError: the study or its base scenario is invalid. The error lists every problem.
        FednetError: keys are given for a study file, or a search has no search space.
    """
    found = opened(study) if isinstance(study, str | Path) and varied is None else study
    given = {key: value for key, value in keys.items() if value is not None}
    if isinstance(found, StudyFile):
        if given:
            what = "grid, seeds and target are in the study's file"
            raise FednetError(f"{command}: {what}, got more for '{study}'; change that")
        return found
    if command == "search" and not varied:
        raise FednetError(f"search: a scenario needs a space, got none for '{study}'; give space={{key: levels}}")
    name, scenario = named(found)
    return StudyFile.of(name, scenario, {"base": name, "seeds": 5, **given})


def swept(
    runs: Sequence[StudyRun],
    out: str | Path | None,
    runner: Runner,
    *,
    data_dir: str | Path | None = None,
    track: str | Iterable[str] = (),
    progress: bool | None = None,
) -> Study:
    """Execute the unfinished runs of a study in the folder `out`, and return the results of the study."""
    names, folder = _prepared(track, out)
    with sweep_shown(progress) as show:
        ended = run_sweep(runs, folder, runner, data_dir=data_dir, track=names, on_event=show)
    failures = [
        Failure(ended.runs[place].label, reason, ended.replay(place))
        for place, reason in sorted(ended.failures.items())
    ]
    return Study.opened(folder, temporary=out is None, failures=failures)


def _prepared(track: str | Iterable[str], out: str | Path | None) -> tuple[tuple[str, ...], Path]:
    names = (track,) if isinstance(track, str) else tuple(track)
    if not all(isinstance(name, str) for name in names):
        raise FednetError(f"track: a sweep takes names, got {names!r}; give an import path, package.module:Class")
    trackers_of(names)
    return names, folder_to_write(out, "out") if out is not None else Path(mkdtemp(prefix="fednet-"))


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
    """Search for the settings with which a scenario reaches a target at the lowest cost.

    Settings are proposed by Optuna's TPE (tree-structured Parzen estimator) and tried with two seeds. Settings are
    dropped if a run without training shows that they exceed a limit. A run is ended at twice the cost of the best
    setting so far. The best settings are then run with further seeds, one seed at a time, and settings that prove not
    to be the best are dropped. The result does not depend on the number of workers. An interrupted search is continued
    if it is started again with the same folder.

    Args:
        study: a study file with the key `search`, by path or name; or a scenario, as for `run`, if `space` is given.
        space: the varied settings and their ranges, in the form of the key `search.space` of a study file.
        minimise: one or several of the costs to reach the target: `time`, `bits`, `energy`, `device-energy`, `rounds`.
        maximise: `accuracy` to search for the highest accuracy within the limits instead of the lowest cost.
        within: upper limits of the costs of a run, for example `{"energy": 4}` in joules.
        target: the target of the runs, `{"accuracy": 0.9}` or `{"loss": 0.1}`.
        seeds: the number of seeds, counted from 0, or a list of seeds; by default 5 for a scenario.
        trials: number of settings to try.
        settings: settings of every run.
        workers: number of simultaneous runs, each in its own process; by default one per core.
        out: the folder of the search. If it is None, the results are in a temporary folder.
        data_dir: the folder with data sets; None for the value of the environment variable FEDNET_DATA.
        timing_only: True to omit training.
        ray: True to start a Ray cluster here and run the search on it, or the address of a Ray cluster.
        track: as for `sweep`.
        progress: True to show progress, False to hide it; None shows progress only in a terminal or a notebook.

    Raises:
        ScenarioError: the study, its search space or a scenario at the limits of the space is invalid. The error lists
            every problem.
        FednetError: Optuna is not installed, or the arguments contradict each other.
        DataError: the folder has other content, or another search writes to the folder.
    """
    asked = {"space": space, "minimise": minimise, "maximise": maximise, "within": within}
    its = {key: list(value) if isinstance(value, tuple | set) else value for key, value in asked.items() if value}
    meant = study_of("search", study, space, {"search": its or None, "seeds": seeds, "target": target})
    maker = load_search(meant, changes(settings), trials=trials, data_dir=data_dir, timing_only=timing_only)
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
    """Execute a search, and return its results together with the sweep that was executed."""
    names, folder = _prepared(track, out)
    with sweep_shown(progress) as show:
        ended = run_search(maker, folder, runner, data_dir=data_dir, track=names, on_event=show)
    return Search.opened(folder, temporary=out is None, failures=len(ended.failures)), ended

"""Running a study: a grid of settings, each with several seeds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from fednet_emu.emulation.given import Network, ScenarioLike, Settings, changes, named
from fednet_emu.errors import FednetError
from fednet_emu.files.data_folder import folder_to_write
from fednet_emu.results.study import Failure, Study
from fednet_emu.screen.progress import sweep_shown
from fednet_emu.study.runners import Runner, runner_of
from fednet_emu.study.runs import LoadedStudy, Sources, load_study, opened, study_values
from fednet_emu.study.sweep import sweep as run_cells
from fednet_emu.tracking.table import trackers_of

if TYPE_CHECKING:
    from fednet_emu.algorithms.base import Algorithm
    from fednet_emu.learning.data.datasets.base import Dataset, Samples


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
    """Run every setting of a grid with several seeds; equal seeds meet equal channels, data and stragglers.

    Args:
        study: a scenario, as `run` takes it, whose settings the grid varies; or the name or path of a study file.
        grid: the axes, whose product is run: a list for one key, named variants, or lists that go together.
        seeds: so many from 0 on, or a list of them; 5 for a scenario.
        settings: of every run; the grid wins.
        target: what a run has to reach, `{"accuracy": 0.9}` or `{"loss": 0.1}`.
        workers: runs at a time, each in a process of its own; one per core by default.
        out: the folder of the study, as `fednet sweep` makes it; finished runs in it are not run again. None leaves no
            folder behind.
        algorithm: as for `run`; objects whose class lives in a notebook or script cannot go to other processes, so
            they run in this one, one after the other.
        model: as for `run`.
        data: as for `run`.
        data_dir: where data sets are.
        timing_only: whether to leave out training.
        ray: whether to run it on a Ray cluster that is started here, or the address of one.
        track: `tensorboard`, `mlflow`, `wandb`, or import paths of classes with their three methods; each run is one
            of its own in a tracker, in a group called like the study.
        progress: whether to show how far the sweep is; None where somebody looks, in a terminal or a notebook.

    Raises:
        ScenarioError: every problem of the study and of its scenarios.
        DataError: the folder holds something else, or another sweep or search writes to it.
    """
    changed = [*changes(settings, algorithm=algorithm, model=model, data=data)]
    sources = opened(study) if isinstance(study, str | Path) and grid is None else study
    if not isinstance(sources, Sources):
        name, base = named(sources)
        keys = {"base": name, "grid": grid or {}, "seeds": 5 if seeds is None else seeds, "target": target}
        sources = study_values(name, base, {key: value for key, value in keys.items() if value is not None})
    elif seeds is not None or target is not None:
        raise FednetError(f"sweep: seeds and target are in the study's file, got them for '{study}'; change that")
    loaded = load_study(sources, changed, timing_only=timing_only)
    found = swept(
        loaded,
        out,
        runner_of([run.scenario for run in loaded.runs], workers, ray),
        data_dir=data_dir,
        track=track,
        progress=progress,
    )
    if found.failures:
        first = found.failures[0]
        text = f"{len(found.failures)} of {len(loaded.runs)} runs failed, first {first.label}: {first.reason}"
        warnings.warn(text, stacklevel=2)
    return found


def swept(
    loaded: LoadedStudy,
    out: str | Path | None,
    runner: Runner,
    *,
    data_dir: str | Path | None = None,
    track: str | Iterable[str] = (),
    progress: bool | None = None,
) -> Study:
    """Run what a study has not finished, and open it."""
    names, folder = tracker_names(track), folder_of(out)
    with sweep_shown(progress) as show:
        ended = run_cells(loaded, folder, runner, data_dir=data_dir, track=names, on_event=show)
    failures = [
        Failure(ended.runs[place].label, reason, ended.replay(place))
        for place, reason in sorted(ended.failures.items())
    ]
    return Study.opened(folder, temporary=out is None, failures=failures)


def tracker_names(track: str | Iterable[str]) -> tuple[str, ...]:
    """The names of trackers that many runs get; what cannot be made is told before anything runs."""
    names = (track,) if isinstance(track, str) else tuple(track)
    if not all(isinstance(name, str) for name in names):
        raise FednetError(f"track: a sweep takes names, got {names!r}; give an import path, package.module:Class")
    trackers_of(names)
    return names


def folder_of(out: str | Path | None) -> Path:
    """The folder of a study that was asked for, or a new temporary one."""
    return folder_to_write(out, "out") if out is not None else Path(mkdtemp(prefix="fednet-"))

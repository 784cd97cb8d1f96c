"""A sweep: carry out the runs of a study that are not there yet, and write the study's tables."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fednet_emu.files.data_folder import checksum
from fednet_emu.files.writing import told, write_json, write_text
from fednet_emu.records.folder.store import locked, require_free, tidy, unlock
from fednet_emu.study.attempt import Job, Outcome, finished
from fednet_emu.study.file import StudyFile
from fednet_emu.study.runners import Runner
from fednet_emu.study.runs import StudyRun
from fednet_emu.study.tables import TABLES, aim, write_tables

STUDY = "study.json"


@dataclass
class Sweep:
    """The runs of a study: how they are run, and how far they are.

    Attributes:
        study: the study.
        out: its folder.
        runner: runs them.
        data_dir: where data sets are.
        track: names of the trackers that hear of every run.
        on_event: called when a run starts or ends.
        runs: all runs of the study.
        folder_of: the run folder of each.
        done: places of the finished runs.
        running: places of the runs under way.
        failures: why runs have failed.
        host_s: host times of the finished runs, those of earlier sweeps included.
        at_once: the most runs that were under way together, at most one for each core here.
    """

    study: StudyFile
    out: Path
    runner: Runner
    data_dir: Path | str | None = None
    track: tuple[str, ...] = ()
    on_event: Callable[[Sweep], None] = lambda _sweep: None
    runs: list[StudyRun] = field(default_factory=list)
    folder_of: list[Path] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    host_s: list[float] = field(default_factory=list)
    at_once: int = 0

    def add(self, runs: Sequence[StudyRun]) -> list[int]:
        """Add runs, some of which may be finished already, and return their places."""
        places = list(range(len(self.runs), len(self.runs) + len(runs)))
        self.runs.extend(runs)
        self.folder_of.extend(_folders(runs, self.out / "cells"))
        for place in places:
            summary = finished(self.folder_of[place])
            if summary is None:
                continue
            tidy(self.folder_of[place])
            if summary["verified"]:
                self.done.add(place)
                self.host_s.append(summary["host_s"])
            else:
                self.failures[place] = f"conservation laws are broken: {summary['broken_laws']}"
        return places

    def finish(self) -> None:
        """Run what has not ended."""
        places = self.left
        jobs = [
            Job(
                self.runs[place].scenario,
                f"{self.study.name}: {self.runs[place].label}",
                self.folder_of[place].resolve(),
                Path(self.data_dir).resolve() if self.data_dir else None,
                self.runs[place].timing_only,
                self.study.limits,
                self.track,
                (self.study.name, self.out.resolve()),
            )
            for place in places
        ]
        with closing(self.runner(jobs)) as events:
            for index, outcome in events:
                self._note(places[index], outcome)
                self.on_event(self)

    def _note(self, place: int, outcome: Outcome | None) -> None:
        """Note the start or the outcome of a run; a failure leaves a file with its reason and how to replay it."""
        if outcome is None:
            self.running.add(place)
            self.at_once = max(self.at_once, min(len(self.running), os.cpu_count() or 1))
            return
        self.running.discard(place)
        run, folder = self.runs[place], self.out / "failures"
        report = folder / f"{run.name}.txt"
        if outcome.status == "done":
            self.done.add(place)
            self.host_s.append(outcome.host_s)
            with told(report, "deleted"):
                report.unlink(missing_ok=True)
        elif outcome.status == "failed":
            self.failures[place] = outcome.reason
            with told(folder, "made"):
                folder.mkdir(exist_ok=True)
            write_text(report, f"{run.label}\n{outcome.reason}\nreplay: {self.replay(place)}\n\n{outcome.details}")

    def replay(self, place: int) -> str:
        """The command that repeats a run by itself; of one that comes from Python, from what its folder says."""
        data = ["--data-dir", str(self.data_dir)] if self.data_dir else []
        command = self.runs[place].command or ("fednet", "run", str(self.folder_of[place] / "scenario.yaml"))
        return shlex.join([*command, *data])

    @property
    def left(self) -> list[int]:
        """Places of the runs that have not ended."""
        return [place for place in range(len(self.runs)) if place not in self.done | self.failures.keys()]

    @property
    def left_s(self) -> float:
        """Host time until the last run ends, if runs take as long as the finished ones did on average.

        Those under way are taken to be half done. NaN while no run has been finished, or none has been started.
        """
        left = len(self.left)
        lanes = min(self.at_once, left)
        return fmean(self.host_s) * (left - lanes / 2) / lanes if lanes and self.host_s else math.nan


def sweep(
    runs: Sequence[StudyRun],
    out: Path,
    runner: Runner,
    *,
    data_dir: Path | str | None = None,
    track: tuple[str, ...] = (),
    on_event: Callable[[Sweep], None] = lambda _sweep: None,
) -> Sweep:
    """Run what is missing of a study.

    Finished runs are never repeated; unfinished ones go on from their checkpoints; failed ones are tried again.
    However the sweep ends, the tables hold what is finished by then.

    Args:
        runs: all runs of the study, at least one.
        out: the folder of the study, made when it is not there.
        runner: runs the jobs.
        data_dir: where data sets are.
        track: names of the trackers that hear of every run.
        on_event: called when a run starts or ends.

    Raises:
        DataError: the folder holds something else, or another sweep or search writes to it.
    """
    study, timing_only = runs[0].study, runs[0].timing_only
    axes = {axis.name: [level.columns[axis.name] for level in axis.levels] for axis in study.axes}
    swept = Sweep(study, out, runner, data_dir, track, on_event)
    with study_folder(out):
        describe(study, axes, timing_only, out, known_tables(out))
        swept.add(runs)
        on_event(swept)
        try:
            swept.finish()
        finally:
            folders = {place: swept.folder_of[place] for place in sorted(swept.done)}
            write_tables(out, runs, folders, swept.failures, study.target)
            describe(study, axes, timing_only, out, {name: checksum(out / name) for name in TABLES})
    return swept


def _folders(runs: Iterable[StudyRun], folder: Path) -> list[Path]:
    """The run folder of each run: the one that has its digest, whatever the run was called then."""
    there = {path.name.rpartition("__")[2]: path for path in sorted(folder.glob("*__*"), reverse=True)}
    return [there.get(run.digest, folder / run.name) for run in runs]


def known_tables(out: Path) -> dict[str, str]:
    """The checksums of the tables that an earlier sweep has written, as it has noted them."""
    try:
        return dict(json.loads((out / STUDY).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def describe(
    study: StudyFile, axes: Mapping[str, Sequence[Any]], timing_only: bool, out: Path, tables: Mapping[str, str]
) -> None:
    """Write into a study's folder its file, and what figures need to know of it, with the checksums of its tables."""
    measure, level = aim(study.target) if study.target else (None, None)
    description = {
        "name": study.name,
        "title": study.title or study.name,
        "axes": axes,
        "seeds": study.all_seeds,
        "target": {measure: level} if measure else {},
        "timing_only": timing_only,
        "files": tables,
    }
    write_json(out / STUDY, description)
    write_text(out / "study.yaml", study.text)


@contextmanager
def study_folder(out: Path, what: str = "sweep or search") -> Iterator[None]:
    """Lock the folder of a study for the `with` block, at most until this process ends; `what` may hold it already."""
    if not any((out / name).is_file() for name in (STUDY, *TABLES)):
        require_free(out, "the folder of a study")
    lock = locked(out, what)
    try:
        yield
    finally:
        unlock(out, lock)

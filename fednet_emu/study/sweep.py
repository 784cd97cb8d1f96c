"""A sweep: the cells of a study that are not there yet are run, and the study's tables are written."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fednet_emu.files.data_folder import checksum
from fednet_emu.files.writing import told, write_json, write_text
from fednet_emu.records.folder.store import locked, require_free, tidy, unlock
from fednet_emu.study.attempt import CellJob, Outcome
from fednet_emu.study.cells import Cell, LoadedStudy
from fednet_emu.study.finished import finished
from fednet_emu.study.local import News
from fednet_emu.study.model import Limits, Study
from fednet_emu.study.tables import TABLES, aim, write_tables

STUDY = "study.json"

Runner = Callable[[Sequence[CellJob]], Generator[News, None, None]]
"""Runs tasks somewhere; the news come as they happen."""


@dataclass
class Progress:
    """How far a sweep is.

    Attributes:
        cells: all cells of the study.
        folder_of: the run folder of each cell.
        data_dir: where data sets are.
        done: places of the finished cells.
        running: places of the cells under way.
        failures: why cells have failed.
        host_s: host times of the finished cells, those of earlier sweeps included.
        at_once: the most cells that were under way together, at most one for each core here.
    """

    cells: list[Cell]
    folder_of: list[Path]
    data_dir: Path | str | None = None
    done: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    host_s: list[float] = field(default_factory=list)
    at_once: int = 0

    def add(self, cells: Sequence[Cell], folder: Path) -> list[int]:
        """Take in more cells, some of which may be finished already, and return their places.

        Args:
            cells: the cells.
            folder: the folder of the run folders of all cells.
        """
        places = list(range(len(self.cells), len(self.cells) + len(cells)))
        self.cells.extend(cells)
        self.folder_of.extend(_folders(cells, folder))
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

    def replay(self, place: int) -> str:
        """The command that runs a cell by itself; one that comes from Python, from what its run folder says."""
        data = ["--data-dir", str(self.data_dir)] if self.data_dir else []
        command = self.cells[place].command or ("fednet", "run", str(self.folder_of[place] / "scenario.yaml"))
        return shlex.join([*command, *data])

    @property
    def left(self) -> list[int]:
        """Places of the cells that have not ended."""
        return [place for place in range(len(self.cells)) if place not in self.done | self.failures.keys()]

    @property
    def left_s(self) -> float:
        """Host time until the last cell ends, if cells take as long as the finished ones did on average.

        Those under way are taken to be half done. NaN while no cell has been finished, or none has been started.
        """
        left = len(self.left)
        lanes = min(self.at_once, left)
        return fmean(self.host_s) * (left - lanes / 2) / lanes if lanes and self.host_s else math.nan


def sweep(
    loaded: LoadedStudy,
    out: Path,
    run: Runner,
    *,
    data_dir: Path | str | None = None,
    track: tuple[str, ...] = (),
    on_news: Callable[[Progress], None] = lambda _progress: None,
) -> Progress:
    """Run what is missing of a study.

    Finished cells are never run again; unfinished ones go on from their checkpoints; failed ones are tried again.
    However the sweep ends, the tables hold what is finished by then.

    Args:
        loaded: the study.
        out: the folder of the study, made when it is not there.
        run: runs the tasks.
        data_dir: where data sets are.
        track: names of the trackers that hear of every cell that runs.
        on_news: called when a cell starts or ends.

    Raises:
        DataError: the folder holds something else, or another sweep or search writes to it.
    """
    work = Work(loaded.name, out, loaded.study.limits, loaded.timing_only, run, data_dir, track, on_news)
    with study_folder(out):
        _describe(loaded, out, known_tables(out))
        progress = Progress([], [], data_dir)
        progress.add(loaded.cells, out / "cells")
        on_news(progress)
        try:
            work.finish(progress)
        finally:
            folders = {place: progress.folder_of[place] for place in sorted(progress.done)}
            write_tables(out, loaded.cells, folders, progress.failures, loaded.study.target)
            _describe(loaded, out, {name: checksum(out / name) for name in TABLES})
    return progress


@dataclass(frozen=True)
class Work:
    """How the cells of a study are run.

    Attributes:
        name: name of the study.
        out: the folder of the study.
        limits: limits of each cell.
        timing_only: whether the cells leave out training.
        run: runs the tasks.
        data_dir: where data sets are.
        track: names of the trackers that hear of every cell that runs.
        on_news: called when a cell starts or ends.
    """

    name: str
    out: Path
    limits: Limits
    timing_only: bool
    run: Runner
    data_dir: Path | str | None
    track: tuple[str, ...]
    on_news: Callable[[Progress], None]

    def finish(self, progress: Progress) -> None:
        """Run the cells that have not ended."""
        places = progress.left
        tasks = [
            CellJob(
                progress.cells[place].scenario,
                f"{self.name}: {progress.cells[place].label}",
                progress.folder_of[place].resolve(),
                Path(self.data_dir).resolve() if self.data_dir else None,
                self.timing_only,
                self.limits,
                self.track,
                (self.name, self.out.resolve()),
            )
            for place in places
        ]
        with closing(self.run(tasks)) as news:
            for index, outcome in news:
                _note(progress, places[index], outcome, self.out / "failures")
                self.on_news(progress)


def _note(progress: Progress, place: int, outcome: Outcome | None, failures: Path) -> None:
    """Take in what has become of a cell; a failure leaves a file with its reason and how to replay it."""
    if outcome is None:
        progress.running.add(place)
        progress.at_once = max(progress.at_once, min(len(progress.running), os.cpu_count() or 1))
        return
    progress.running.discard(place)
    cell, report = progress.cells[place], failures / f"{progress.cells[place].name}.txt"
    if outcome.status == "done":
        progress.done.add(place)
        progress.host_s.append(outcome.host_s)
        with told(report, "deleted"):
            report.unlink(missing_ok=True)
    elif outcome.status == "failed":
        progress.failures[place] = outcome.reason
        with told(failures, "made"):
            failures.mkdir(exist_ok=True)
        write_text(report, f"{cell.label}\n{outcome.reason}\nreplay: {progress.replay(place)}\n\n{outcome.details}")


def _folders(cells: Iterable[Cell], folder: Path) -> list[Path]:
    """The run folder of each cell: the one that has its digest, whatever the cell was called then."""
    there = {path.name.rpartition("__")[2]: path for path in sorted(folder.glob("*__*"), reverse=True)}
    return [there.get(cell.digest, folder / cell.name) for cell in cells]


def known_tables(out: Path) -> dict[str, str]:
    """The checksums of the tables that an earlier sweep has written, as it has noted them."""
    try:
        return dict(json.loads((out / STUDY).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _describe(loaded: LoadedStudy, out: Path, tables: Mapping[str, str]) -> None:
    axes = {axis.name: [level.columns[axis.name] for level in axis.levels] for axis in loaded.axes}
    describe(loaded.name, loaded.study, axes, loaded.timing_only, out, tables)
    write_text(out / "study.yaml", loaded.text)


def describe(
    name: str, study: Study, axes: Mapping[str, Sequence[Any]], timing_only: bool, out: Path, tables: Mapping[str, str]
) -> None:
    """Write what figures need to know of a study, with the checksums of its tables, into its folder."""
    measure, level = aim(study.target) if study.target else (None, None)
    description = {
        "name": name,
        "title": study.title or name,
        "axes": axes,
        "seeds": study.all_seeds,
        "target": {measure: level} if measure else {},
        "timing_only": timing_only,
        "files": tables,
    }
    write_json(out / STUDY, description)


@contextmanager
def study_folder(out: Path, what: str = "sweep or search") -> Iterator[None]:
    """The folder of a study, to which nobody else writes; it is let go when this process ends, however it ends.

    Args:
        out: the folder.
        what: who else may write to it, for the error.
    """
    if not any((out / name).is_file() for name in (STUDY, *TABLES)):
        require_free(out, "the folder of a study")
    lock = locked(out, what)
    try:
        yield
    finally:
        unlock(out, lock)

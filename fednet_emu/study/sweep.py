"""Sweeps, which execute the unfinished runs of a study, and write tables of all runs."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.scales import Measure, first_reached, with_total_bits
from fednet_emu.analysis.settings import data_set_names
from fednet_emu.analysis.study import DATA_SET, DESCRIPTION, DEVICE_COUNT, delays_of_others, uncounted_computing
from fednet_emu.arrays import Array
from fednet_emu.devices.carbon import Carbon
from fednet_emu.files.data_folder import checksum
from fednet_emu.files.writing import file_errors, write_json, write_table, write_text
from fednet_emu.records.folder import LEARNING, SUMMARY, locked, require_free, tidy, unlock
from fednet_emu.records.ledger import SCORES, Ledger
from fednet_emu.records.summaries import SPREAD
from fednet_emu.study.file import StudyFile, Target
from fednet_emu.study.grid import BACKHAUL, KEYS, PRIVACY, STATUS, TOTALS
from fednet_emu.study.runners import Job, Outcome, Runner, finished
from fednet_emu.study.runs import StudyRun

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("study.parquet", "runs.parquet")
"""Files with the tables for figures and comparisons. Host times are in another file, because they differ between
sweeps."""


def write_tables(
    folder: Path,
    runs: Sequence[StudyRun],
    finished: Mapping[int, Path],
    failures: Mapping[int, str],
    target: Target | None,
) -> None:
    """Write the tables of a study to the folder of the study.

    `study.parquet` has all evaluations, `runs.parquet` one row per run, and `hosts.parquet` the host times. Rows are
    in the order of the study, not in the order in which runs finished. `finished` has the folders of finished runs, and
    `failures` the reasons for failures, both by the index of the run in `runs`.
    """
    summaries: dict[int, dict[str, Any]] = {
        place: json.loads((finished[place] / SUMMARY).read_text(encoding="utf-8")) for place in sorted(finished)
    }
    evaluations = _evaluations(runs, [(place, finished[place]) for place in summaries])
    diverged = [runs[place].name for place, summary in summaries.items() if summary["status"] == "diverged"]
    sound = evaluations[~evaluations["run"].isin(diverged)]
    reached = first_reached(sound, [run.name for run in runs], *aim(target)).reset_index(drop=True)
    data = [run.scenario.data for run in runs]
    names = data_set_names([None if its is None else its.model_dump(mode="json") for its in data])
    rows = [
        {
            **_keys(run),
            **_status(summaries.get(place), failures.get(place)),
            DATA_SET: names[place],
            DEVICE_COUNT: run.scenario.devices.count,
            **_totals(summaries.get(place, {}), run.scenario.evaluation.columns),
            **_per_run(summaries.get(place, {})),
        }
        for place, run in enumerate(runs)
    ]
    hosts = [{"run": runs[place].name, "host_s": summary["host_s"]} for place, summary in summaries.items()]
    write_table(folder / "study.parquet", [evaluations])
    table = pd.DataFrame(rows) if rows else pd.DataFrame(columns=[*KEYS, *STATUS, DATA_SET, DEVICE_COUNT])
    write_table(folder / "runs.parquet", [pd.concat([table, reached], axis="columns")])
    write_table(folder / "hosts.parquet", [pd.DataFrame(hosts, columns=["run", "host_s"])])


def _status(summary: Mapping[str, Any] | None, failure: str | None) -> dict[str, str]:
    if summary is not None:
        return {"status": summary["status"], "reason": summary.get("diverged") or ""}
    return {"status": "waiting", "reason": ""} if failure is None else {"status": "failed", "reason": failure}


def _per_run(summary: Mapping[str, Any]) -> dict[str, float]:
    carbon = {name: summary[name] for name in ("carbon_g",) if name in summary}
    return {**delays_of_others(summary), **uncounted_computing(summary), **carbon}


def aim(target: Target | None) -> tuple[Measure | None, float]:
    """Return the metric of a target (accuracy or loss) and the value to reach; None and NaN if `target` is None."""
    if target is None:
        return None, math.nan
    if target.accuracy is not None:
        return "accuracy", target.accuracy
    return "loss", target.loss or math.nan


def _keys(run: StudyRun) -> dict[str, Any]:
    return {**run.columns, "seed": run.scenario.seed, "run": run.name}


def _totals(summary: Mapping[str, Any], metrics: Sequence[str]) -> dict[str, float]:
    used = [name for name in (*BACKHAUL, *PRIVACY, *SPREAD) if name in summary]
    found = {
        name: float(math.nan if summary.get(name) is None else summary[name])
        for name in (*TOTALS, *used, *SCORES, *metrics)
    }
    return {**found, "total_bit": found["uplink_bit"] + found["downlink_bit"] + found["sidelink_bit"]}


def _evaluations(runs: Sequence[StudyRun], finished: Sequence[tuple[int, Path]]) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    none = pa.Table.from_pandas(Ledger().evaluations.frame(), preserve_index=False)
    tables = [pq.ParquetFile(folder / "evaluations.parquet").read(use_threads=False) for _, folder in finished]
    together = pa.concat_tables(tables or [none], promote_options="permissive").replace_schema_metadata()
    rows = np.repeat([place for place, _ in finished], [len(table) for table in tables]).astype(int)
    keys = pd.DataFrame([_keys(run) for run in runs], columns=None if runs else KEYS)
    keys = keys.iloc[rows].reset_index(drop=True)
    table = pd.concat([keys, with_total_bits(together.to_pandas())], axis="columns")
    carbon = [runs[place].scenario.carbon for place, _ in finished]
    if any(its is not None for its in carbon):
        table["carbon_g"] = np.concatenate([_grams(*each) for each in zip(carbon, tables, strict=True)])
    return table


def _grams(carbon: Carbon | None, evaluations: pa.Table) -> Array:
    if carbon is None:
        return np.full(len(evaluations), math.nan)
    return carbon.grams_until(*(evaluations[name].to_pylist() for name in ("simulated_s", "energy_j")))


@dataclass
class Sweep:
    """Runs of a study in progress, with the state of each run."""

    study: StudyFile
    out: Path
    runner: Runner
    data_dir: Path | str | None = None
    track: tuple[str, ...] = ()
    on_event: Callable[[Sweep], None] = lambda _sweep: None
    """Function that is called with the sweep when a run starts or ends."""
    runs: list[StudyRun] = field(default_factory=list)
    folder_of: list[Path] = field(default_factory=list)
    """Run folder of each run in `runs`."""
    done: set[int] = field(default_factory=set)
    """Indices of the finished runs."""
    running: set[int] = field(default_factory=set)
    """Indices of the active runs."""
    failures: dict[int, str] = field(default_factory=dict)
    """Reasons why runs failed, by the index of the run."""
    host_s: list[float] = field(default_factory=list)
    """Host times of finished runs in seconds, including runs of earlier sweeps."""
    at_once: int = 0
    """Maximum number of simultaneous runs so far, but at most the number of cores of this machine."""

    def add(self, runs: Sequence[StudyRun]) -> list[int]:
        """Add runs and return their indices; the folders show which runs an earlier sweep has finished."""
        places = list(range(len(self.runs), len(self.runs) + len(runs)))
        self.runs.extend(runs)
        folder = self.out / "runs"  # a run is identified by its digest, not by its name
        there = {path.name.rpartition("__")[2]: path for path in sorted(folder.glob("*__*"), reverse=True)}
        self.folder_of.extend(there.get(run.digest, folder / run.name) for run in runs)
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
        """Execute all runs that are neither finished nor failed."""
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
                self.out.resolve() / LEARNING,
                self.runs[place].group,
            )
            for place in places
        ]
        with closing(self.runner(jobs)) as events:
            for index, outcome in events:
                self._note(places[index], outcome)
                self.on_event(self)

    def _note(self, place: int, outcome: Outcome | None) -> None:
        """Record that run `place` has started (if `outcome` is None) or ended with `outcome`.

        If the run has failed, the reason and the command that repeats the run are written to a text file in the folder
        `failures`. If it has succeeded, this file is deleted.
        """
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
            with file_errors(report, "deleted"):
                report.unlink(missing_ok=True)
        elif outcome.status == "failed":
            self.failures[place] = outcome.reason
            with file_errors(folder, "made"):
                folder.mkdir(exist_ok=True)
            write_text(report, f"{run.label}\n{outcome.reason}\nreplay: {self.replay(place)}\n\n{outcome.details}")

    def replay(self, place: int) -> str:
        """Return the command that repeats run `place`; it reads the run folder if the base scenario is not a file."""
        data = ["--data-dir", str(self.data_dir)] if self.data_dir else []
        command = self.runs[place].command or ("fednet", "run", str(self.folder_of[place] / "scenario.yaml"))
        return shlex.join([*command, *data])

    @property
    def left(self) -> list[int]:
        """Indices of the runs that are neither finished nor failed."""
        return [place for place in range(len(self.runs)) if place not in self.done | self.failures.keys()]

    @property
    def left_s(self) -> float:
        """Estimated host time in seconds until the last run ends, from the mean host time of finished runs.

        Active runs are assumed to be half done. The estimate is NaN until a run has started and a run has finished.
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
    """Execute the runs of a study that are not finished, and write tables of all runs.

    Finished runs are not repeated, unfinished runs are continued, and failed runs are tried again. An interrupted sweep
    also writes the tables.

    Args:
        runs: all runs of the study, at least one.
        out: the folder of the study, created if missing.
        track: names of the trackers of every run.
        on_event: the function that is called when a run starts or ends.

    Raises:
        DataError: `out` has other content, or another sweep or search writes to `out`.
    """
    study, timing_only = runs[0].study, runs[0].timing_only
    axes = {axis.name: [level.columns[axis.name] for level in axis.levels] for axis in study.axes}
    swept = Sweep(study, out, runner, data_dir, track, on_event)
    with study_folder(out):
        describe(study, axes, timing_only, out)
        swept.add(runs)
        on_event(swept)
        try:
            swept.finish()
        finally:
            folders = {place: swept.folder_of[place] for place in sorted(swept.done)}
            write_tables(out, runs, folders, swept.failures, study.target)
            describe(study, axes, timing_only, out, complete=True)
    return swept


def describe(
    study: StudyFile, axes: Mapping[str, Sequence[Any]], timing_only: bool, out: Path, *, complete: bool = False
) -> None:
    """Write to `out` the study file, and a description of the study with the checksums of the tables.

    If `complete` is False, the checksums are those that an earlier sweep has recorded.
    """
    tables = {name: checksum(out / name) for name in TABLES} if complete else _known_tables(out)
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
    write_json(out / DESCRIPTION, description)
    write_text(out / "study.yaml", study.text)


def _known_tables(out: Path) -> dict[str, str]:
    try:
        return dict(json.loads((out / DESCRIPTION).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


@contextmanager
def study_folder(out: Path, what: str = "sweep or search") -> Iterator[None]:
    """Lock the folder of a study inside the `with` block.

    Raises:
        DataError: `out` has other content, or another process (`what` in the error text) has the lock.
    """
    if not any((out / name).is_file() for name in (DESCRIPTION, *TABLES)):
        require_free(out, "the folder of a study")
    lock = locked(out, what)
    try:
        yield
    finally:
        unlock(out, lock)

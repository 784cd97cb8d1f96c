"""Run a study as a SLURM job array: a file for each run, a script for the array, and a last job that writes tables.

No process waits for the runs. Each element of the array executes some of the runs as a sweep would do, and writes their
outcomes to files, which `collected` reads.

    fednet sweep STUDY --slurm        # write and submit the job array
    fednet sweep STUDY --collect      # command of the last job: write tables, figures and the report
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from fednet_emu.errors import FednetError, one_line
from fednet_emu.files.writing import file_errors, write_text
from fednet_emu.study.file import Limits
from fednet_emu.study.runners import Event, Job, Outcome, complete

MOST_ELEMENTS = 1000
"""Maximum number of array elements (SLURM's default for `MaxArraySize` is 1001). If there are more runs, each element
executes several runs."""
SPARE_MB, SPARE_S = 1000, 300
"""Resources to reserve in addition to the limits of the runs: memory in MB for the supervising process, and start-up
time in s."""
OUTCOMES = "outcomes"
ELEMENT = "fednet_emu.cli.slurm_element"
"""Module that executes the runs of an array element."""


class Jobs(NamedTuple):
    """The scripts of a SLURM job array."""

    array: Path
    """Script of the job array, whose tasks execute the runs."""
    last: Path
    """Script of the last job, which writes the tables after all tasks of the job array have ended."""
    runs: int


class Slurm:
    """A runner that executes no jobs, but writes the jobs of a sweep as a SLURM job array.

    Args:
        out: the folder of the study, on a file system that all nodes share.
        collect: the command that the last job executes.

    Attributes:
        jobs: the scripts of the job array; None before the runner is called, or if there are no jobs.
    """

    def __init__(self, out: Path, collect: Sequence[str]) -> None:
        self._out, self._collect = out, collect
        self.jobs: Jobs | None = None

    def __call__(self, tasks: Sequence[Job]) -> Generator[Event, None, None]:
        """Write the files of the job array; yield no events."""
        if tasks:
            self.jobs = write_jobs(tasks, self._out, self._collect)
        yield from ()


def write_jobs(tasks: Sequence[Job], out: Path, collect: Sequence[str]) -> Jobs:
    """Write a job array for `tasks` (at least one) to a new numbered folder in the folder `slurm` of `out`."""
    with file_errors(out / "slurm", "made"):
        (out / "slurm" / OUTCOMES).mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(path.name) for path in (out / "slurm").iterdir() if path.name.isdecimal()), default=0)
        folder = (out / "slurm" / str(number)).resolve()
        (folder / "runs").mkdir(parents=True)
        (folder / "logs").mkdir()
        for place, task in enumerate(tasks):
            (folder / "runs" / f"{place}.json").write_bytes(_jobs().dump_json(task))
    elements = min(len(tasks), MOST_ELEMENTS)
    run = [sys.executable, "-P", "-m", ELEMENT, str(folder), "NUMBER", str(elements)]
    command = shlex.join(run).replace("NUMBER", '"$SLURM_ARRAY_TASK_ID"')
    needs = _needs(tasks[0].limits, math.ceil(len(tasks) / elements))
    name = (tasks[0].study or ("runs",))[0]
    array, last = folder / "runs.sh", folder / "tables.sh"
    write_text(array, _script(name, folder, [f"--array=0-{elements - 1}", *needs], f"exec {command}"))
    write_text(last, _script(f"{name}-tables", folder, [], f"exec {shlex.join(collect)}"))
    return Jobs(array, last, len(tasks))


def submit(jobs: Jobs) -> tuple[str, str] | None:
    """Submit a job array, and the last job, which starts when the array has ended.

    Returns:
        The job IDs of the array and of the last job; None if the command `sbatch` does not exist.

    Raises:
        FednetError: SLURM refuses a job.
    """
    if shutil.which("sbatch") is None:
        return None
    array = _sbatch(jobs.array)
    return array, _sbatch(f"--dependency=afterany:{array}", jobs.last)


def collected(tasks: Sequence[Job], out: Path) -> Generator[Event, None, None]:
    """Yield an event for each failed job, as read from the files of a job array.

    There are no events for finished runs, because their folders show that they are finished.
    """
    for place, task in enumerate(tasks):
        with suppress(OSError, ValueError, TypeError):
            text = (out / "slurm" / OUTCOMES / f"{task.folder.name}.json").read_text(encoding="utf-8")
            outcome = Outcome(**json.loads(text))
            if outcome.status == "failed":
                yield Event(place, outcome)


def run_element(folder: Path, element: int, elements: int) -> Iterator[tuple[str, Outcome]]:
    """Execute every job whose index is `element` modulo `elements`, and yield the name and outcome of each job."""
    runs = folder / "runs"
    for place in range(element, sum(1 for _ in runs.iterdir()), elements):
        task = _jobs().validate_json((runs / f"{place}.json").read_bytes())
        outcome = complete(task)
        write_text(folder.parent / OUTCOMES / f"{task.folder.name}.json", json.dumps(asdict(outcome)))
        yield task.name, outcome


@cache
def _jobs() -> TypeAdapter[Job]:
    """Return the converter of jobs to JSON and back; it is created late, because this takes host time."""
    return TypeAdapter(Job)


def _needs(limits: Limits, runs: int) -> list[str]:
    needs = []
    if limits.time_s is not None:
        needs.append(f"--time={math.ceil((limits.time_s * runs + SPARE_S) / 60)}")
    if limits.memory_mb is not None:
        needs.append(f"--mem={math.ceil(limits.memory_mb + SPARE_MB)}M")
    if limits.gpus:
        needs.append(f"--gpus={math.ceil(limits.gpus)}")
    return needs


def _script(name: str, folder: Path, options: Sequence[str], command: str) -> str:
    log = "%a" if any(option.startswith("--array") for option in options) else "tables"
    every = [f"--job-name={name}", "--ntasks=1", "--cpus-per-task=1", f"--output={folder}/logs/{log}.txt", *options]
    head = ["#!/bin/bash", *(f"#SBATCH {option}" for option in every)]
    return "\n".join([*head, f"cd {shlex.quote(str(Path.cwd()))}", command, ""])


def _sbatch(*arguments: str | Path) -> str:
    command = ["sbatch", "--parsable", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        what = one_line(ended.stderr) or f"exit code {ended.returncode}"
        raise FednetError(
            f"{shlex.join(command)}: is refused, got '{what}'; change the script, or set SBATCH_* options"
        )
    return ended.stdout.strip().partition(";")[0]

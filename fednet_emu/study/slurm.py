"""Run a study as a job array of SLURM: a file for each run, a script for all of them, and a last job for the tables.

Nothing waits while they run: each element of the array runs its share as a sweep does, and writes the outcomes to
files, which `collected` reads.

    fednet sweep STUDY --slurm        # writes and submits
    fednet sweep STUDY --collect      # as the last job: writes tables, figures and the report
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
from pathlib import Path
from typing import NamedTuple

from fednet_emu.errors import FednetError
from fednet_emu.files.writing import file_errors, write_text
from fednet_emu.scenario.model import Scenario
from fednet_emu.study.attempt import Job, Outcome, complete
from fednet_emu.study.file import Limits
from fednet_emu.study.runners import Event

MOST_ELEMENTS = 1000
"""Largest array; SLURM's own limit (`MaxArraySize`) is 1001 by default. With more runs each element runs several."""
SPARE_MB, SPARE_S = 1000, 300
"""Resources of a job in addition to the limits of its runs: memory of the supervising process, and time to start."""
OUTCOMES = "outcomes"
ELEMENT = "fednet_emu.cli.slurm_element"
"""The program of an element."""


class Jobs(NamedTuple):
    """The scripts of a job array."""

    array: Path
    """The script whose elements run the study."""
    last: Path
    """The script that writes the tables when all have ended."""
    runs: int
    """Number of runs."""


class Slurm:
    """A runner that writes the tasks of a sweep as a job array of SLURM, and runs nothing.

    Args:
        out: the folder of the study, on a file system that all nodes share.
        collect: the command of the last job.

    Attributes:
        jobs: the written jobs; None if all runs are finished.
    """

    def __init__(self, out: Path, collect: Sequence[str]) -> None:
        self._out, self._collect = out, collect
        self.jobs: Jobs | None = None

    def __call__(self, tasks: Sequence[Job]) -> Generator[Event, None, None]:
        """Write the files of the tasks; there are no events yet."""
        if tasks:
            self.jobs = write_jobs(tasks, self._out, self._collect)
        yield from ()


def write_jobs(tasks: Sequence[Job], out: Path, collect: Sequence[str]) -> Jobs:
    """Write the files of a job array of at least one job into a new folder in `slurm/` of a study's folder."""
    with file_errors(out / "slurm", "made"):
        (out / "slurm" / OUTCOMES).mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(path.name) for path in (out / "slurm").iterdir() if path.name.isdecimal()), default=0)
        folder = (out / "slurm" / str(number)).resolve()
        (folder / "cells").mkdir(parents=True)
        (folder / "logs").mkdir()
        for place, task in enumerate(tasks):
            (folder / "cells" / f"{place}.json").write_text(_text(task), encoding="utf-8")
    elements = min(len(tasks), MOST_ELEMENTS)
    run = [sys.executable, "-P", "-m", ELEMENT, str(folder), "NUMBER", str(elements)]
    command = shlex.join(run).replace("NUMBER", '"$SLURM_ARRAY_TASK_ID"')
    needs = _needs(tasks[0].limits, math.ceil(len(tasks) / elements))
    name = (tasks[0].study or ("cells",))[0]
    array, last = folder / "cells.sh", folder / "tables.sh"
    write_text(array, _script(name, folder, [f"--array=0-{elements - 1}", *needs], f"exec {command}"))
    write_text(last, _script(f"{name}-tables", folder, [], f"exec {shlex.join(collect)}"))
    return Jobs(array, last, len(tasks))


def submit(jobs: Jobs) -> tuple[str, str] | None:
    """Submit a job array, and the last job to run after it.

    Returns:
        The numbers of both jobs; None without `sbatch`.

    Raises:
        FednetError: SLURM refuses them.
    """
    if shutil.which("sbatch") is None:
        return None
    array = _sbatch(jobs.array)
    return array, _sbatch(f"--dependency=afterany:{array}", jobs.last)


def collected(tasks: Sequence[Job], out: Path) -> Generator[Event, None, None]:
    """Run nothing; yield the outcomes of failed jobs. Finished runs are found by their folders."""
    for place, task in enumerate(tasks):
        with suppress(OSError, ValueError, TypeError):
            text = (out / "slurm" / OUTCOMES / f"{task.folder.name}.json").read_text(encoding="utf-8")
            outcome = Outcome(**json.loads(text))
            if outcome.status == "failed":
                yield Event(place, outcome)


def run_element(folder: Path, element: int, elements: int) -> Iterator[tuple[str, Outcome]]:
    """Run the jobs of one element of an array, every n-th file of its folder for n elements; yield their outcomes."""
    runs = folder / "cells"
    for place in range(element, sum(1 for _ in runs.iterdir()), elements):
        task = _task((runs / f"{place}.json").read_text(encoding="utf-8"))
        outcome = complete(task)
        write_text(folder.parent / OUTCOMES / f"{task.folder.name}.json", json.dumps(asdict(outcome)))
        yield task.name, outcome


def _text(task: Job) -> str:
    """A task as JSON."""
    limits, scenario = task.limits.model_dump(), task.scenario.model_dump(mode="json")
    return json.dumps({**vars(task), "scenario": scenario, "limits": limits}, default=str)


def _task(text: str) -> Job:
    """The task of a text by `_text`."""
    found = json.loads(text)
    name, out = found["study"]
    data_dir = found["data_dir"] and Path(found["data_dir"])
    whole = {"scenario": Scenario.model_validate(found["scenario"]), "limits": Limits(**found["limits"])}
    places = {"folder": Path(found["folder"]), "data_dir": data_dir, "study": (name, Path(out))}
    places["store"] = found["store"] and Path(found["store"])
    return Job(**{**found, **whole, **places, "track": tuple(found["track"])})


def _needs(limits: Limits, runs: int) -> list[str]:
    """The reservation of an element that runs `runs` runs one after the other."""
    needs = []
    if limits.time_s is not None:
        needs.append(f"--time={math.ceil((limits.time_s * runs + SPARE_S) / 60)}")
    if limits.memory_mb is not None:
        needs.append(f"--mem={math.ceil(limits.memory_mb + SPARE_MB)}M")
    if limits.gpus:
        needs.append(f"--gpus={math.ceil(limits.gpus)}")
    return needs


def _script(name: str, folder: Path, options: Sequence[str], command: str) -> str:
    """A script for `sbatch`, which starts in the folder from which it was written."""
    log = "%a" if any(option.startswith("--array") for option in options) else "tables"
    every = [f"--job-name={name}", "--ntasks=1", "--cpus-per-task=1", f"--output={folder}/logs/{log}.txt", *options]
    head = ["#!/bin/bash", *(f"#SBATCH {option}" for option in every)]
    return "\n".join([*head, f"cd {shlex.quote(str(Path.cwd()))}", command, ""])


def _sbatch(*arguments: str | Path) -> str:
    """Submit a job, and return its number."""
    command = ["sbatch", "--parsable", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        what = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
        raise FednetError(
            f"{shlex.join(command)}: is refused, got '{what}'; change the script, or set SBATCH_* options"
        )
    return ended.stdout.strip().partition(";")[0]

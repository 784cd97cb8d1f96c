"""Execution of the runs of a study: in parallel processes, on a Ray cluster, or one by one in this process.

An outcome is reported even if the process of a run crashes or is killed.
"""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fednet_emu.component.component import Component
from fednet_emu.emulation.load import refuse
from fednet_emu.emulation.outlook import Outlook, unaffordable
from fednet_emu.emulation.play import play
from fednet_emu.errors import DataError, FednetError, described, one_line
from fednet_emu.host import (
    clean_context,
    end_with_parent,
    ending,
    interrupts_kept_here,
    interrupts_later,
    main_left_out,
)
from fednet_emu.learning.engines.ray.cluster import connected
from fednet_emu.records.folder import FINISHED, SUMMARY, RunFolder, read_manifest, require_sound
from fednet_emu.scenario.model import Scenario
from fednet_emu.study.file import Limits
from fednet_emu.tracking.tracker import trackers_of

POLL_S = 0.05
GRACE_S = 5.0
"""Host time, in seconds, that a run has to write its records after a request to stop. After that, the run is killed."""
LOG = logging.getLogger("fednet_emu")

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """A run to execute, with all inputs of the process that executes it."""

    scenario: Scenario
    name: str
    folder: Path
    data_dir: Path | None
    """Folder with data sets; if None, the environment variable FEDNET_DATA names the folder."""
    timing_only: bool
    limits: Limits
    track: tuple[str, ...] = ()
    study: tuple[str, Path] | None = None
    """Name and folder of the study to which the run belongs, for trackers; None for a single run."""
    store: Path | None = None
    """Folder of training results that the runs of the study reuse; None for the folder in the user's cache."""
    group: str = ""
    """Name of a group of runs that probably need the same training; empty if the run is in no group. The first run of a
    group ends before the other runs start, so that they can reuse its training results."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one attempt to execute a run."""

    status: Literal["begun", "done", "failed", "stopped"]
    """`begun` (no outcome yet), `done`, `failed`, or `stopped` because the sweep was stopped."""
    reason: str = ""
    """Reason for a failure, in one line; empty otherwise."""
    details: str = ""
    """Traceback of a failure; empty if there is none."""
    host_s: float = 0.0
    """Host time of the attempt, in seconds."""


class Attempt:
    """A run that is executed in its own process; `poll` returns its outcome and enforces limits on time and memory."""

    def __init__(self, job: Job) -> None:
        context = clean_context("fednet_emu.study.fork_server")
        self.limits = job.limits
        self._started_s = float("inf")
        self.results, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(job, sender))
        with _one_thread_each(), main_left_out(), interrupts_kept_here():
            self._process.start()
        sender.close()
        self._verdict: Outcome | None = None
        self._patience_s = float("inf")

    def poll(self, wait_s: float = 0.0) -> Outcome | None:
        """Wait at most `wait_s` seconds for the outcome of the run; return None if the run has not ended."""
        outcome = self._received(wait_s)
        if outcome is None and self._process.is_alive():
            self._watch()
            return None
        outcome = outcome or self._received(0.0)
        if outcome is None:  # the process ended without reporting an outcome
            code = self._process.exitcode or 0
            outcome = Outcome("failed", f"its process {ending(code)}{' before the run did' if code >= 0 else ''}")
        self._process.join(GRACE_S)
        if self._process.is_alive():  # the process has reported an outcome, but hangs in an exit handler
            self._process.kill()
            self._process.join()
        self.results.close()
        if self._verdict is not None and outcome.status != "done":
            outcome = self._verdict
        elif outcome.status == "stopped":  # stopped by someone else: this sweep continues, and the run counts as failed
            outcome = Outcome("failed", "its process was stopped from outside")
        return replace(outcome, host_s=max(0.0, time.monotonic() - self._started_s))

    def stop(self, verdict: Outcome | None = None) -> None:
        """Request that the run stops after its current event; after further `GRACE_S` seconds, `poll` kills it.

        The outcome of the attempt becomes `verdict`, by default `stopped`.
        """
        if self._verdict is None:
            self._verdict = verdict or Outcome("stopped")
            self._patience_s = time.monotonic() + GRACE_S
            self._process.terminate()

    def _received(self, wait_s: float) -> Outcome | None:
        try:
            outcome: Outcome | None = self.results.recv() if self.results.poll(wait_s) else None
        except (EOFError, OSError):
            return None
        if outcome is not None and outcome.status == "begun":
            self._started_s = time.monotonic()
            return None
        return outcome

    def _watch(self) -> None:
        """Stop the run at its time limit; kill it if it exceeds its memory limit or ignores a request to stop."""
        now_s, limits = time.monotonic(), self.limits
        if now_s > self._patience_s:
            self._process.kill()
        if limits.time_s is not None and now_s - self._started_s > limits.time_s:
            self.stop(Outcome("failed", f"took longer than limits.time_s, {limits.time_s:g} s"))
        if limits.memory_mb is not None and self._verdict is None:
            used_mb = resident_mb(self._process.pid)
            if used_mb > limits.memory_mb:
                text = f"used {used_mb:.0f} MB of memory, more than limits.memory_mb, {limits.memory_mb:g}"
                self._verdict = Outcome("failed", text)
                self._process.kill()  # immediately, since writing the records would need even more memory


def complete(job: Job) -> Outcome:
    """Execute a job in its own process, wait until the job ends, and return the outcome."""
    attempt = Attempt(job)
    while (outcome := attempt.poll(POLL_S)) is None:
        pass
    return outcome


def resident_mb(pid: int | None) -> float:
    """Return the resident memory of a process in MB (10^6 bytes) as stated in /proc; 0 on hosts without /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run(job: Job, results: Connection) -> None:
    """Main function of the process of an attempt: execute the job, and send the outcome to the parent process."""
    end_with_parent()
    results.send(Outcome("begun"))  # the time limit counts from here, without the start of the process
    results.send(attempted(job))
    results.close()


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the summary of the run in a folder; None if the run is not finished.

    If a file of a finished run is missing or damaged, log a warning with the file name, and return None, so that the
    run is repeated.
    """
    manifest = read_manifest(folder)
    if manifest is None or manifest["status"] not in FINISHED:
        return None
    try:
        require_sound(folder, [SUMMARY, *manifest["files"]], "the run is repeated")
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except DataError as error:
        LOG.warning("%s", error)
        return None
    return summary


def attempted(job: Job) -> Outcome:
    """Execute a job in this process and return the outcome."""
    if finished(job.folder) is not None:  # another process has already finished the run
        return Outcome("done")
    damaged = RunFolder.status(job.folder) in FINISHED
    try:
        refuse(unaffordable(Outlook(job.scenario, job.data_dir)))  # the study may come from a host with more memory
        summary = play(
            job.scenario,
            job.name,
            job.folder,
            data_dir=job.data_dir,
            timing_only=job.timing_only,
            force=damaged,
            track=trackers_of(job.track),
            study=job.study,
            store=job.store,
        ).summary
    except FednetError as error:
        return Outcome("failed", one_line(error), traceback.format_exc())
    except KeyboardInterrupt:
        return Outcome("stopped")
    except BaseException as error:
        return Outcome("failed", described(error), traceback.format_exc())
    if not summary["verified"]:
        return Outcome("failed", f"conservation laws are broken: {summary['broken_laws']}")
    return Outcome("done")


WAIT_S = 0.2


class Queue:
    """Queue of jobs; a group's first job ends before its other jobs start, so that they reuse its training results."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs, self._waiting = jobs, list(range(len(jobs)))
        self._led, self._leading = {""}, set[str]()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self) -> int | None:
        """Return the index of the next job that may start; None if all waiting jobs need another job to end first."""
        for place in self._waiting:
            group = self._jobs[place].group
            if group in self._led or group not in self._leading:
                self._waiting.remove(place)
                self._leading.add(group)
                return place
        return None

    def ended(self, place: int) -> None:
        """Record that the job at index `place` has ended."""
        self._led.add(self._jobs[place].group)


class Event(NamedTuple):
    """The start or the end of the job at index `place`; `outcome` is None for a start."""

    place: int
    outcome: Outcome | None


Runner = Callable[[Sequence[Job]], Generator[Event, None, None]]
"""Function that executes jobs, and yields an event whenever a job starts or ends."""


def runner_of(scenarios: Iterable[Scenario | None], workers: int | None, ray: bool | str) -> Runner:
    """Return the function that executes jobs: on Ray, in separate processes, or in this process.

    Jobs are executed in this process if other processes cannot import the classes of a scenario.
    """
    if ray:
        return lambda jobs: run_on_ray(jobs, ray if isinstance(ray, str) else None, workers)
    if any(map(_lives_here, scenarios)):
        return run_here
    return lambda jobs: run_locally(jobs, workers or os.cpu_count() or 1)


def _lives_here(part: object) -> bool:
    """Return True if only this process can import the class of `part`, or of an object inside `part`."""
    made_by = part if isinstance(part, type) or callable(part) else type(part)
    if getattr(made_by, "__module__", "") == "__main__" or "<" in getattr(made_by, "__qualname__", ""):
        return True
    if type(part).__module__ == "__main__":
        return True
    if isinstance(part, Component):
        return any(_lives_here(getattr(part, name)) for name in type(part).model_fields)
    return isinstance(part, list | tuple) and any(map(_lives_here, part))


def run_here(jobs: Sequence[Job]) -> Generator[Event, None, None]:
    """Execute jobs one by one in this process, for scenarios with objects that no other process could import.

    Limits on time and memory are ignored, because they can be enforced only on separate processes.
    """
    for place, job in enumerate(jobs):
        yield Event(place, None)
        started_s = time.monotonic()
        outcome = attempted(job)
        if outcome.status == "stopped":
            raise KeyboardInterrupt
        yield Event(place, replace(outcome, host_s=time.monotonic() - started_s))


def run_locally(jobs: Sequence[Job], workers: int) -> Generator[Event, None, None]:
    """Execute jobs on this machine, each in its own process, and at most `workers` at a time.

    If the generator is closed early, the running jobs are stopped. A stopped job stores its training results, and can
    continue later.
    """
    waiting, running = Queue(jobs), dict[int, Attempt]()
    try:
        while waiting or running:
            while len(running) < workers and (place := waiting.next()) is not None:
                with interrupts_later():
                    running[place] = Attempt(jobs[place])
                yield Event(place, None)
            connection.wait([attempt.results for attempt in running.values()], POLL_S)
            for event in _ended(running):
                waiting.ended(event.place)
                yield event
    finally:
        for attempt in running.values():
            attempt.stop()
        while running:
            connection.wait([attempt.results for attempt in running.values()], POLL_S)
            list(_ended(running))


def _ended(running: dict[int, Attempt]) -> Generator[Event, None, None]:
    for place, attempt in list(running.items()):
        outcome = attempt.poll()
        if outcome is not None:
            del running[place]
            yield Event(place, outcome)


def run_on_ray(jobs: Sequence[Job], address: str | None, workers: int | None) -> Generator[Event, None, None]:
    """Execute jobs on Ray, each with one CPU and with the memory and the GPUs in the limits of the job.

    Ray does not report when a job starts, so a job counts as started when it is submitted. Each Ray task supervises a
    separate process, so that limits have the same meaning as on a single machine.

    Args:
        jobs: the jobs; their folders must be on a file system that the whole cluster shares.
        address: address of an existing cluster, `auto` for the cluster on this machine; None starts a cluster here.
        workers: number of CPUs of a cluster that is started here; None for all CPUs.

    Raises:
        FednetError: Ray is not installed, or the cluster cannot be reached.
    """
    ray = connected("--ray", address, workers)
    try:
        refs, waiting = dict[Any, int](), Queue(jobs)
        while waiting or refs:
            while (place := waiting.next()) is not None:
                limits = jobs[place].limits
                memory = {} if limits.memory_mb is None else {"memory": limits.memory_mb * 1e6}
                task = ray.remote(complete).options(num_cpus=1, num_gpus=limits.gpus, max_retries=0, **memory)
                refs[task.remote(jobs[place])] = place
                yield Event(place, None)
            ended, _ = ray.wait(list(refs), timeout=WAIT_S)
            for ref in ended:
                waiting.ended(refs[ref])
                yield Event(refs.pop(ref), _outcome(ray, ref))
    finally:
        ray.shutdown()


def _outcome(ray: Any, ref: Any) -> Outcome:
    try:
        outcome: Outcome = ray.get(ref)
    except ray.exceptions.RayError as error:
        return Outcome("failed", f"Ray: {one_line(error, 300)}")
    return outcome

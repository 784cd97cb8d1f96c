"""Execution of the runs of a study: in parallel processes, on a Ray cluster, or one by one in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from multiprocessing import connection
from typing import Any, NamedTuple

from fednet_emu.component.component import Component
from fednet_emu.host import interrupts_later
from fednet_emu.learning.engines.ray.cluster import connected
from fednet_emu.scenario.model import Scenario
from fednet_emu.study.attempt import POLL_S, Attempt, Job, Outcome, attempted, complete

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
    """Return True if `part`, or an object inside it, has a class that only this process can import."""
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
        return Outcome("failed", f"Ray: {' '.join(str(error).split())[:300]}")
    return outcome

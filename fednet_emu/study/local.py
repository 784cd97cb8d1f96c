"""Cells on this machine: so many at a time, each in a process of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing import connection
from typing import NamedTuple

from fednet_emu.study.attempt import POLL_S, Attempt, CellJob, Outcome


class News(NamedTuple):
    """What has become of the task at `place`; the outcome is None when it has just started."""

    place: int
    outcome: Outcome | None


def run_locally(tasks: Sequence[CellJob], workers: int) -> Generator[News, None, None]:
    """Run tasks, `workers` at a time; the news come as they happen.

    Whoever closes the iterator early has the running cells stopped; each leaves a checkpoint to go on from.
    """
    waiting, running = deque(enumerate(tasks)), dict[int, Attempt]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                place, task = waiting.popleft()
                running[place] = Attempt(task)
                yield News(place, None)
            connection.wait([attempt.results for attempt in running.values()], POLL_S)
            yield from _ended(running)
    finally:
        for attempt in running.values():
            attempt.stop()
        while running:
            connection.wait([attempt.results for attempt in running.values()], POLL_S)
            list(_ended(running))


def _ended(running: dict[int, Attempt]) -> Generator[News, None, None]:
    for place, attempt in list(running.items()):
        outcome = attempt.poll()
        if outcome is not None:
            del running[place]
            yield News(place, outcome)

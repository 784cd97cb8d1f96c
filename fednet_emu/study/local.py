"""Run cells on this machine, several at a time, each in its own process."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing import connection
from typing import NamedTuple

from fednet_emu.study.attempt import POLL_S, Attempt, CellJob, Outcome


class News(NamedTuple):
    """The outcome of the task number `place`, counted from 0; the outcome is None if the task has just started."""

    place: int
    outcome: Outcome | None


def run_locally(tasks: Sequence[CellJob], workers: int) -> Generator[News, None, None]:
    """Run tasks, `workers` at a time, and yield news when a task starts or ends.

    Closing the generator early stops the running cells; each saves a checkpoint from which it can continue later.
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

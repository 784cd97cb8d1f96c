"""The pool of worker processes, which train stacks of jobs for all runs of the current process.

An order is a request to a worker to train a stack of jobs. A worker has up to two orders at a time, so that it need not
wait for the next one. The main process trains stacks that no worker has, while it would wait for workers. The results
of an order are written only to memory of this order, so that another worker can repeat the order if the worker dies.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from selectors import EVENT_READ, DefaultSelector
from typing import Any, final

from numpy.typing import NDArray

from fednet_emu.errors import FednetError
from fednet_emu.host import Beside, clean_context, interrupts_kept_here
from fednet_emu.learning.engines.trainer import TrainReport
from fednet_emu.learning.engines.workers.memory import Memory
from fednet_emu.learning.engines.workers.worker import Order, serve
from fednet_emu.learning.graph.cohort import Columns
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.learning.models.flat import FlatModel

_AT_ONCE = 2
_DEATHS = 3


@final
@dataclass(eq=False)
class Call:
    """A request (order) to a worker process to train a stack of jobs, and the results."""

    owner: object
    jobs: Sequence[ResolvedJob] | Columns
    order: Order
    arrays: list[Any]
    results: NDArray[Any]
    report: TrainReport | str = "not done"
    done: bool = False
    deaths: int = 0

    @property
    def model(self) -> FlatModel:
        return self.jobs.model if isinstance(self.jobs, Columns) else self.jobs[0].job.model

    @property
    def single(self) -> Sequence[ResolvedJob]:
        return self.jobs.jobs() if isinstance(self.jobs, Columns) else self.jobs

    def of(self, resolved: ResolvedJob) -> Call:
        """Replace the only job of the call by `resolved`, which is the same job resolved again. Return the call."""
        self.jobs = [resolved]
        return self


@final
class Pool:
    """A set of worker processes, with the memory that they share with the main process."""

    def __init__(self) -> None:
        self.memory, self.numbers = Memory(), count(1)
        self._workers: list[_Worker] = []
        self._waiting: deque[Call] = deque()
        self._selector = DefaultSelector()  # registers a worker once, not in each call as `connection.wait`

    def warm_up(self) -> None:
        context = clean_context(serve.__module__)
        if context.get_start_method() == "forkserver":
            from multiprocessing.forkserver import ensure_running

            with interrupts_kept_here():
                ensure_running()

    def start(self, workers: int) -> None:
        while len(self._workers) < workers:
            worker = _Worker(self.memory)
            self._workers.append(worker)
            self._selector.register(worker.process.connection, EVENT_READ, worker)

    def give(self, call: Call, workers: int) -> None:
        """Append a call to the queue, for one of the first `workers` worker processes, or for `next_of`."""
        self._waiting.append(call)
        self._receive(0)
        self._deal(workers)

    def next_of(self, calls: Sequence[Call], workers: int) -> Call:
        """Return the first call that is done; if there is none, the first one that no worker has, or else wait.

        A call that is not done is taken out of the queue, unless a worker has died while running it. A `FednetError` is
        raised if workers have repeatedly died while running a call.
        """
        timeout_s: float | None = 0
        while True:
            self._receive(timeout_s)
            self._deal(workers)
            for call in calls:
                if call.done:
                    return call
            for call in self._waiting:
                if call in calls and not call.deaths:
                    self._waiting.remove(call)
                    return call
            timeout_s = None

    def drop(self, owner: object) -> None:
        """Drop the pending calls of the engine `owner`, and terminate the workers that run calls of this engine."""
        self._waiting = deque(call for call in self._waiting if call.owner is not owner)
        for worker in [its for its in self._workers if any(call.owner is owner for call in its.calls)]:
            self._remove(worker)
            worker.process.dismiss(at_once=True)
            worker.process.end()
            self._waiting.extendleft(call for call in reversed(worker.calls) if call.owner is not owner)

    def _deal(self, workers: int) -> None:
        self.start(workers)
        while self._waiting:
            worker = min(self._workers[:workers], key=lambda its: len(its.calls))  # in a tie, the first worker
            if len(worker.calls) == _AT_ONCE or (worker.calls and len(self._waiting) == 1):
                return
            worker.take(self._waiting.popleft())

    def _receive(self, timeout_s: float | None) -> None:
        """Receive the reports of workers, and replace dead workers."""
        for ready, _ in self._selector.select(timeout_s):
            worker = ready.data
            try:
                report = worker.process.connection.recv()
            except (EOFError, OSError):
                self._replace(worker)
            else:
                call = worker.calls.popleft()
                call.report, call.done, call.arrays = report, True, []

    def _replace(self, dead: _Worker) -> None:
        how = dead.process.death()
        self._remove(dead)
        dead.process.connection.close()
        if dead.calls:
            dead.calls[0].deaths += 1
        if dead.calls and dead.calls[0].deaths >= _DEATHS:
            what = f"a process that trains {how}, {_DEATHS} times at the same jobs"
            raise FednetError(f"training.workers: {what}; give fewer workers, or 1")
        self._waiting.extendleft(reversed(dead.calls))

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._selector.unregister(worker.process.connection)


class _Worker:
    """A worker process, and the calls that it runs one after the other."""

    def __init__(self, memory: Memory) -> None:
        self.process = Beside(clean_context(serve.__module__), serve, memory, daemon=True)
        self.calls: deque[Call] = deque()

    def take(self, call: Call) -> None:
        """Send a call to the worker. If the worker is dead, this is detected later, when its report is received."""
        self.calls.append(call)
        with suppress(OSError):
            self.process.connection.send_bytes(pickle.dumps(tuple(call.order)))


def pool() -> Pool:
    """Return the pool of worker processes that belongs to the current process."""
    return _pool_of(os.getpid())


@cache
def _pool_of(_process: int) -> Pool:
    return Pool()

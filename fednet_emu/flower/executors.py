"""Execution of `ClientApp`s, either one after the other in this process, or in parallel in worker processes."""

from __future__ import annotations

import logging
import multiprocessing
from collections import deque
from contextlib import ExitStack
from functools import cache
from multiprocessing import connection
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from typing import Any, NamedTuple, final

import torch
from flwr.clientapp import ClientApp
from threadpoolctl import threadpool_info, threadpool_limits

from fednet_emu.errors import AppFailed, ScenarioError
from fednet_emu.flower.client import App, Done, Result, Task, done
from fednet_emu.flower.host import CLOCKS, app_code
from fednet_emu.flower.versions import OURS, logged
from fednet_emu.host import Beside, clean_context, end_with_parent


@final
class InProcess:
    """Runs the `ClientApp` on each task in this process, before `start` returns.

    Attributes:
        app: the `ClientApp`, set after its import.
    """

    app: ClientApp

    def start(self, task: Task) -> Result:
        """Run the `ClientApp` on a task now; an exception is raised only when the result is requested."""
        try:
            its = done(self.app, task)
        except AppFailed as failed:
            return _raises(failed)
        return lambda: its

    def close(self) -> None:
        """Do nothing, because there are no processes to end."""


class _Outcome(NamedTuple):
    """The result of a task in a worker process, and the level and text of each log record."""

    result: Done | AppFailed
    log: list[tuple[int, str]]


@final
class WorkerProcesses:
    """Worker processes that have imported the app; each task goes to the process with the fewest awaited results.

    The assignment of tasks to processes therefore depends on their order in simulated time, not on the host's speed.

    Args:
        source: the app.
        count: number of processes.

    Raises:
        ScenarioError: the app is given as Python objects, and this process cannot be forked.
    """

    def __init__(self, source: App, count: int) -> None:
        self._source, self._context = source, _context(source)
        self._count = count
        self._workers: list[_Worker] = []

    def start(self, task: Task) -> Result:
        """Start a task in one of the worker processes."""
        if not self._workers:
            self._workers = [_Worker(self._context, self._source) for _ in range(self._count)]
        worker = min(self._workers, key=lambda its: its.awaited)  # ties go to the first worker
        return worker.start(task, self._workers)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.end()


@final
class _Worker:
    """Handle of the main process for a worker process that has imported the app.

    Attributes:
        awaited: number of tasks whose results have not been requested yet.
        connection: the connection to the worker process.
    """

    def __init__(self, context: ForkContext | ForkServerContext | SpawnContext, source: App) -> None:
        self._process = Beside(context, _serve, source, _threads())
        self.connection = self._process.connection
        self.awaited = 0
        self._waiting: deque[tuple[Task, list[_Outcome]]] = deque()
        self._under_way: tuple[Task, list[_Outcome]] | None = None

    def start(self, task: Task, workers: list[_Worker]) -> Result:
        """Queue a task; tasks are sent one at a time, so that no process blocks while it writes to the connection."""
        outcomes: list[_Outcome] = []
        self.awaited += 1
        self._waiting.append((task, outcomes))
        self._go_on()

        @cache
        def outcome() -> Done | AppFailed:
            while not outcomes:
                _receive(workers)
            self.awaited -= 1
            its, log = outcomes.pop()
            for level, text in log:
                OURS.log(level, "%s", text)
            return its

        def result() -> Done:
            its = outcome()
            if isinstance(its, AppFailed):
                raise its
            return its

        return result

    @property
    def busy(self) -> bool:
        """True while the worker process executes a task."""
        return self._under_way is not None

    def receive(self) -> None:
        """Receive the result of the current task, and send the next task."""
        assert self._under_way is not None, "only what is busy sends"
        task, outcomes = self._under_way
        self._under_way = None
        try:
            outcomes.append(self.connection.recv())
        except (EOFError, OSError):
            outcomes.append(self._dead(task))
        self._go_on()

    def _go_on(self) -> None:
        while self._under_way is None and self._waiting:
            self._under_way = self._waiting.popleft()
            try:
                self.connection.send(self._under_way[0])
            except OSError:
                task, outcomes = self._under_way
                self._under_way = None
                outcomes.append(self._dead(task))

    def _dead(self, task: Task) -> _Outcome:
        what = f"its process {self._process.death()} before it had answered"
        return _Outcome(AppFailed(task.where, what), [])

    def dismiss(self) -> None:
        """Ask the process to end; if it is executing a task, kill it."""
        self._process.dismiss(at_once=self.busy)

    def end(self) -> None:
        """Wait until the process has ended."""
        self._process.end()


def _receive(workers: list[_Worker]) -> None:
    """Wait for results of the busy workers, and receive them."""
    busy = {worker.connection: worker for worker in workers if worker.busy}
    for ready in connection.wait(list(busy)):
        busy[ready].receive()  # type: ignore[index]


def _context(source: App) -> ForkContext | ForkServerContext | SpawnContext:
    """Return the multiprocessing context with which worker processes are started.

    Raises:
        ScenarioError: the app is given as Python objects, and this process cannot be forked.
    """
    if source.movable:
        return clean_context(__name__)
    remedy = "give the app as a folder, or leave training.workers out"
    if "fork" not in multiprocessing.get_all_start_methods():
        raise ScenarioError(f"training.workers: this system cannot copy processes, got an app as objects; {remedy}")
    if torch.get_num_threads() > 1:
        what = f"copies of a process cannot use several threads, got an app as objects and {torch.get_num_threads()}"
        raise ScenarioError(f"training.workers: {what}; {remedy}, or leave training.threads out")
    return multiprocessing.get_context("fork")


def _raises(failed: AppFailed) -> Result:
    def result() -> Done:
        raise failed

    return result


Executor = InProcess | WorkerProcesses
"""Runs the `ClientApp` on tasks."""


# ---- in the worker processes -----------------------------------------------------------------------------------------


def _threads() -> tuple[int, int | None]:
    """Return the numbers of intra-op threads of PyTorch and NumPy, which affect the last bits of results."""
    blas = (its["num_threads"] for its in threadpool_info() if its["user_api"] == "blas")
    return torch.get_num_threads(), max(blas, default=None)


class _Collected(logging.Handler):
    """Collects the level and text of each log record."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.log.append((record.levelno, record.getMessage()))


def _serve(tasks: Any, source: App, threads: tuple[int, int | None]) -> None:
    """Main function of a worker process: import the `ClientApp`, and execute tasks until the connection is closed."""
    end_with_parent()
    handler = _Collected()
    OURS.handlers, OURS.propagate = [handler], False
    OURS.setLevel(logging.INFO)
    with ExitStack() as inside:
        inside.enter_context(source.home())
        inside.enter_context(CLOCKS.installed())
        inside.enter_context(logged())
        executor = InProcess()
        unable: AppFailed | None = None
        try:
            with app_code("the import of its modules in another process"):
                executor.app = source.load_client()
        except AppFailed as failed:
            unable = failed
        torch.set_num_threads(threads[0])
        inside.enter_context(threadpool_limits(threads[1], "blas"))
        while True:
            try:
                task = tasks.recv()
            except EOFError:
                return
            handler.log = []
            try:
                result: Done | AppFailed = unable or executor.start(task)()
            except AppFailed as failed:
                result = failed
            tasks.send(_Outcome(result, handler.log))

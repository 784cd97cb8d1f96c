"""Execution of `ClientApp`s on messages, one after the other in this process or in parallel in worker processes.

The state and the random numbers belong to the device, so that results do not depend on the process.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from copy import copy, deepcopy
from functools import cache, partial
from multiprocessing import connection
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from typing import Any, NamedTuple, final

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from threadpoolctl import threadpool_info, threadpool_limits

from fednet_emu.errors import AppFailed, ScenarioError
from fednet_emu.flower.folder import Config
from fednet_emu.flower.host import CLOCKS, NS_PER_S, CurrentFolder, Generators, SimulatedTime, app_code, simulated
from fednet_emu.flower.versions import OURS, RUN_ID, identity, logged
from fednet_emu.host import Beside, clean_context, end_with_parent
from fednet_emu.learning.models.flops import FlopCount

App = Any
"""A Flower app as an algorithm (`FlowerApp`). The class is not imported, because its module imports `running`."""

_KINDS = {"metrics": MetricRecord, "config": ConfigRecord}


class Task(NamedTuple):
    """A message to a device, with all other inputs that the `ClientApp` needs for the reply.

    Attributes:
        where: names of the device and the message, for error messages.
        node: Flower's node ID of the device.
        seed: the 64-bit seed of the global random generators.
        now_ns: simulated time in ns at which the message arrives.
        content: the records of the message.
        node_config: the configuration of the device.
        run_config: the configuration of the run.
        state: the state of the device as a list of plain values, as returned by `records`.
        counts: True if PyTorch counts the floating-point operations.
    """

    where: str
    node: int
    seed: int
    now_ns: int
    message: Message
    content: RecordDict
    node_config: Config
    run_config: Config
    state: list[Any]
    counts: bool


class Done(NamedTuple):
    """The result of a task, as values of plain Python types.

    Attributes:
        reply: the kind and the content of the reply, as returned by `plain`.
        counted: number of floating-point operations; None if operations were not counted.
        slept_s: simulated time in s that the client has spent in `time.sleep`.
        state: the new state of the device as a list of plain values, as returned by `records`.
    """

    reply: tuple[str, Any]
    counted: int | None
    slept_s: float
    state: list[Any]


Result = Callable[[], Done]
"""Function that waits for the result of a task, and raises `AppFailed` if the `ClientApp` fails."""


def done(app: ClientApp, task: Task) -> Done:
    """Run the `ClientApp` on the message of a task, and return the result.

    Raises:
        AppFailed: the `ClientApp` fails.
    """
    slept_s: list[float] = []
    own, state = copy(task.message), content_of(task.state)
    own.content = deepcopy(task.content)  # the app may modify the records of the message
    context = Context(RUN_ID, task.node, dict(task.node_config), state, dict(task.run_config))
    counter = FlopCount() if task.counts else None
    with ExitStack() as inside:
        enter = inside.enter_context
        enter(Generators(task.seed).active())
        enter(CurrentFolder().active())
        enter(identity(task.node))
        enter(simulated(SimulatedTime(lambda: task.now_ns + round(sum(slept_s) * NS_PER_S), slept_s.append)))
        enter(app_code(task.where))
        if counter is not None:
            enter(counter)
        reply = app(own, context)
        if not isinstance(reply, Message):
            raise TypeError(f"a ClientApp must return a flwr.app.Message, got {reply!r}")
    return Done(plain(reply), counter.total if counter else None, sum(slept_s), records(context.state))


# ---- replies and states as values of plain types, which can be stored without code -----------------------------------


def plain(reply: Message) -> tuple[str, Any]:
    """Return a reply as plain values: its kind (`content` or `error`), and its records or its error."""
    if reply.has_content():
        return "content", records(reply.content)
    return "error", (int(reply.error.code), str(reply.error.reason or ""))


def reply_of(kept: Sequence[Any], message: Message) -> Message:
    """Return the reply to `message` from the plain values `kept`, which `plain` has returned."""
    kind, value = kept
    return Message(content_of(value) if kind == "content" else Error(*value), reply_to=message)


def records(content: RecordDict) -> list[Any]:
    """Return records as plain values: the name, kind and content of each record, with arrays as bytes."""
    return [(name, *_record(record)) for name, record in content.items()]


def content_of(kept: Sequence[Any]) -> RecordDict:
    """Return the records that the function `records` has converted to the plain values `kept`."""
    return RecordDict({name: _made(kind, value) for name, kind, value in kept})


def _record(record: Any) -> tuple[str, Any]:
    if isinstance(record, ArrayRecord):
        arrays = [
            (name, array.dtype, list(array.shape), array.stype, _bytes(array.data)) for name, array in record.items()
        ]
        return "arrays", arrays
    kind = "metrics" if isinstance(record, MetricRecord) else "config"
    return kind, [(key, _value(value)) for key, value in record.items()]


def _made(kind: str, value: Sequence[Any]) -> Any:
    if kind == "arrays":
        arrays = {
            name: Array(dtype=dtype, shape=tuple(shape), stype=stype, data=data.tobytes())
            for name, dtype, shape, stype, data in value
        }
        return ArrayRecord(arrays)
    return _KINDS[kind]({key: _restored(its) for key, its in value})


def _bytes(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


def _value(value: Any) -> Any:
    """Return a value of a record, with a NumPy array in place of bytes."""
    if isinstance(value, bytes):
        return _bytes(value)
    return list(map(_value, value)) if isinstance(value, list) else value


def _restored(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return list(map(_restored, value)) if isinstance(value, list) else value


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
            its: Done | AppFailed = done(self.app, task)
        except AppFailed as failed:
            its = failed
        return partial(_delivered, its)

    def close(self) -> None:
        """Do nothing, because there are no processes to end."""


class _Outcome(NamedTuple):
    """The result of a task in a worker process, and the level and text of each message that the task has logged."""

    result: Done | AppFailed
    log: list[tuple[int, str]]


@final
class WorkerProcesses:
    """Worker processes that have imported the app. Each task is sent to the process with the fewest awaited results.

    The assignment of tasks to processes therefore depends on their order in simulated time, not on the host's speed.

    Raises:
        ScenarioError: the app is given as Python objects, and this process cannot be forked.
    """

    def __init__(self, source: App, count: int) -> None:
        self._source, self._context = source, _context(source)
        self._count = count
        self._workers: list[_Worker] = []

    def start(self, task: Task) -> Result:
        """Start a task in one of the worker processes, and return a function that waits for the result."""
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
    """A worker process that has imported the app, as seen from the main process.

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
            return _delivered(outcome())

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
            what = f"its process {self._process.death()} before it had answered"
            outcomes.append(_Outcome(AppFailed(task.where, what), []))
        self._go_on()

    def _go_on(self) -> None:
        """Send the next task, if any. If the process is dead, this is detected when the result is received."""
        if self._under_way is None and self._waiting:
            self._under_way = self._waiting.popleft()
            with suppress(OSError):
                self.connection.send(self._under_way[0])

    def dismiss(self) -> None:
        """Request that the process ends; kill it if it is executing a task."""
        self._process.dismiss(at_once=self.busy)

    def end(self) -> None:
        """Wait until the process has ended."""
        self._process.end()


def _receive(workers: list[_Worker]) -> None:
    """Wait until at least one of the busy workers has results, and receive these results."""
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


def _delivered(its: Done | AppFailed) -> Done:
    if isinstance(its, AppFailed):
        raise its
    return its


Executor = InProcess | WorkerProcesses


# ---- in the worker processes -----------------------------------------------------------------------------------------


def _threads() -> tuple[int, int | None]:
    """Return the numbers of intra-op threads of PyTorch and NumPy, on which the last bits of results depend."""
    blas = (its["num_threads"] for its in threadpool_info() if its["user_api"] == "blas")
    return torch.get_num_threads(), max(blas, default=None)


class _Collected(logging.Handler):
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

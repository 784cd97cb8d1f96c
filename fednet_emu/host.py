"""Control of child processes on the host, and of Python's cyclic garbage collector."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext, SpawnContext
from typing import Any, final


def clean_context(*preload: str) -> ForkServerContext | SpawnContext:
    """Return a multiprocessing context whose new processes share no state with the current process.

    New processes are forked from a fork server that has imported the modules `preload`. Platforms without a fork server
    spawn the processes. The first call in a process determines the modules of the fork server.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return context


@contextmanager
def main_left_out() -> Iterator[None]:
    """Prevent processes that are started inside the `with` block from running the user's script again.

    Running the script again would start its runs again; the processes do not need the script.
    """
    main = sys.modules["__main__"]
    kept: dict[str, Any] = {name: vars(main)[name] for name in ("__spec__", "__file__") if name in vars(main)}
    main.__spec__ = None
    vars(main).pop("__file__", None)
    try:
        yield
    finally:
        vars(main).update(kept)


@contextmanager
def interrupts_kept_here() -> Iterator[None]:
    """Block SIGINT (Ctrl-C) in processes that are started inside the `with` block, and in their child processes.

    A terminal sends SIGINT to all processes at once. The parent process ends its child processes.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # if started inside the block, the tracker would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Delay interrupts until the end of the `with` block, so that no process is left partly started.

    The delayed signals are SIGINT and SIGTERM, if their handlers raise KeyboardInterrupt. A signal mask is not enough,
    because another thread may receive the signal, and Python then interrupts the main thread.
    """
    came, handler = list[int](), signal.default_int_handler
    in_main = threading.current_thread() is threading.main_thread()
    numbers = [its for its in (signal.SIGINT, signal.SIGTERM) if in_main and signal.getsignal(its) is handler]
    for number in numbers:
        signal.signal(number, lambda its, _frame: came.append(its))
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


GRACE_S = 1.0
"""Host time in s that a process has to end on request, before it is killed."""


@final
class Beside:
    """A child process that answers messages, and ends when its parent process ends.

    Args:
        context: the multiprocessing context, which has the start method.
        serve: the child's main function, called with the child's end of the connection and `args`; it must call
            `end_with_parent`.
        args: further arguments of `serve`.
        daemon: True if the child cannot start processes and is terminated when the parent process exits.

    Attributes:
        connection: the parent's end of the connection.
    """

    def __init__(self, context: BaseContext, serve: Callable[..., None], *args: Any, daemon: bool = False) -> None:
        self.connection, theirs = context.Pipe()
        self._process: Any = context.Process(target=serve, args=(theirs, *args), daemon=daemon)  # type: ignore[attr-defined]
        with main_left_out(), interrupts_kept_here():
            self._process.start()
        theirs.close()

    def death(self) -> str:
        """Wait until the process has exited, and return the text with which `ending` describes the exit."""
        self._process.join()
        return ending(self._process.exitcode)

    def dismiss(self, *, at_once: bool) -> None:
        """Kill the process if `at_once`; otherwise close the connection, so that the process ends at its next read."""
        if at_once:
            self._process.kill()
        self.connection.close()

    def end(self) -> None:
        """Wait until a process has exited after `dismiss`; kill the process if it still runs after `GRACE_S`."""
        self._process.join(GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def end_with_parent() -> None:
    """Make the current process end when its parent process ends, and exclude it from terminal interrupts (Ctrl-C)."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def use_batch_scheduling() -> None:
    """Let Linux schedule the current process as a batch process, which has the same share of processor time.

    A batch process that wakes up does not interrupt the process that woke it.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def ending(code: int) -> str:
    """Describe the exit of a process; a negative exit `code` is minus the number of the signal that ended it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}{'; the host may have run out of memory' if -code == signal.SIGKILL else ''}"


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Make Python's cyclic garbage collector run rarely, because reference counts free nearly all objects of a run.

    This also shortens the imports of PyTorch and of the scenario's models by a third, because the imports create a
    million objects.
    """
    before = gc.get_threshold()
    gc.set_threshold(2_000_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def frozen_before() -> Iterator[None]:
    """Exclude the existing objects from garbage collection, unless a caller has frozen objects already.

    Flower 1.x collects garbage for each array that a strategy reads (`ArrayRecord.to_numpy_ndarrays`). Without the
    exclusion, each collection examines all imported modules, which takes half a second.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

"""The host: processes beside the caller's, and Python's cyclic garbage collector."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext, SpawnContext
from typing import Any, final


def clean_context(*preload: str) -> ForkServerContext | SpawnContext:
    """Return the way to start processes that share nothing with this one.

    They are forked from a server that has imported the modules `preload`, or else spawned. The first caller in a
    process decides what its server imports.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return context


@contextmanager
def main_left_out() -> Iterator[None]:
    """Prevent processes that are started inside the `with` block from running the user's script again.

    Running it again would start its runs again; the processes do not need the script.
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
    """Let processes that are started inside the `with` block, and theirs, never notice Ctrl-C, not even as they start.

    A terminal sends it to all processes at once. The one that has started them ends them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would be started inside, and end the blocking
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Let an interrupt that comes inside the `with` block take effect at its end, so that nothing is half started.

    The signals are those that interrupt this process as Ctrl-C does by default; a mask would not keep them from other
    threads, on whose behalf Python interrupts the main thread all the same.
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
"""Host time in s that a process has to end by itself."""


@final
class Beside:
    """A process beside this one that answers messages, and ends with this one.

    Args:
        context: the way to start it.
        serve: its main function, which is given its end of the connection, and `args`; it calls `end_with_parent`.
        args: what else it is given.
        daemon: whether it may not start processes itself, and this one does not wait for it when it ends.

    Attributes:
        connection: this end of the connection.
    """

    def __init__(self, context: BaseContext, serve: Callable[..., None], *args: Any, daemon: bool = False) -> None:
        self.connection, theirs = context.Pipe()
        self._process: Any = context.Process(target=serve, args=(theirs, *args), daemon=daemon)  # type: ignore[attr-defined]
        with main_left_out(), interrupts_kept_here():
            self._process.start()
        theirs.close()

    def death(self) -> str:
        """Say how it has ended."""
        self._process.join()
        return ending(self._process.exitcode)

    def dismiss(self, *, at_once: bool) -> None:
        """Let it end: at once, or when it asks for the next message."""
        if at_once:
            self._process.kill()
        self.connection.close()

    def end(self) -> None:
        """Wait for its end, of which it was told by `dismiss`."""
        self._process.join(GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def end_with_parent() -> None:
    """End this process when the one that has started it ends, and let only that one be interrupted by the terminal."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def ending(code: int) -> str:
    """Say how a process has ended, from its exit code, which is minus the signal that has killed it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}{'; the host may have run out of memory' if -code == signal.SIGKILL else ''}"


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Make Python's cyclic garbage collector run rarely: nearly all objects of a run are freed without it.

    Importing PyTorch and the scenario's models takes a third less time, too: they make a million objects that stay.
    """
    before = gc.get_threshold()
    gc.set_threshold(2_000_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def frozen_before() -> Iterator[None]:
    """Leave what is there at the beginning out of garbage collections, unless a caller has frozen objects already.

    Flower 1.x collects garbage for each array that a strategy reads (`ArrayRecord.to_numpy_ndarrays`), and would look
    through all imported modules each time, which takes half a second.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

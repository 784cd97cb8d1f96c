"""Handling of signals during a run, and restoring of process-wide library settings after a run."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self

from fednet_emu.kernel.clock import Clock

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Handlers of SIGINT and SIGTERM inside a `with` block.

    The first signal stops the run before its next event, the second signal stops the run at once, and further signals
    are ignored. Handlers are installed only in the main thread, and only for signals that the program does not handle.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)  # None for a handler that was not installed by Python
                if handler is signal.default_int_handler or isinstance(handler, signal.Handlers):
                    self._before[number] = signal.signal(number, self._stop)
        return self

    def _stop(self, _number: int, _frame: Any) -> None:
        if self._clock.stopping:
            self.ignore()  # further signals must not interrupt the writing of records
            raise KeyboardInterrupt
        self._clock.stopping = True

    def ignore(self) -> None:
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def __exit__(self, *_error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM inside the `with` block; has no effect in threads other than the main thread."""
    in_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in SIGNALS if in_main and signal.getsignal(number) is not None]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


LOG = logging.getLogger("fednet_emu")

_lock = threading.Lock()
_under_way = 0
_put_back: Callable[[], None]


@contextmanager
def none_left_behind() -> Iterator[None]:
    """Restore the process-wide settings that runs inside the `with` block have changed.

    Each run sets the thresholds of the garbage collector, the number of intra-op threads of torch and BLAS, and the log
    level. Libraries that a run loads add warning filters. If runs in several threads overlap, the first run stores the
    settings and the last run restores them, so that no run restores the settings of another run.
    """
    global _under_way, _put_back  # noqa: PLW0603  (these settings belong to the process)
    with _lock:
        if _under_way == 0:
            _put_back = _kept()
        _under_way += 1
    try:
        yield
    finally:
        with _lock:
            _under_way -= 1
            if _under_way == 0:
                _put_back()


@lru_cache(maxsize=1)
def _blas(_modules: int) -> list[Any]:
    """Return the BLAS libraries of this process. The search is slow; it is repeated only if modules were imported."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _kept() -> Callable[[], None]:
    import torch  # not at the top, as the command line imports this module and must not wait for torch

    collector, threads, level = gc.get_threshold(), torch.get_num_threads(), LOG.level
    filters = warnings.catch_warnings()  # libraries that the run loads add warning filters
    filters.__enter__()
    blas = [(library, library.get_num_threads()) for library in _blas(len(sys.modules))]

    def put_back() -> None:
        gc.set_threshold(*collector)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for library, count in blas:
            if library.get_num_threads() != count:
                library.set_num_threads(count)
        if LOG.level != level:  # setting a level clears the caches of all loggers
            LOG.setLevel(level)
        filters.__exit__(None, None, None)

    return put_back

"""Ctrl-C and termination: a signal ends a run between two events, and its records are then written undisturbed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fednet_emu.kernel.clock import Clock

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Handles SIGINT and SIGTERM during a run.

    Handlers are installed only in the main thread, and only for signals for which the program has no own handler.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[signal.Signals, Any] = {}

    def watch(self) -> None:
        """Install handlers: the first signal stops the run before its next event, a second one at once.

        Further ones do nothing.
        """
        if threading.current_thread() is threading.main_thread():
            ordinary = [number for number in SIGNALS if _is_ordinary(signal.getsignal(number))]
            self._before = {number: signal.signal(number, self._stop) for number in ordinary}

    def _stop(self, _number: int, _frame: Any) -> None:
        if self._clock.stopping:
            self.ignore()  # impatience may not cut off the records
            raise KeyboardInterrupt
        self._clock.stopping = True

    def ignore(self) -> None:
        """Ignore the signals from now on."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Restore the handlers that were installed before `watch`."""
        for number, before in self._before.items():
            signal.signal(number, before)


def _is_ordinary(handler: Any) -> bool:
    """Return whether a handler is one that Python starts with; None means a handler set by non-Python code."""
    return handler is signal.default_int_handler or isinstance(handler, signal.Handlers)


@contextmanager
def graceful(clock: Clock) -> Iterator[Signals]:
    """Handle signals inside the `with` block, and restore the old handlers after it."""
    signals = Signals(clock)
    signals.watch()
    try:
        yield signals
    finally:
        signals.restore()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore the signals inside the `with` block; only in the main thread, where Python handles them."""
    in_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in SIGNALS if in_main and signal.getsignal(number) is not None]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

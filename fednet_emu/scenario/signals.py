"""Ctrl-C and termination: a run ends between two events, and its books are closed undisturbed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fednet_emu.kernel.clock import Clock

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """What the signals do while a run is under way.

    They are left alone in other threads than the main one, and where a program has a handler of its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[signal.Signals, Any] = {}

    def watch(self) -> None:
        """The first signal stops the run before its next event; a second one stops it wherever it is."""
        if threading.current_thread() is threading.main_thread():
            ordinary = [number for number in SIGNALS if _is_ordinary(signal.getsignal(number))]
            self._before = {number: signal.signal(number, self._stop) for number in ordinary}

    def _stop(self, _number: int, _frame: Any) -> None:
        if self._clock.stopping:
            raise KeyboardInterrupt
        self._clock.stopping = True

    def ignore(self) -> None:
        """From now on signals do nothing."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Signals do again what they did before."""
        for number, before in self._before.items():
            signal.signal(number, before)


def _is_ordinary(handler: Any) -> bool:
    """Whether a handler is one that Python starts with; None is one that another language has set."""
    return handler is signal.default_int_handler or isinstance(handler, signal.Handlers)


@contextmanager
def graceful(clock: Clock) -> Iterator[Signals]:
    """Watch signals inside."""
    signals = Signals(clock)
    signals.watch()
    try:
        yield signals
    finally:
        signals.restore()

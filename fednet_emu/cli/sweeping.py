"""The live table of a sweep: how many cells are done, running, failed and waiting, and the time left."""

from __future__ import annotations

import math
import signal
import threading
from types import TracebackType
from typing import Any

from rich.live import Live
from rich.table import Table

from fednet_emu.cli.outcome import ERRORS
from fednet_emu.report.quantities import format_seconds
from fednet_emu.study.sweep import Progress

MOST_NAMED = 8
"""Running cells that the table names."""


class Display:
    """Shows progress: a live table in a terminal, a line for each cell that ends elsewhere, nothing when quiet.

    While it is shown, the request to terminate is an interrupt, so that cells close their books.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = Live(console=ERRORS, transient=True, auto_refresh=False) if self._in_terminal else None
        self._ended = -1
        self._before: Any = None

    @property
    def _in_terminal(self) -> bool:
        return ERRORS.is_terminal and not self._quiet

    def __enter__(self) -> Display:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def __call__(self, progress: Progress) -> None:
        """Show how far the sweep is."""
        ended = len(progress.done) + len(progress.failures)
        left_s = progress.left_s
        if self._live:
            self._live.update(_table(progress, left_s), refresh=True)
        elif not self._quiet and ended != self._ended:
            ERRORS.print(_line(progress, left_s))
        self._ended = ended


def _line(progress: Progress, left_s: float) -> str:
    done, running, failed = len(progress.done), len(progress.running), len(progress.failures)
    left = "" if math.isnan(left_s) else f", about {format_seconds(left_s)} left"
    return f"{done} of {len(progress.cells)} done, {running} running, {failed} failed{left}"


def _table(progress: Progress, left_s: float) -> Table:
    table = Table("done", "running", "failed", "waiting", "time left", box=None, pad_edge=False)
    waiting = len(progress.left) - len(progress.running)
    counts = (len(progress.done), len(progress.running), len(progress.failures), waiting)
    table.add_row(*map(str, counts), "" if math.isnan(left_s) else format_seconds(left_s))
    whole = Table.grid()
    whole.add_row(table)
    for place in sorted(progress.running)[:MOST_NAMED]:
        whole.add_row(f"  {progress.cells[place].label}")
    for place, reason in sorted(progress.failures.items())[-MOST_NAMED:]:
        whole.add_row(f"  failed: {progress.cells[place].label}: {reason}")
    return whole

"""Show the progress of a sweep: how many cells are done, running, failed and waiting, and the estimated time left."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.table import Table

from fednet_emu.api.screen import screen
from fednet_emu.report.quantities import format_seconds
from fednet_emu.study.sweep import Progress

MOST_NAMED = 8
"""Largest number of running cells, and of failed ones, that the table lists by name."""


@contextmanager
def live(progress: bool | None) -> Iterator[Callable[[Progress], None]]:
    """Provide a function that shows the progress of a sweep: a live table in a terminal, else a line per ended cell.

    Inside the `with` block SIGTERM acts like an interrupt (Ctrl-C), so that running cells write their records.

    Args:
        progress: whether to show the progress; None shows it only in a terminal or a notebook.
    """
    where = screen(progress)
    with _terminated_as_interrupted():
        if where is None:
            yield lambda _progress: None
            return
        started_s, ended = time.monotonic(), -1
        with where.bar(as_table=True) as bar:

            def show(sweep: Progress) -> None:
                nonlocal ended
                left_s = _left_s(sweep, time.monotonic() - started_s)
                now = len(sweep.done) + len(sweep.failures)
                if bar.every_s < 1.0 or now != ended:
                    bar.show(_line(sweep, left_s), now / max(len(sweep.cells), 1), _table(sweep, left_s))
                ended = now

            yield show


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if is_main else None
    if before is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _left_s(progress: Progress, elapsed_s: float) -> float:
    """Estimate the host time in seconds until the last cell ends, at the pace so far; NaN until a first cell ends."""
    finished = len(progress.host_s)
    return elapsed_s / finished * len(progress.left) if finished else math.nan


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

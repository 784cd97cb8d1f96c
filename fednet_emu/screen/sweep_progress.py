"""How far a sweep is: how many cells are done, running, failed and waiting, and the time left."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.table import Table

from fednet_emu.analysis.quantities import format_seconds
from fednet_emu.errors import visible
from fednet_emu.screen.screen import screen
from fednet_emu.study.sweep import Progress

MOST_NAMED = 8
"""Running cells that the table names."""


@contextmanager
def live(progress: bool | None) -> Iterator[Callable[[Progress], None]]:
    """What is called with news of a sweep: a live table in a terminal, a line for each cell that ends elsewhere.

    While it is shown, the request to terminate is an interrupt, so that cells close their books.
    """
    where = screen(progress)
    with _terminated_as_interrupted():
        if where is None:
            yield lambda _progress: None
            return
        ended = -1
        with where.bar(as_table=True) as bar:

            def show(sweep: Progress) -> None:
                nonlocal ended
                left_s = sweep.left_s
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
        whole.add_row(visible(f"  {progress.cells[place].label}"))
    for place, reason in sorted(progress.failures.items())[-MOST_NAMED:]:
        whole.add_row(visible(f"  failed: {progress.cells[place].label}: {reason}"))
    return whole

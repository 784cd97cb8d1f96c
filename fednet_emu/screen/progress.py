"""Show the progress of runs, traces and sweeps in a terminal, in a notebook, or as lines of text in a log file."""

from __future__ import annotations

import html
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from fednet_emu.analysis.quantities import format_bits, format_seconds
from fednet_emu.errors import visible
from fednet_emu.screen.console import PlainConsole

if TYPE_CHECKING:
    from fednet_emu.federation.federation import Federation
    from fednet_emu.federation.stop import Stop
    from fednet_emu.study.sweep import Sweep

# ---- displays --------------------------------------------------------------------------------------------------------


class Bar(NamedTuple):
    """A display of progress, which may be a progress bar, a table, or lines of text."""

    every_s: float
    """Minimum time between two updates, in seconds of host time."""
    show: Callable[[str, float, Table | None], None]
    """Function that shows a line of text and the completed fraction (0 to 1). If a table is given and the display
    supports tables, only the table is shown."""


@contextmanager
def bar(progress: bool | None, *, as_table: bool = False) -> Iterator[Bar | None]:
    """Context manager that provides a display in a terminal, in a notebook, or as text, and removes it at the end.

    Args:
        progress: True to show progress; False to provide None; None to show it only in a terminal or a notebook.
        as_table: True if a terminal shows a table instead of a bar.
    """
    console = PlainConsole(stderr=True)
    if not (console.is_terminal or console.is_jupyter if progress is None else progress):
        yield None
    elif console.is_jupyter:  # one output of the notebook cell, which is updated in place; no widgets are needed
        from IPython import display

        page: Any = display
        handle = page.display(page.HTML("starting"), display_id=True)
        markup = "<progress value='{:.3f}'></progress> <code>{}</code>"
        try:
            yield Bar(0.25, lambda text, part, _: handle.update(page.HTML(markup.format(part, html.escape(text)))))
        finally:
            handle.update(page.HTML(""))
    elif not console.is_terminal:
        yield Bar(10.0, lambda text, _part, _table: console.print(text))
    elif as_table:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            yield Bar(0.0, lambda text, _, table: live.update(text if table is None else table, refresh=True))
    else:
        columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)
        with Progress(*columns, console=console, transient=True) as shown:
            task = shown.add_task("starting", total=1.0)
            yield Bar(0.1, lambda text, part, _: shown.update(task, completed=part, description=text))


# ---- runs and traces -------------------------------------------------------------------------------------------------


@contextmanager
def _now_and_then(progress: bool | None) -> Iterator[Callable[[Callable[[], tuple[str, float]]], None] | None]:
    """Context manager that provides a function for updates of a display, or None if nothing is displayed.

    The argument of the provided function is a function that returns the text and the completed fraction. It is called
    only if the minimum time since the last update has passed.
    """
    shown_s = time.monotonic()
    with bar(progress) as display:

        def show(state: Callable[[], tuple[str, float]]) -> None:
            nonlocal shown_s
            now_s = time.monotonic()
            if display is not None and now_s - shown_s >= display.every_s:
                shown_s = now_s
                display.show(*state(), None)

        yield None if display is None else show


@contextmanager
def run_shown(stop: Stop, progress: bool | None) -> Iterator[Callable[[Federation], None] | None]:
    """Context manager that provides an observer of a run, which shows its progress at the end of each round.

    It provides None if nothing is displayed.

    Args:
        progress: True to show progress, False to hide it; None shows progress only in a terminal or a notebook.
    """
    latest = deque[tuple[float, float]](maxlen=20)  # host times and completed shares; known training takes no time

    def state(fed: Federation) -> tuple[str, float]:
        text, part = _run_state(fed, stop)
        now_s = time.monotonic()
        latest.append((now_s, part))
        since_s, since = latest[0]
        if part > since:
            left_s = (now_s - since_s) * (1.0 - part) / (part - since)
            text += f"  at most about {format_seconds(left_s)} left"
        return text, part

    with _now_and_then(progress) as show:
        yield None if show is None else lambda fed: show(lambda: state(fed))


def _run_state(fed: Federation, stop: Stop) -> tuple[str, float]:
    """Return the round, simulated time, bits and accuracy as text, and the completed fraction (0 to 1) of the run.

    The fraction refers to the stop condition that is closest to being met.
    """
    accuracy = "" if fed.accuracy is None else f"  accuracy {fed.accuracy:.3f}"
    sent_bit, now_s = sum(fed.ledger.sent_bit), fed.clock.now_s
    limits = (
        (fed.round, stop.rounds),
        (now_s, stop.simulated_s),
        (sent_bit, stop.bits),
        (fed.ledger.spent_j(fed.clock.now), stop.energy_j),
    )
    part = max((reached / limit for reached, limit in limits if limit is not None), default=0.0)
    of = "" if stop.rounds is None else f" of {stop.rounds}"
    text = f"round {fed.round}{of}  t = {format_seconds(now_s)}  {format_bits(sent_bit)}{accuracy}"
    return text, min(max(part, 0.0), 1.0)


@contextmanager
def trace_shown(end_ns: float, progress: bool | None) -> Iterator[Callable[[int, int], None] | None]:
    """Context manager that provides a function to show the progress of writing a trace, or None if nothing is shown.

    The arguments of the function are the processed simulated time in ns and the number of activities in the trace.
    """
    with _now_and_then(progress) as show:

        def state(now_ns: int, slices: int) -> tuple[str, float]:
            return f"t = {format_seconds(now_ns / 1e9)}  {slices} slices", min(now_ns / end_ns, 1.0) if end_ns else 1.0

        yield None if show is None else lambda now_ns, slices: show(lambda: state(now_ns, slices))


# ---- sweeps ----------------------------------------------------------------------------------------------------------

MOST_NAMED = 8
"""Maximum number of active runs of a sweep, and maximum number of failed runs, that the table lists."""


@contextmanager
def sweep_shown(progress: bool | None) -> Iterator[Callable[[Sweep], None]]:
    """Context manager that shows a sweep as a live table in a terminal, or elsewhere as one line for each ended run.

    Inside the `with` block, a termination request (SIGTERM) acts as an interrupt, so that runs write their records.
    """
    ended = -1
    with _terminated_as_interrupted(), bar(progress, as_table=True) as display:

        def show(sweep: Sweep) -> None:
            nonlocal ended
            now = len(sweep.done) + len(sweep.failures)
            if display is not None and (display.every_s < 1.0 or now != ended):
                left = "" if math.isnan(left_s := sweep.left_s) else format_seconds(left_s)
                text = f"{len(sweep.done)} of {len(sweep.runs)} done, {len(sweep.running)} running"
                text += f", {len(sweep.failures)} failed" + (f", about {left} left" if left else "")
                display.show(text, now / max(len(sweep.runs), 1), _table(sweep, left))
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


def _table(sweep: Sweep, left: str) -> Table:
    table = Table("done", "running", "failed", "waiting", "time left", box=None, pad_edge=False)
    waiting = len(sweep.left) - len(sweep.running)
    counts = (len(sweep.done), len(sweep.running), len(sweep.failures), waiting)
    table.add_row(*map(str, counts), left)
    whole = Table.grid()
    whole.add_row(table)
    for place in sorted(sweep.running)[:MOST_NAMED]:
        whole.add_row(visible(f"  {sweep.runs[place].label}"))
    for place, reason in sorted(sweep.failures.items())[-MOST_NAMED:]:
        whole.add_row(visible(f"  failed: {sweep.runs[place].label}: {reason}"))
    return whole

"""Show the progress of runs and sweeps: in a terminal, in a notebook, or as lines of text, as in a log file."""

from __future__ import annotations

import html
import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
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

# ---- where it is shown -----------------------------------------------------------------------------------------------


class Bar(ABC):
    """A display of progress.

    Attributes:
        every_s: shortest useful time between two updates, in seconds of host time.
    """

    every_s: float

    @abstractmethod
    def show(self, text: str, part: float, table: Table | None = None) -> None:
        """Show the progress.

        Args:
            text: a line of text.
            part: the part that is done, from 0 to 1.
            table: a longer form of the text, for displays with enough room.
        """


class Screen:
    """The place where progress is shown: a terminal, a notebook, or plain text otherwise."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def bar(self, *, as_table: bool = False) -> Iterator[Bar]:
        """Show a progress bar, or a table, inside the `with` block, and remove it at the end."""
        if self._console.is_jupyter:
            shown = _InNotebook()
            try:
                yield shown
            finally:
                shown.clear()
        elif not self._console.is_terminal:
            yield _AsText(self._console)
        elif as_table:
            with Live(console=self._console, transient=True, auto_refresh=False) as live:
                yield _AsTable(live)
        else:
            columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)
            with Progress(*columns, console=self._console, transient=True) as progress:
                yield _InTerminal(progress)


def screen(progress: bool | None) -> Screen | None:
    """Return where to show progress; None if it is not shown.

    Args:
        progress: whether to show progress; None shows it only in a terminal or a notebook.
    """
    console = PlainConsole(stderr=True)
    wanted = console.is_terminal or console.is_jupyter if progress is None else progress
    return Screen(console) if wanted else None


class _InTerminal(Bar):
    every_s = 0.1

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=1.0)

    def show(self, text: str, part: float, table: Table | None = None) -> None:
        self._progress.update(self._task, completed=part, description=text)


class _AsTable(Bar):
    every_s = 0.0

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, text: str, part: float, table: Table | None = None) -> None:
        self._live.update(text if table is None else table, refresh=True)


class _AsText(Bar):
    every_s = 10.0

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, text: str, part: float, table: Table | None = None) -> None:
        self._console.print(text)


class _InNotebook(Bar):
    """Shows progress in one output of the notebook cell, which is updated in place; no widgets are needed."""

    every_s = 0.25

    def __init__(self) -> None:
        from IPython import display

        page: Any = display
        self._page = page.HTML
        self._handle = page.display(self._page("starting"), display_id=True)

    def show(self, text: str, part: float, table: Table | None = None) -> None:
        self._handle.update(self._page(f"<progress value='{part:.3f}'></progress> <code>{html.escape(text)}</code>"))

    def clear(self) -> None:
        self._handle.update(self._page(""))


# ---- runs ------------------------------------------------------------------------------------------------------------


@contextmanager
def _now_and_then(progress: bool | None) -> Iterator[Callable[[Callable[[], tuple[str, float]]], None] | None]:
    """Provide what shows a text and the part that is done, both computed only when it is time; None if nothing is."""
    where = screen(progress)
    if where is None:
        yield None
        return
    shown_s = time.monotonic()
    with where.bar() as bar:

        def show(state: Callable[[], tuple[str, float]]) -> None:
            nonlocal shown_s
            now_s = time.monotonic()
            if now_s - shown_s >= bar.every_s:
                shown_s = now_s
                bar.show(*state())

        yield show


@contextmanager
def run_shown(stop: Stop, progress: bool | None) -> Iterator[Callable[[Federation], None] | None]:
    """Provide an observer that shows the progress of a run at the end of each round; None if nothing is shown.

    Args:
        stop: the conditions that end the run.
        progress: whether to show the progress; None shows it only in a terminal or a notebook.
    """
    with _now_and_then(progress) as show:
        yield None if show is None else lambda fed: show(lambda: (line(fed), progress_of(fed, stop)))


@contextmanager
def trace_shown(end_ns: float, progress: bool | None) -> Iterator[Callable[[int, int], None] | None]:
    """Provide what shows how far a trace is written, called with the time in ns and the slices; None if nothing is."""
    with _now_and_then(progress) as show:

        def state(now_ns: int, slices: int) -> tuple[str, float]:
            return f"t = {format_seconds(now_ns / 1e9)}  {slices} slices", min(now_ns / end_ns, 1.0) if end_ns else 1.0

        yield None if show is None else lambda now_ns, slices: show(lambda: state(now_ns, slices))


def line(fed: Federation) -> str:
    """Return a line of text with the round, simulated time, bits and accuracy of a running run."""
    accuracy = "" if fed.accuracy is None else f"  accuracy {fed.accuracy:.3f}"
    bits = format_bits(sum(fed.ledger.sent_bit))
    return f"round {fed.round}  t = {format_seconds(fed.clock.now_s)}  {bits}{accuracy}"


def progress_of(fed: Federation, stop: Stop) -> float:
    """Return the progress towards the nearest limit, from 0 to 1; a target accuracy is not taken into account."""
    parts = [
        reached / limit
        for reached, limit in (
            (fed.round, stop.rounds),
            (fed.clock.now_s, stop.simulated_s),
            (sum(fed.ledger.sent_bit), stop.bits),
            (fed.ledger.spent_j(fed.clock.now), stop.energy_j),
        )
        if limit is not None
    ]
    return min(max(parts, default=0.0), 1.0)


# ---- sweeps ----------------------------------------------------------------------------------------------------------

MOST_NAMED = 8
"""Runs under way that the table names."""


@contextmanager
def sweep_shown(progress: bool | None) -> Iterator[Callable[[Sweep], None]]:
    """Provide what shows a sweep: a live table in a terminal, elsewhere a line for each run that ends.

    While it is shown, the request to terminate is an interrupt, so that runs write their records.
    """
    where = screen(progress)
    with _terminated_as_interrupted():
        if where is None:
            yield lambda _sweep: None
            return
        ended = -1
        with where.bar(as_table=True) as bar:

            def show(sweep: Sweep) -> None:
                nonlocal ended
                left_s = sweep.left_s
                now = len(sweep.done) + len(sweep.failures)
                if bar.every_s < 1.0 or now != ended:
                    bar.show(_sweep_line(sweep, left_s), now / max(len(sweep.runs), 1), _table(sweep, left_s))
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


def _sweep_line(sweep: Sweep, left_s: float) -> str:
    done, running, failed = len(sweep.done), len(sweep.running), len(sweep.failures)
    left = "" if math.isnan(left_s) else f", about {format_seconds(left_s)} left"
    return f"{done} of {len(sweep.runs)} done, {running} running, {failed} failed{left}"


def _table(sweep: Sweep, left_s: float) -> Table:
    table = Table("done", "running", "failed", "waiting", "time left", box=None, pad_edge=False)
    waiting = len(sweep.left) - len(sweep.running)
    counts = (len(sweep.done), len(sweep.running), len(sweep.failures), waiting)
    table.add_row(*map(str, counts), "" if math.isnan(left_s) else format_seconds(left_s))
    whole = Table.grid()
    whole.add_row(table)
    for place in sorted(sweep.running)[:MOST_NAMED]:
        whole.add_row(visible(f"  {sweep.runs[place].label}"))
    for place, reason in sorted(sweep.failures.items())[-MOST_NAMED:]:
        whole.add_row(visible(f"  failed: {sweep.runs[place].label}: {reason}"))
    return whole

"""Show progress in a terminal, in a notebook, or as lines of text, for example in a log file."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from fednet_emu.screen.console import PlainConsole


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

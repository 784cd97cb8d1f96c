"""A console that prints text verbatim, so that scenarios cannot insert markup or control characters."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from fednet_emu.errors import visible_lines


class PlainConsole(Console):
    """A console that interprets no markup, breaks no lines, and shows control characters as escapes."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects like `Console`, but make control characters in strings visible."""
        super().print(*map(_shown, objects), **options)

    def out(self, *objects: Any, **options: Any) -> None:
        """Write objects like `Console`, but make control characters in strings visible."""
        super().out(*map(_shown, objects), **options)


def _shown(what: Any) -> Any:
    return visible_lines(what) if isinstance(what, str) else what

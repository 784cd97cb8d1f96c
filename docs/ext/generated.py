"""Write the pages that are made from the code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

SETUP = {"parallel_read_safe": True, "parallel_write_safe": True}
"""What every extension here tells Sphinx of itself."""


def write_page(app: Any, name: str, text: str) -> None:
    """Write a page into the sources of the site if it has changed."""
    path = Path(app.srcdir) / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def writes(app: Any, name: str, page: Callable[[], str]) -> dict[str, bool]:
    """Have Sphinx write a page before it reads the sources; return what the extension tells Sphinx of itself."""
    app.connect("builder-inited", lambda app: write_page(app, name, page()))
    return SETUP

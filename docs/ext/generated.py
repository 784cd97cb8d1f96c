"""Write pages that are generated from the code into the sources of the documentation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

SETUP = {"parallel_read_safe": True, "parallel_write_safe": True}
"""Metadata that each extension of this folder returns to Sphinx."""


def write_page(app: Any, name: str, text: str) -> None:
    """Write the page `name` into the sources of the documentation if its text has changed."""
    path = Path(app.srcdir) / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def writes(app: Any, name: str, page: Callable[[], str]) -> dict[str, bool]:
    """Make Sphinx write the page `name` before it reads the sources; return the metadata of the extension."""
    app.connect("builder-inited", lambda app: write_page(app, name, page()))
    return SETUP

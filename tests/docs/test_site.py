"""The site: its API page has every public name, and its gallery and tables of contents are whole."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import fednet_emu

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*_*.py"))
"""Those that are called `plot_...` are run when the site is built."""


def test_every_public_name_is_on_the_api_page() -> None:
    """What `fednet_emu` offers is documented, and nothing that it does not have."""
    text = (DOCS / "reference/api.md").read_text(encoding="utf-8")

    listed = re.findall(r":: fednet_emu\.(\w+)$", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted([*fednet_emu.__all__, "testing"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_use_the_public_door(path: Path) -> None:
    """An example imports `fednet_emu` as a user would, nothing inside it, and begins with a title."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    ]

    assert "fednet_emu" in modules
    assert not [name for name in modules if str(name).startswith("fednet_emu.")]
    title, rule = (ast.get_docstring(tree) or "").splitlines()[:2]
    assert rule == "=" * len(title)


def test_every_page_is_in_a_table_of_contents() -> None:
    """A page that no toctree names cannot be found."""
    pages = [path for path in DOCS.rglob("*.md") if not {"_build", "gallery", "ext", "settings"} & set(path.parts)]
    named = {
        (path.parent / line.strip()).with_suffix(".md")
        for path in pages
        for block in re.findall(r"```{toctree}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for line in block.splitlines()
    }

    assert len(pages) > 40
    assert {path for path in pages if path not in named} == {DOCS / "index.md"}

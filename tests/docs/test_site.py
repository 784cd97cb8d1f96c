"""The site: its API page has every public name, and its gallery and tables of contents are whole."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from api_examples import EXAMPLES as EXAMPLES_BY_NAME

import fednet_emu

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted((DOCS / "examples").rglob("*_*.py"))
"""Those that are called `plot_...` are run when the site is built."""


def test_every_public_name_is_on_the_api_page() -> None:
    """What `fednet_emu` offers is documented, and nothing that it does not have."""
    text = (DOCS / "reference/api/index.md").read_text(encoding="utf-8")

    listed = re.findall(r"^   fednet_emu\.(\w+)$", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted([*fednet_emu.__all__, "testing"])


def test_every_public_function_has_an_example() -> None:
    """The page of a function shows how it is called: code that Python can read, with keywords that the function has."""
    functions = [name for name in fednet_emu.__all__ if inspect.isfunction(getattr(fednet_emu, name))]

    assert set(functions) <= set(EXAMPLES_BY_NAME)
    for name, code in EXAMPLES_BY_NAME.items():
        function = getattr(fednet_emu, name)
        for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == f"fe.{name}":
                inspect.signature(function).bind(*call.args, **{str(key.arg): 0 for key in call.keywords})


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


WORDS = 900
"""So many words may a page about a method have; tables of results are made from files."""


@pytest.mark.parametrize("path", sorted((DOCS / "methods").glob("*.md")), ids=lambda path: path.stem)
def test_pages_of_methods_are_short(path: Path) -> None:
    """Signs that are no words, as in tables and formulas, do not count."""
    words = [part for part in path.read_text(encoding="utf-8").split() if re.search(r"\w", part)]

    assert len(words) <= WORDS

"""Claims about the whole package that no linter knows; who may import whom, and what is banned, says pyproject.toml."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fednet_emu"
ENGINE = ("kernel", "radio", "devices", "network", "federation", "algorithms", "flower")


def calls(text):
    """The names of functions that a file calls."""
    nodes = ast.walk(ast.parse(text))
    return {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def test_nothing_depends_on_what_differs_from_process_to_process():
    """Hashes of text and addresses of objects differ, so no order and no draw may come from them."""
    files = [path for part in ENGINE for path in (PACKAGE / part).rglob("*.py")]

    assert len(files) > 200
    assert [str(path) for path in files if {"hash", "id"} & calls(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("code", ["sorted(devices, key=lambda k: hash(k))", "x = {id(device): 1}"])
def test_the_claim_can_fail(code):
    """The check above sees what it forbids."""
    assert {"hash", "id"} & calls(code)

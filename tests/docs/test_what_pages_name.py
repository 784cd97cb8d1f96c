"""What the pages name is there: commands and their options, scenarios, files, imports, and keys of YAML."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from fednet_emu.cli.app import app
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.schema import json_schema
from fednet_emu.study.file import StudyFile

ROOT = Path(__file__).parents[2]
WRITTEN = {
    *(f"docs/reference/{name}" for name in ("settings", "api", "commands.md", "tables.md")),
    *("docs/reference/profiles.md", "docs/reference/plausible.md", "docs/project/house.md"),
    *("docs/_build", "docs/gallery"),
}
"""Pages, and folders of pages, that are made when the site is built."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASE.md", "results/reference/README.md")),
    *(
        its
        for its in sorted((ROOT / "docs").rglob("*.md"))
        if not any(str(its).startswith(str(ROOT / w)) for w in WRITTEN)
    ),
]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
NAMES = {path.stem for path in (ROOT / "scenarios").rglob("*.yaml")}
MADE = {"docs/_build/html", "docs/project/house.md", "fednet_emu/library/", "results/reference/NAME/"}
"""What pages tell to be made."""


def blocks(language: str) -> list[tuple[str, str]]:
    """The code of all pages in a language, with the name of the page."""
    fence = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [(page, code) for page, text in TEXTS.items() for code in fence.findall(text)]


def test_commands_have_their_options() -> None:
    """Each `fednet COMMAND --option` of a block of commands, and the scenario that it names."""
    wrong = []
    lines = [(page, line) for page, code in blocks("sh") for line in code.replace("\\\n", " ").splitlines()]
    for page, line in lines:
        for name, rest in re.findall(r"fednet ([a-z]+)([^#|>]*)", line):
            command, words = COMMANDS[name], rest.partition(" -- ")[0].split()
            options = {"--help", *(word for its in command.params for word in (*its.opts, *its.secondary_opts))}
            wrong += [(page, name, word) for word in words if word.startswith("--") and word not in options]
            named = words[0] if words and name in ("run", "sweep", "check", "search", "live") else ""
            wrong += [(page, name, named)] if re.fullmatch(r"[a-z0-9_]+", named) and named not in NAMES else []

    assert len(lines) > 60
    assert wrong == []


def test_files_are_there() -> None:
    """Each path of this repository in a code span."""
    path = re.compile(r"`((?:fednet_emu|tests|docs|scenarios|examples|tools|benchmarks|results/reference)/[\w./-]+)`")
    named = {(page, name) for page, text in TEXTS.items() for name in path.findall(text)}

    assert len(named) > 50
    assert {(page, name) for page, name in named if name not in MADE and not (ROOT / name).exists()} == set()


def test_imports_find_what_they_name() -> None:
    """Each name that a program of a page imports from this package."""
    imports = [
        (page, node.module, alias.name)
        for page, code in blocks("python")
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fednet_emu")
        for alias in node.names
    ]

    assert len(imports) > 10
    assert [its for its in imports if not hasattr(import_module(its[1]), its[2])] == []


def without_required(schema: Any) -> Any:
    """The schema of a file that need not be whole."""
    if isinstance(schema, list):
        return [without_required(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: without_required(its)
        for word, its in schema.items()
        if word != "required" or its in (["kind"], ["include"])
    }


VALID = Draft202012Validator(without_required(json_schema(Scenario)))
VALID_STUDY = Draft202012Validator(without_required(json_schema(StudyFile, (), includes=False)))


WHOLE = [
    (page, code) for page, code in blocks("yaml") if not re.search(r"\.\.\.|my-algorithm", re.sub("#.*", "", code))
]
"""Those that are not cut short, and need no plug-in."""


@pytest.mark.parametrize(("page", "code"), WHOLE)
def test_settings_have_keys_that_there_are(page: str, code: str) -> None:
    """A piece of a scenario, or of a study, has known keys with values of the right kind."""
    content = YAML(typ="safe").load(code)

    valid = VALID_STUDY if content.keys() & {"base", "grid"} else VALID
    assert [(list(each.absolute_path), each.message[:200]) for each in valid.iter_errors(content)] == []

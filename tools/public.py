"""The public names, one a line, in docs/reference/public.txt: `python tools/public.py` writes it anew.

Names of Python stand there with the place and the default of each parameter, keys of scenario and study files with
their defaults. A line that is gone stays, after a minus: the upgrade table of CHANGELOG.md tells what to write now.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

import fednet_emu as fe
import fednet_emu.testing
import fednet_emu.tracking
from fednet_emu.cli.app import app
from fednet_emu.records.ledger import WHERE_USED, Ledger
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.schema import json_schema
from fednet_emu.study.file import StudyFile

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs/reference/public.txt"
IMPORTED = re.compile(r"^from (fednet_emu(?:\.[a-z_]+)+) import ([\w, ]+)$", re.MULTILINE)
"""A line by which a guide imports names."""
PLUG_IN = re.compile(r"^\| `\w+`[^|]*\| `(fednet_emu(?:\.[a-z_]+)+)\.(\w+)`", re.MULTILINE)
"""A row of the table of base classes in the guide to plug-ins."""


def names() -> Iterator[str]:
    """Yield each public name of Python, a function's with each of its parameters, a class's with its members."""
    guides = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/guides").glob("*.md")))
    told = PLUG_IN.findall(guides)
    told += [(module, name) for module, their in IMPORTED.findall(guides) for name in re.split(r",\s*", their)]
    found = {f"fe.{name}": getattr(fe, name) for name in fe.__all__}
    found |= {f"fe.tracking.{name}": getattr(fe.tracking, name) for name in fe.tracking.__all__}
    found |= {
        f"fe.testing.{name}": its for name, its in vars(fe.testing).items() if _is_own(its, name, "fednet_emu.testing")
    }
    found |= {f"{module}.{name}": getattr(import_module(module), name) for module, name in told}
    for name, its in found.items():
        yield from _members(name, its) if inspect.isclass(its) else _called(name, its)


def _is_own(its: Any, name: str, module: str) -> bool:
    return inspect.isroutine(its) and its.__module__ == module and not name.startswith("_")


def _members(name: str, its: type) -> Iterator[str]:
    yield name
    owned = {
        member: vars(owner).get(member)
        for owner in reversed(its.__mro__)
        if owner.__module__.startswith("fednet_emu.") and its is not Scenario  # whose fields are the keys of files
        for member in (*owner.__annotations__, *vars(owner), *_given(owner))
    }
    for member in sorted(member for member in owned if not member.startswith("_") and member != "model_config"):
        yield from _called(f"{name}.{member}", getattr(its, member, None))


def _given(owner: type) -> Iterator[str]:
    """Yield what a class gives its objects: the names behind `self.` in its assignments, if its docstring has them."""
    documented = set(re.findall(r"\w+", inspect.getdoc(owner) or ""))
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(owner)))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield from {node.attr} & documented


def _called(name: str, its: Any) -> Iterator[str]:
    is_called = inspect.isfunction(its) or inspect.ismethod(its)
    yield f"{name}()" if is_called else name
    parameters = inspect.signature(its).parameters.values() if is_called else ()
    for place, what in enumerate(each for each in parameters if each.name != "self"):
        where = "" if what.kind in (what.KEYWORD_ONLY, what.VAR_KEYWORD) else f"{place}: "
        default = "" if what.default is what.empty else f" = {what.default!r}"
        yield f"{name}({where}{what.name}){default}"


def keys() -> Iterator[str]:
    """Yield each key of scenario and study files, after the kind or part that has it, with its default."""
    for file, model in (("scenario", Scenario), ("study", StudyFile)):
        schema = json_schema(model, includes=False)
        parts = {file: schema, **schema["$defs"]}
        for name, part in parts.items():
            for key, its in part.get("properties", {}).items() if not name.endswith((".any", ".partial")) else ():
                default = f" = {json.dumps(its['default'])}" if "default" in its else ""
                if key != "kind":
                    yield f"key {name}: {key}{default}"
                elif "const" in its:
                    yield f"kind {name}"


def commands() -> Iterator[str]:
    """Yield each command, with its arguments and options."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        yield f"fednet {name}"
        for its in command.params:
            words = (*its.opts, *its.secondary_opts) if its.param_type_name == "option" else (its.metavar or its.name,)
            yield from (f"fednet {name} {word}" for word in words)


def records() -> Iterator[str]:
    """Yield each entry of the summary of a run, and each column of the tables of runs and studies."""
    settings = {"stop.rounds": 1}
    run, study = fe.run("quickstart", settings=settings), fe.sweep("quickstart", grid={}, seeds=1, settings=settings)
    yield from (f"summary.json: {name}" for name in run.summary)
    ledger = Ledger()
    ledger.add_phases()
    frames = ledger.frames() | {name: getattr(ledger, name).frame() for name in WHERE_USED} | {"runs": study.runs}
    yield from (f"column {name}: {column}" for name, frame in frames.items() for column in frame)


def today() -> list[str]:
    """All lines of today's code."""
    return sorted({*names(), *keys(), *commands(), *records()})


def gone(now: Iterable[str], before: Iterable[str]) -> list[str]:
    """The names in lines of an earlier list that are no more, whatever their defaults were."""
    return sorted({_name(line.removeprefix("- ")) for line in before} - {_name(line) for line in now})


def _name(line: str) -> str:
    return line.partition(" = ")[0]


if __name__ == "__main__":
    lines = today()
    before = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    LIST.write_text("\n".join([*lines, *(f"- {name}" for name in gone(lines, before)), ""]), encoding="utf-8")

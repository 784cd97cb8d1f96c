"""Write the page of all commands, with their arguments and options, from the help texts of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from generated import writes
from markdown_text import code, escaped, table

from fednet_emu.cli.app import MORE
from fednet_emu.cli.app import app as commands

LEAD = """# Commands

Written from the command line, which says the same with `fednet COMMAND --help`. What all commands have in common is
under [the command line](command-line.md).
"""


def page() -> str:
    """Return the page of all commands as MyST Markdown."""
    known = typer.main.get_command(commands).commands  # type: ignore[attr-defined]
    return "\n".join([LEAD, *(line for name, command in known.items() for line in _section(name, command))])


def _section(name: str, command: Any) -> Iterator[str]:
    example, more = MORE[name]
    yield f"## fednet {name}\n\n{escaped(command.help)} See [more](/{more}.md).\n\n```sh\n{example}\n```\n"
    yield from table(("Argument or option", "Meaning"), (_row(each) for each in command.params))


def _row(parameter: Any) -> tuple[str, str]:
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        return code(parameter.metavar or names[0].upper()), escaped(parameter.help or "")
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.removesuffix(' range').upper()}"
    return ", ".join(code(f"{name}{value}") for name in names), escaped(_meaning(parameter))


def _meaning(parameter: Any) -> str:
    words = parameter.help or ""
    if parameter.show_default and not parameter.is_flag and parameter.default is not None:
        words += f" [default: {parameter.default}]"
    return words


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    return writes(app, "reference/commands.md", page)

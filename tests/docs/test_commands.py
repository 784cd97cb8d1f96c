"""The reference of the commands and of the profiles: nothing that the command line has is missing."""

from __future__ import annotations

import command_reference
import profile_tables
import pytest
import typer

import fednet_emu as fe
from fednet_emu.cli.app import app

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SECTIONS = dict(part.split("\n", 1) for part in command_reference.page().split("\n## fednet ")[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_with_all_it_takes(name: str) -> None:
    """Its first sentence, its example, and a row for each argument and option."""
    section, command = SECTIONS[name], COMMANDS[name]

    assert f"\nfednet {name}" in section
    assert section.count("\n| `") == len(command.params)
    options = [its for parameter in command.params for its in parameter.opts if its.startswith("--")]
    assert [its for its in options if f"`{its}" not in section] == []


def test_an_option_says_what_it_takes_and_its_default() -> None:
    """A value behind its name, a range as it is; a switch has neither."""
    assert "| `--minimise TEXT` | What to rank by" in SECTIONS["best"]
    assert "\\[default: time\\] |" in SECTIONS["best"]
    assert "| `--plots`, `--no-plots` |" in SECTIONS["run"]


def test_every_profile_has_a_row() -> None:
    """Devices, radios and stations, each in the table of its kind."""
    page = profile_tables.page()
    named = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]

    assert named == list(fe.profiles()["profile"])
    assert "| `pi-4b` | 1.39e+10 FLOP/s | - | 5.1 W | 2.7 W |" in page

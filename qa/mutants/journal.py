"""What became of each mutant, kept line by line, and the table made of it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qa.mutants.faults import PACKAGES, ROOT, Mutant

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
"""Mutants that no test can kill, each with the reason."""

Entry = dict[str, Any]
Change = tuple[str, str, str, str]
"""File, function, lines before, lines after."""


class Journal:
    """A file of JSON lines, one for each mutant; a later line counts more than an earlier one.

    Lines of files that have changed since do not count.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: dict[str, Entry] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = json.loads(line)
            if entry["digest"] == _digest(entry["file"]):
                self.entries[entry["mutant"]] = entry

    def add(self, mutant: Mutant, end: Entry) -> Entry:
        """Write down what became of a mutant."""
        where = {"mutant": mutant.name, "file": mutant.file, "function": mutant.function, "line": mutant.line}
        entry = {**where, "digest": _digest(mutant.file), **end}
        self.entries[mutant.name] = entry
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return entry


def _digest(file: str) -> str:
    path = ROOT / file
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def equivalent() -> dict[Change, str]:
    """The mutants listed as equivalent, and why they are."""
    listed = tomllib.loads(EQUIVALENT.read_text())["equivalent"]
    return {(entry["file"], entry["function"], entry["before"], entry["after"]): entry["reason"] for entry in listed}


def end_of(entry: Entry | None) -> str:
    """One word for what became of a mutant."""
    if entry is None:
        return "open"
    if entry["verdict"] == "survived":
        change = (entry["file"], entry["function"], entry["before"], entry["after"])
        return "equivalent" if change in equivalent() else "survived"
    return "killed" if entry["verdict"].startswith("killed") else "no program"


def table(mutants: Iterable[Mutant], journal: Journal) -> str:
    """The table by package, in Markdown."""
    ends = Counter((mutant.package, end_of(journal.entries.get(mutant.name))) for mutant in mutants)
    rows = [_row(package, {end: ends[package, end] for end in ENDS}) for package in PACKAGES]
    total = _row("all", {end: sum(ends[package, end] for package in PACKAGES) for end in ENDS})
    head = [
        "| package | drawn | killed | equivalent | survived | killed, of those not equivalent |",
        "|---|" + 5 * "--:|",
    ]
    return "\n".join([*head, *rows, total])


ENDS = ("killed", "equivalent", "survived")


def _row(name: str, of: dict[str, int]) -> str:
    counted = of["killed"] + of["survived"]
    share = f"{of['killed'] / counted:.1%}" if counted else ""
    return f"| {name} | {sum(of.values())} | {of['killed']} | {of['equivalent']} | {of['survived']} | {share} |"

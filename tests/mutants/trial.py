"""One fault at a time is put into a fork of a process that has all imported and collected, and tests run on it."""

from __future__ import annotations

import gc
import importlib
import mmap
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.faults import ROOT, Mutant
from tests.mutants.lines import Lines

CPU_S, WALL_S = 2.0, 120
"""Limits: of a test, this much processor time and five times its own; of all tests of a mutant, by the clock."""
SURVIVED, KILLED, NOT_IN = 0, 1, 2
"""How the fork ends. Any other end, such as a limit on its time, kills the mutant too."""

Where = tuple[str, str, int]
"""File, qualified name and first line: what tells functions apart."""


def live_functions(files: Iterable[str]) -> dict[Where, list[FunctionType]]:
    """Every function that this process holds, whoever refers to it, once the files are imported."""
    for file in files:
        importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    found: dict[Where, list[FunctionType]] = defaultdict(list)
    for function in gc.get_objects():
        if type(function) is FunctionType:
            found[_where(function.__code__)].append(function)
    return found


def put_in(functions: dict[Where, list[FunctionType]], path: Path, name: str, text: str) -> bool:
    """Give the functions of this name the code that they have in the text of a file; whether there were any."""
    mine = [code for code in _codes(compile(text, path, "exec", dont_inherit=True)) if code.co_qualname == name]
    pairs = [(function, code) for code in mine for function in functions.get(_where(code), ())]
    for function, code in pairs:
        function.__code__ = code
    return bool(pairs)


def _where(code: CodeType) -> Where:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


class Trials:
    """A pytest plugin that, instead of running what was collected, tries the mutants on it.

    Args:
        mutants: what is to be tried.
        lines: which test runs which lines.
        tell: is called with each mutant and what became of it.
    """

    def __init__(self, mutants: Sequence[Mutant], lines: Lines, tell: Callable[[Mutant, dict[str, Any]], None]) -> None:
        self._mutants, self._lines, self._tell = mutants, lines, tell
        self._functions: dict[Where, list[FunctionType]] = {}

    def pytest_collection(self) -> None:
        """Let hypothesis draw the same examples every time, and spend no time on making a failure small."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", deadline=None, derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try every mutant."""
        items = {item.nodeid: item for item in session.items}
        self._functions = live_functions({mutant.file for mutant in self._mutants})
        gc.freeze()
        for mutant in self._mutants:
            chosen = [items[test] for test in self._lines.choice(mutant) if test in items]
            self._tell(mutant, self._tried(mutant, chosen))
        return True

    def _tried(self, mutant: Mutant, items: Sequence[pytest.Item]) -> dict[str, Any]:
        text = mutant.code()
        at = mmap.mmap(-1, 4)
        pid = os.fork()
        if pid == 0:
            os._exit(self._end(mutant, text, items, at))
        _, status, usage = os.wait4(pid, 0)
        end = os.waitstatus_to_exitcode(status)
        by = items[int.from_bytes(at[:4], "little")].nodeid if items and end not in (SURVIVED, NOT_IN) else ""
        verdict = {SURVIVED: "survived", KILLED: "killed", NOT_IN: "not put in"}.get(end, f"killed by signal {-end}")
        before, after = mutant.change(text)
        spent_s = round(usage.ru_utime + usage.ru_stime, 2)
        return {"before": before, "after": after, "verdict": verdict, "by": by, "tests": len(items), "seconds": spent_s}

    def _end(self, mutant: Mutant, text: str, items: Sequence[pytest.Item], at: mmap.mmap) -> int:
        """Put the mutant into this process, the fork, and run the tests until one fails."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            if not put_in(self._functions, ROOT / mutant.file, mutant.function, text):
                return NOT_IN
        except (SyntaxError, ValueError):
            return NOT_IN
        signal.alarm(WALL_S)
        for i, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
            at[:4] = i.to_bytes(4, "little")
            signal.setitimer(signal.ITIMER_PROF, CPU_S + 5 * self._lines.seconds[item.nodeid])
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                return KILLED
        return SURVIVED

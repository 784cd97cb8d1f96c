"""One fault at a time is put into a fork of the collected tests, and those that run its line are run."""

from __future__ import annotations

import gc
import importlib
import mmap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from qa.mutants.faults import ROOT, Mutant
from qa.mutants.forks import BROKEN, in_fork, passes
from qa.mutants.lines import Coverage

PATIENCE, LEAST_S = 5.0, 2.0
"""A test may take this many times its own processor time, and this much more, before the mutant is said to be stuck."""
SURVIVED, KILLED, NOT_IN = 0, 1, 2
"""How the fork ends, unless a signal, such as that of the limit on its time, ends it: that kills the mutant too."""

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


LAZY = "networkx pandas pyarrow.parquet scipy.optimize scipy.sparse.csgraph scipy.spatial scipy.stats sklearn.datasets"
"""What is otherwise imported when it is first used, and so in every fork."""

Tell = Callable[[Mutant, dict[str, Any]], None]


class Trials:
    """A pytest plugin that, instead of running what was collected, tries the mutants on it.

    Args:
        mutants: what is to be tried.
        coverage: which test runs which lines.
        tell: is called with each mutant and what became of it.
    """

    def __init__(self, mutants: Sequence[Mutant], coverage: Coverage, tell: Tell) -> None:
        self._mutants, self._coverage, self._tell = mutants, coverage, tell
        self._functions: dict[Where, list[FunctionType]] = {}

    def pytest_collection(self) -> None:
        """Let hypothesis draw the same examples every time, and spend no time on making a failure small."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", deadline=None, derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record what the tests run, as far as that is not known, and try every mutant."""
        items = {item.nodeid: item for item in session.items}
        for name in LAZY.split():
            importlib.import_module(name)
        gc.unfreeze()  # objects that are frozen after the collection of tests are not listed
        self._functions = live_functions({mutant.file for mutant in self._mutants})
        gc.freeze()
        self._coverage.record(session.items)
        for mutant in self._mutants:
            chosen = [items[test] for test in self._coverage.choice(mutant) if test in items]
            self._tell(mutant, self._tried(mutant, chosen))
        return True

    def _tried(self, mutant: Mutant, items: Sequence[pytest.Item]) -> dict[str, Any]:
        text = mutant.code()
        before, after = mutant.change(text)
        at = mmap.mmap(-1, 4)
        end = in_fork(lambda: self._met(mutant, text, items, at))
        ends = {SURVIVED: "survived", KILLED: "killed", NOT_IN: "not put in", BROKEN: "broken"}
        verdict = ends.get(end.code, f"killed by signal {-end.code}")
        by = items[int.from_bytes(at[:4], "little")].nodeid if verdict.startswith("killed") else ""
        seen = {"before": before, "after": after, "verdict": verdict, "by": by}
        return {**seen, "tests": len(items), "seconds": end.seconds}

    def _met(self, mutant: Mutant, text: str, items: Sequence[pytest.Item], at: mmap.mmap) -> int:
        """Put the mutant into this process, a fork, and run the tests until one fails."""
        try:
            if not put_in(self._functions, ROOT / mutant.file, mutant.function, text):
                return NOT_IN
        except (SyntaxError, ValueError):
            return NOT_IN
        for i, (item, following) in enumerate(zip(items, [*items[1:], None], strict=False)):
            at[:4] = i.to_bytes(4, "little")
            if not passes(item, following, LEAST_S + PATIENCE * self._coverage.seconds[item.nodeid]):
                return KILLED
        return SURVIVED

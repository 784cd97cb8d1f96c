"""Which test runs which lines: recorded once for each test file, and again when that file has changed."""

from __future__ import annotations

import hashlib
import json
import mmap
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import coverage
import pytest

from qa.mutants.faults import ROOT, Mutant
from qa.mutants.forks import in_fork, passes

SLOW_S = 2.0
"""Tests that need more processor time are left out."""
BUDGET_S = 10.0
"""How much processor time the tests of a mutant may need, as they were recorded."""
FOLDERS = (
    "tests/kernel",
    "tests/devices",
    "tests/network",
    "tests/radio",
    "tests/records",
    "tests/learning/graph",
    "tests/learning/engines",
    "tests/federation",
    "tests/algorithms",
    "tests/scenario",
    "tests/emulation",
    "tests/tracking",
    "tests/sentences",
    "qa/oracle",
)
"""Test folders whose tests may be chosen."""


def test_files() -> list[Path]:
    """The files whose tests may be chosen."""
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("test_*.py"))]


class Coverage:
    """The lines that each quick test runs, kept in a file.

    Args:
        path: the file; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
        self._sort()

    def _sort(self) -> None:
        self.seconds: dict[str, float] = {}
        self._tests: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for entry in self._files.values():
            for test, seen in entry["tests"].items():
                self.seconds[test] = seen["seconds"]
                for file, lines in seen["lines"].items():
                    for line in lines:
                        self._tests[file][line].append(test)

    def record(self, items: Iterable[pytest.Item]) -> None:
        """Run the tests whose files are new or have changed since."""
        for path, tests in groupby(items, key=lambda item: item.path):
            file, digest = path.relative_to(ROOT).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()
            if self._files.get(file, {}).get("digest") != digest:
                print(f"recording the lines that {file} runs", file=sys.stderr, flush=True)
                self._files[file] = {"digest": digest, "tests": dict(self._recorded(tests))}
                self._path.with_suffix(".part").write_text(json.dumps(self._files))
                self._path.with_suffix(".part").replace(self._path)
        self._sort()

    def _recorded(self, tests: Iterable[pytest.Item]) -> Iterator[tuple[str, dict[str, Any]]]:
        """What the tests of a file run, in a fork; a test that ends the fork is left out, and the next have another."""
        left = list(tests)
        while left:
            part, at = self._path.with_suffix(".lines"), mmap.mmap(-1, 4)
            part.write_text("")
            end = in_fork(partial(_run, left, part, at))
            yield from (json.loads(line) for line in part.read_text().splitlines())
            left = left[int.from_bytes(at[:4], "little") + 1 :] if end.code else []

    def choice(self, mutant: Mutant) -> list[str]:
        """The tests that run the line of a mutant, or the last line before it that any test runs.

        Nearest and quickest first, each test function with one set of parameters before any with its second, as many
        as the budget allows. The nearest are in the test file of the same name, the next in the folder of that name.
        """
        lines = sorted(self._tests[mutant.file])
        i = bisect_right(lines, mutant.line)
        return list(self._within_budget(mutant, self._tests[mutant.file][lines[i - 1]])) if i else []

    def _within_budget(self, mutant: Mutant, tests: Iterable[str]) -> Iterator[str]:
        variants: dict[str, int] = defaultdict(int)
        ranked: list[tuple[int, int, float, str]] = []
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            function = test.partition("[")[0]
            ranked.append((-_nearness(mutant.file, test), variants[function], self.seconds[test], test))
            variants[function] += 1
        spent_s = 0.0
        for _, _, seconds, test in sorted(ranked):
            if spent_s + seconds <= BUDGET_S:
                spent_s += seconds
                yield test


def _nearness(file: str, test: str) -> int:
    """How many folders a module and a test share, counted from the top, and much more if they share their name."""
    *folders, name = file.removesuffix(".py").split("/")[1:]
    *others, other = test.partition(".py::")[0].split("/")[1:]
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(folders, others, strict=False)))
    return 100 if other == f"test_{name}" and shared == len(folders) else shared


def _run(items: Sequence[pytest.Item], into: Path, at: mmap.mmap) -> int:
    """Run tests in this process, a fork, and write down the time and the lines of those that pass."""
    for i, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
        at[:4] = i.to_bytes(4, "little")
        tracer = coverage.Coverage(data_file=None, config_file=False, include=[f"{ROOT}/fednet_emu/*"])
        tracer.set_option("run:disable_warnings", ["no-data-collected"])
        begun_s = time.process_time()
        tracer.start()
        passed = passes(item, following, SLOW_S)
        tracer.stop()
        if passed:
            seconds, data = round(time.process_time() - begun_s, 4), tracer.get_data()
            lines = {Path(file).relative_to(ROOT).as_posix(): data.lines(file) for file in data.measured_files()}
            with into.open("a") as file:
                file.write(json.dumps([item.nodeid, {"seconds": seconds, "lines": lines}]) + "\n")
    return 0

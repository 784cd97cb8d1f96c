"""Which test runs which lines: recorded once for each test file, and again when that file has changed."""

from __future__ import annotations

import hashlib
import json
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutants.faults import ROOT, Mutant
from tests.mutants.forks import in_fork, passes

SLOW_S = 1.0
"""Tests that need more processor time are left out."""
BUDGET_S = 4.0
"""How much processor time the tests of a mutant may need, as they were recorded."""
FOLDERS = ("kernel", "network", "radio", "records", "learning/graph", "learning/engines", "federation", "algorithms")
"""Test folders whose tests may be chosen."""


def test_files() -> list[Path]:
    """The files whose tests may be chosen."""
    return [path for folder in FOLDERS for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))]


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
        """Run the tests whose files are new or have changed since, each in a fork."""
        for path, tests in groupby(items, key=lambda item: item.path):
            file, digest = path.relative_to(ROOT).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()
            if self._files.get(file, {}).get("digest") != digest:
                print(f"recording the lines that {file} runs", file=sys.stderr, flush=True)
                self._files[file] = {"digest": digest, "tests": dict(self._recorded(tests))}
                self._path.with_suffix(".part").write_text(json.dumps(self._files))
                self._path.with_suffix(".part").replace(self._path)
        self._sort()

    def _recorded(self, tests: Iterable[pytest.Item]) -> Iterator[tuple[str, dict[str, Any]]]:
        part = self._path.with_suffix(".lines")
        for item in tests:
            end = in_fork(lambda item=item: _ran(item, part))
            if end.code == 0:
                yield item.nodeid, {"seconds": end.seconds, "lines": json.loads(part.read_text())}

    def choice(self, mutant: Mutant) -> list[str]:
        """The tests that run the line of a mutant, or the last line before it that any test runs.

        Nearest and quickest first, each test function with one set of parameters before any with its second, as many
        as the budget allows.
        """
        lines = sorted(self._tests[mutant.file])
        i = bisect_right(lines, mutant.line)
        return list(self._within_budget(mutant, self._tests[mutant.file][lines[i - 1]])) if i else []

    def _within_budget(self, mutant: Mutant, tests: Iterable[str]) -> Iterator[str]:
        home = f"tests/{mutant.package}/"
        variants: dict[str, int] = defaultdict(int)
        ranked: list[tuple[bool, int, float, str]] = []
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            function = test.partition("[")[0]
            ranked.append((not test.startswith(home), variants[function], self.seconds[test], test))
            variants[function] += 1
        spent_s = 0.0
        for _, _, seconds, test in sorted(ranked):
            if spent_s + seconds <= BUDGET_S:
                spent_s += seconds
                yield test


def _ran(item: pytest.Item, into: Path) -> int:
    """Run a test in this process, a fork, and write down its lines; 0 if it passes."""
    tracer = coverage.Coverage(data_file=None, config_file=False, source_pkgs=["fednet_emu"])
    tracer.start()
    passed = passes(item, None, SLOW_S)
    tracer.stop()
    data = tracer.get_data()
    seen = {Path(file).relative_to(ROOT).as_posix(): data.lines(file) for file in data.measured_files()}
    into.write_text(json.dumps({file: lines for file, lines in seen.items() if lines}))
    return 0 if passed else 1

"""Which test runs which lines: recorded once for each test file, and again when that file has changed."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutants.faults import ROOT, Mutant

SLOW_S = 1.0
"""Tests that need more processor time are cut, and left out."""
BUDGET_S = 4.0
"""How much processor time the tests of a mutant may need, as they were recorded."""
FOLDERS = ("kernel", "network", "radio", "records", "learning/graph", "learning/engines", "federation", "algorithms")
"""Test folders whose tests may be chosen."""


class Recorder:
    """A pytest plugin that notes for each test that passes its time and the lines it runs."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self._coverage = coverage.Coverage(data_file=None, config_file=False, source_pkgs=["fednet_emu"])

    def pytest_sessionstart(self) -> None:
        """Count from the first import on, so that the tracer is there when threads start."""
        signal.signal(signal.SIGVTALRM, _cut)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Put what is run from here to the end of the test down to the test."""
        self._coverage.switch_context(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Note the time; a slow test is cut, and fails."""
        begun_s = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, SLOW_S)
        try:
            result = yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.tests[item.nodeid] = {"seconds": round(time.process_time() - begun_s, 4), "lines": {}}
        return result

    def pytest_sessionfinish(self) -> None:
        """Sort the lines by test."""
        self._coverage.stop()
        data = self._coverage.get_data()
        for path in data.measured_files():
            file = Path(path).relative_to(ROOT).as_posix()
            for line, contexts in data.contexts_by_lineno(path).items():
                for test in set(contexts) & self.tests.keys():
                    self.tests[test]["lines"].setdefault(file, []).append(line)


def _cut(*_: object) -> None:
    raise TimeoutError


def test_files() -> list[Path]:
    """The files whose tests may be chosen."""
    return [path for folder in FOLDERS for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))]


def record(kept: Path) -> None:
    """Record the test files that are new or have changed since, in a process of its own."""
    records = json.loads(kept.read_text()) if kept.exists() else {}
    digests = {path.relative_to(ROOT).as_posix(): _digest(path) for path in test_files()}
    records = {file: entry for file, entry in records.items() if digests.get(file) == entry["digest"]}
    stale = [file for file in digests if file not in records]
    if not stale:
        return
    print(f"recording which lines the tests of {len(stale)} files run", file=sys.stderr)
    part = kept.with_suffix(".part")
    subprocess.run([sys.executable, "-m", "tests.mutants.lines", part, *stale], cwd=ROOT, check=True)
    records |= {file: {"digest": digests[file], "tests": {}} for file in stale}
    for test, seen in json.loads(part.read_text()).items():
        records[test.partition("::")[0]]["tests"][test] = seen
    part.write_text(json.dumps(records))
    part.replace(kept)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Lines:
    """What was recorded, sorted by line."""

    def __init__(self, kept: Path) -> None:
        self.seconds: dict[str, float] = {}
        self._tests: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for entry in json.loads(kept.read_text()).values():
            for test, seen in entry["tests"].items():
                self.seconds[test] = seen["seconds"]
                for file, lines in seen["lines"].items():
                    for line in lines:
                        self._tests[file][line].append(test)

    def choice(self, mutant: Mutant) -> list[str]:
        """The tests that run the line of a mutant, or the last line before it that any test runs.

        Nearest and quickest first, each test function with one set of parameters before any with its second, as many
        as the budget allows.
        """
        lines = sorted(self._tests[mutant.file])
        i = bisect_right(lines, mutant.line)
        return list(self._within_budget(mutant, self._tests[mutant.file][lines[i - 1]])) if i else []

    def _within_budget(self, mutant: Mutant, tests: Iterable[str]) -> Iterable[str]:
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


if __name__ == "__main__":
    into, *files = sys.argv[1:]
    recorder = Recorder()
    pytest.main(["-q", "-m", "not slow", "-p", "no:cacheprovider", *files], plugins=[recorder])
    Path(into).write_text(json.dumps(recorder.tests))

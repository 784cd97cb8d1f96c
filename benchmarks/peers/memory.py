"""The memory of a process and all its descendants, as the kernel shares it out (proportional set size)."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PROC = Path("/proc")


@dataclass(slots=True)
class Tree:
    """A process and everything it ever started, as far as it was seen.

    Attributes:
        root: process identifier.
        seen: identifiers, with the moment each was started so that a number given again is not taken for the old one.
        peak_byte: the largest sum of proportional set sizes at one look.
    """

    root: int
    seen: dict[int, str] = field(default_factory=dict)
    peak_byte: int = 0

    def look(self) -> None:
        """Find new descendants, and add up the memory of all."""
        for pid in [*_descendants(self.root), *self.seen]:
            self.seen.setdefault(pid, _started(pid))
        self.peak_byte = max(self.peak_byte, sum(_pss_byte(pid) for pid in self.alive()))

    def alive(self) -> list[int]:
        """Those that still run."""
        return [pid for pid, started in self.seen.items() if started and _started(pid) == started]

    def end(self) -> None:
        """End what is left behind."""
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def watch(process: subprocess.Popen[str], interval_s: float = 0.2, limit_s: float = math.inf) -> Tree:
    """Look at a process until it ends or its time is over, then end all that is left of it and its descendants.

    A look never takes more than a twentieth of the time.
    """
    tree, begun_s = Tree(process.pid), time.perf_counter()
    try:
        while process.poll() is None and time.perf_counter() - begun_s < limit_s:
            started_s = time.perf_counter()
            tree.look()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(interval_s, 20 * (time.perf_counter() - started_s)))
    finally:
        tree.end()
        process.wait()
    return tree


def _descendants(root: int) -> Iterator[int]:
    """A process and those below it, as the kernel tells parents now."""
    children: dict[int, list[int]] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    below = [root]
    while below:
        pid = below.pop()
        yield pid
        below += children.get(pid, [])


def _started(pid: int) -> str:
    """When a process was started, in ticks; empty when it has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _pss_byte(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0

"""What a process and all its descendants take: memory as the kernel shares it out, and processor time beside others."""

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
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Tree:
    """A process and everything it ever started, as far as it was seen.

    Attributes:
        root: process identifier.
        seen: identifiers, with the moment each was started so that a number given again is not taken for the old one.
        peak_byte: the largest sum of proportional set sizes at one look.
        spent_s: processor time of each, when it was last looked at.
    """

    root: int
    seen: dict[int, str] = field(default_factory=dict)
    peak_byte: int = 0
    spent_s: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Find new descendants, and add up the memory of all."""
        self.note_times()
        self.peak_byte = max(self.peak_byte, sum(_pss_byte(pid) for pid in self.alive()))

    def note_times(self) -> None:
        """Find new descendants, and note the processor times of all, which takes far less time than their memory."""
        for pid in [*_descendants(self.root), *self.seen]:
            self.seen.setdefault(pid, _started(pid))
        for pid in self.alive():
            self.spent_s[pid] = max(_spent_s(pid), self.spent_s.get(pid, 0.0))

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

    Looks at the memory, of which one may take long, never take more than a twentieth of the time.
    """
    tree, begun_s = Tree(process.pid), time.perf_counter()
    next_s = begun_s
    try:
        while process.poll() is None and (now_s := time.perf_counter()) - begun_s < limit_s:
            if now_s < next_s:
                tree.note_times()
            else:
                tree.look()
                next_s = now_s + 20 * (time.perf_counter() - now_s)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(interval_s)
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


def _spent_s(pid: int) -> float:
    """Processor time of a process; 0 when it has ended."""
    try:
        return sum(map(int, (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13])) / _TICKS_PER_S
    except OSError:
        return 0.0


def busy_s() -> float:
    """Time in which the cores that we may use did anything for anybody, since the machine was started."""
    ours, total = {f"cpu{core}" for core in os.sched_getaffinity(0)}, 0
    for line in (_PROC / "stat").read_text().splitlines():
        name, *ticks = line.split()
        if name in ours:
            user, nice, system, _idle, _waiting, *interrupts = map(int, ticks[:8])
            total += user + nice + system + sum(interrupts)
    return total / _TICKS_PER_S


def others_cores(tree: Tree, busy: float, waited_for_s: float, elapsed_s: float) -> float:
    """Mean number of our cores that others than a tree of processes kept busy.

    Args:
        tree: the processes, after they ended.
        busy: increase of `busy_s`.
        waited_for_s: processor time of ourselves and those of the tree that were waited for.
        elapsed_s: in so much time.
    """
    return max(0.0, busy - max(waited_for_s, sum(tree.spent_s.values()))) / elapsed_s


def _pss_byte(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0

"""Measurement of the host time (as opposed to simulated time) that each part of the program takes."""

from __future__ import annotations

import time
from typing import NamedTuple, final

REST = "clock and medium"
"""Name of the part for all code that belongs to no other part, such as events, transfers and the processes of the
algorithm."""


class Spent(NamedTuple):
    """Host time in s of one part of the program, including `waiting_s` for other threads, a GPU or a core."""

    host_s: float = 0.0
    waiting_s: float = 0.0


@final
class HostTime:
    """Clock of the host time in s of each part of the program so far; nested time counts for the innermost part."""

    def __init__(self) -> None:
        self._host_s: dict[str, float] = {REST: 0.0}
        self._waiting_s: dict[str, float] = {REST: 0.0}
        self._inside: list[tuple[str, _BriefPart | None]] = [(REST, None)]
        self._brief: _BriefPart | None = None
        self._seen_s, self._busy_s, self._brief_s = time.perf_counter(), time.thread_time(), 0.0

    def part(self, name: str) -> _Part:
        return _Part(self, name)

    def brief_part(self, name: str) -> _BriefPart:
        """Return a context manager like that of `part`, but with less overhead, for short code that never waits.

        If another part begins inside the block, the measurement is interrupted until this other part ends.
        """
        return _BriefPart(self, name)

    def parts(self) -> dict[str, Spent]:
        """Return the host time spent so far in each part of the program."""
        self._note()
        return {name: Spent(host_s, self._waiting_s[name]) for name, host_s in self._host_s.items()}

    def _enter(self, name: str) -> None:
        interrupted = self._brief
        if interrupted is not None:
            interrupted.__exit__()
        self._note()
        self._inside.append((name, interrupted))

    def _leave(self) -> None:
        self._note()
        _, interrupted = self._inside.pop()
        if interrupted is not None:
            interrupted.__enter__()

    def _note(self) -> None:
        now_s, busy_s = time.perf_counter(), time.thread_time()
        host_s, part = now_s - self._seen_s, self._inside[-1][0]
        self._add(part, host_s - self._brief_s)
        self._brief_s = 0.0
        self._waiting_s[part] = self._waiting_s.get(part, 0.0) + max(host_s - busy_s + self._busy_s, 0.0)
        self._seen_s, self._busy_s = now_s, busy_s

    def _add(self, part: str, host_s: float) -> None:
        self._host_s[part] = self._host_s.get(part, 0.0) + host_s

    def _add_brief(self, part: str, host_s: float) -> None:
        self._add(part, host_s)
        self._waiting_s.setdefault(part, 0.0)
        self._brief_s += host_s


@final
class _Part:
    """Context manager of `HostTime.part`, which as a generator would be slow for many training jobs."""

    __slots__ = ("_host", "_name")

    def __init__(self, host: HostTime, name: str) -> None:
        self._host, self._name = host, name

    def __enter__(self) -> None:
        self._host._enter(self._name)

    def __exit__(self, *_: object) -> None:
        self._host._leave()


@final
class _BriefPart:
    """Context manager of `HostTime.brief_part`; it reads only the wall clock, in a tenth of the time of `part`."""

    __slots__ = ("_host", "_name", "_since_s")

    def __init__(self, host: HostTime, name: str) -> None:
        self._host, self._name = host, name

    def __enter__(self) -> None:
        self._host._brief = self
        self._since_s = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._host._add_brief(self._name, time.perf_counter() - self._since_s)
        self._host._brief = None

"""Host time by part of the program, in contrast to simulated time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, final

REST = "clock and medium"
"""Name of the part for everything else: events, transfers, and the algorithm's processes."""


class Spent(NamedTuple):
    """Host seconds of one part, and how many of them this thread waited for other threads, a GPU, or a CPU core."""

    host_s: float = 0.0
    waiting_s: float = 0.0


@final
class HostTime:
    """Host seconds by part since creation; of nested parts only the innermost one counts."""

    def __init__(self) -> None:
        self._spent: dict[str, Spent] = {REST: Spent()}
        self._inside = [REST]
        self._seen = _now()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Context manager that counts the time inside it for this part."""
        self._note()
        self._inside.append(name)
        try:
            yield
        finally:
            self._note()
            self._inside.pop()

    def parts(self) -> dict[str, Spent]:
        """The time of each part until now."""
        self._note()
        return dict(self._spent)

    def _note(self) -> None:
        now = _now()
        host_s, busy_s = now.host_s - self._seen.host_s, now.busy_s - self._seen.busy_s
        part, self._seen = self._inside[-1], now
        so_far = self._spent.get(part, Spent())
        self._spent[part] = Spent(so_far.host_s + host_s, so_far.waiting_s + max(host_s - busy_s, 0.0))


class _Instant(NamedTuple):
    host_s: float
    busy_s: float


def _now() -> _Instant:
    return _Instant(time.perf_counter(), time.thread_time())

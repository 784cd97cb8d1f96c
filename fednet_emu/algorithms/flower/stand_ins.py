"""Stand-ins for attributes of modules and classes while runs need them; runs may overlap."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, final


class StandIn(NamedTuple):
    """An attribute of a module or class, and what stands for it."""

    owner: Any
    name: str
    its: Any


@final
class StandIns:
    """Attributes that are replaced while at least one run needs it.

    Args:
        find: tells what to replace, when the first run begins.
    """

    def __init__(self, find: Callable[[], Iterable[StandIn]]) -> None:
        self._find, self._lock = find, threading.Lock()
        self._users = 0
        self._before: list[StandIn] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the attributes in this block; the last of several blocks puts back what was there."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                for owner, name, its in list(self._find()):
                    self._before.append(StandIn(owner, name, getattr(owner, name)))
                    setattr(owner, name, its)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                while self._before and not self._users:
                    owner, name, its = self._before.pop()
                    setattr(owner, name, its)

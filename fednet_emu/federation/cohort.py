"""Cohorts: random subsets of the devices that are present."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from simpy.events import Event

from fednet_emu.arrays import IntArray
from fednet_emu.devices.availability import Presence
from fednet_emu.errors import AlgorithmError, Deadlock
from fednet_emu.kernel.clock import COLLECT, FOREVER_NS, Clock
from fednet_emu.kernel.events import Completion

MOST_LOOKS = 10_000
"""Maximum number of successive times at which a device could have returned but no device did. After more times, the run
counts as deadlocked, for example because all batteries are empty whenever the devices are reachable."""


def _count_or_share(size: Any) -> int | float:
    """Return `size` as an int (number of devices) or float (share); raise a `ValueError` if it is out of range."""
    size = size.item() if isinstance(size, np.generic) else size
    if (type(size) is int and size >= 1) or (isinstance(size, float) and 0.0 < size <= 1.0):
        return size
    whole = isinstance(size, float) and size >= 1.0 and size == int(size)
    remedy = f"write {int(size)}" if whole else "5 means five devices, 0.5 half of them, 1.0 all"
    what = "must be a number of devices (an int), or a share of them up to 1.0 (a float)"
    raise ValueError(f"{what}, got {size!r}; {remedy}")


def _a_number(size: Any) -> int | float:
    if not isinstance(size, int | float | np.generic):
        raise PydanticCustomError("number_type", "must be a number")
    return _count_or_share(size)


CohortSize = Annotated[Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, le=1)], BeforeValidator(_a_number)]
"""Size of a cohort. An int is a number of devices. A float is a share of all devices, above 0 and at most 1.0."""


def cohort_size(cohort: int | float, count: int, where: str = "cohort") -> int:
    """Return the number of devices in a cohort out of `count` devices; a share is rounded, to at least one device.

    An `AlgorithmError`, which names the argument by `where`, is raised if `cohort` is not valid, for example 5.0.
    """
    try:
        size = _count_or_share(cohort)
    except ValueError as problem:
        raise AlgorithmError(where, *str(problem).split("; ")) from None
    return size if isinstance(size, int) else max(1, math.floor(size * count + 0.5))


class Cohort(Completion):
    """Event whose value is a list of up to `size` present devices, drawn uniformly and sorted by index.

    The event triggers immediately or, if all devices are absent, when a device returns. `view` maps the index of a
    device to its `Device`. `rng` makes the random generator; it is called only if a draw is needed, because making a
    generator takes as long as drawing. A `Deadlock` is raised if no device is present at any of `MOST_LOOKS` successive
    times at which a device could return.
    """

    def __init__(
        self,
        clock: Clock,
        presence: Presence,
        size: int,
        rng: Callable[[], np.random.Generator],
        view: Callable[[int], Any],
    ) -> None:
        super().__init__(clock)
        self._clock, self._presence, self._size, self._rng, self._view = clock, presence, size, rng, view
        self._looks = 0
        self._look()

    def _look(self, _event: Event | None = None) -> None:
        present = self._presence.present(self._clock.now)
        if len(present):
            drawn = present.tolist() if self._size >= len(present) else draw(present, self._size, self._rng())
            self.succeed([self._view(index) for index in drawn])
        elif (returns_ns := self._presence.next_return_ns(self._clock.now)) < FOREVER_NS:
            self._looks += 1
            if self._looks > MOST_LOOKS:
                raise Deadlock(
                    self._clock.now_s, f"the server waits for {self.describe()} at {MOST_LOOKS} returns in a row"
                )
            self._clock.call_at(returns_ns, self._look, COLLECT)

    def describe(self) -> str:
        """Describe the event for deadlock errors, with the number of devices whose empty battery never charges."""
        batteries = self._presence.batteries
        stranded = 0 if batteries is None else batteries.stranded()
        why = f", {stranded} of them with an empty battery that nothing charges" if stranded else ""
        return f"a device to return; all {self._presence.asked} are away{why}"


def draw(present: IntArray, size: int, rng: np.random.Generator) -> list[int]:
    """Draw up to `size` of the device indices `present`, and sort them; all subsets of this size are equally likely."""
    drawn = present if size >= len(present) else present[np.sort(rng.choice(len(present), size, replace=False))]
    numbers: list[int] = drawn.tolist()
    return numbers

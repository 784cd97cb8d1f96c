"""Gathering: wait for many processes or events, and have their results in the order they were given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import simpy
from simpy.events import Event

from fednet_emu.kernel.clock import COLLECT, Clock, Process, describe, to_ns


def cancel(event: Event | None, outcome: Any) -> None:
    """Stop a process at its present wait; it ends at once with `outcome`.

    What it waits for is stopped too, down to the transfer or computation, whose event has a method `cancel(outcome)`.
    """
    if isinstance(event, simpy.events.Process):
        if event.is_alive:
            if getattr(event._generator, "gi_running", False):
                raise RuntimeError(f"{event.name}: cannot cancel itself; let it return")
            cancel(event.target, outcome)
            event.interrupt(outcome)
        return
    if isinstance(event, simpy.events.Condition):
        for part in event._events:
            cancel(part, outcome)
        return
    stop = getattr(event, "cancel", None)
    if stop is not None:
        stop(outcome)


class Gather(Event):
    """Event that comes when all processes have ended; its value is the list of their results, in the given order.

    With a deadline, processes that have not ended by then (an end at the very instant counts) are cancelled, and their
    result is `late(index)`.
    """

    def __init__(
        self,
        clock: Clock,
        processes: Iterable[Process],
        deadline_s: float | None = None,
        late: Callable[[int], Any] = lambda _index: None,
    ) -> None:
        super().__init__(clock)
        self.processes = clock.processes(processes)
        self._missing = len(self.processes)
        self._late = late
        for process in self.processes:
            process.callbacks.append(self._ended)
        if not self.processes:
            self.succeed([])
        elif deadline_s is not None:
            clock.call_at(clock.now + to_ns(deadline_s), self._deadline, COLLECT)

    def _ended(self, process: Event) -> None:
        if not process.ok:
            process.defused = True
            if not self.triggered:
                self.fail(cast("Exception", process.value))
            return
        self._missing -= 1
        if self._missing == 0 and not self.triggered:
            self.succeed([process.value for process in self.processes])

    def _deadline(self, _event: Event) -> None:
        for index, process in enumerate(self.processes):
            cancel(process, self._late(index))

    def cancel(self, outcome: Any) -> None:
        """Cancel every process that is still running."""
        for process in self.processes:
            cancel(process, outcome)

    def describe(self) -> str:
        """Say which processes have not ended, and what they wait for."""
        running = [process for process in self.processes if process.is_alive]
        shown = "; ".join(describe(process) for process in running[:5])
        return f"{len(running)} of {len(self.processes)} processes: {shown}{'; ...' if len(running) > 5 else ''}"


class Together(Event):
    """Event that comes when all events have come; its value is the list of theirs, in the given order.

    Unlike a `Gather` it starts no processes, so it is the cheaper one for events that exist already and cannot fail.
    """

    def __init__(self, clock: Clock, events: Sequence[Event]) -> None:
        super().__init__(clock)
        self._events, self._missing = events, len(events)
        for event in events:
            cast("list[Callable[[Event], None]]", event.callbacks).append(self._came)
        if not events:
            self.succeed([])

    def _came(self, _event: Event) -> None:
        self._missing -= 1
        if not self._missing:
            self.succeed([event.value for event in self._events])

    def cancel(self, outcome: Any) -> None:
        """Cancel every event that has not come."""
        for event in self._events:
            cancel(event, outcome)

    def describe(self) -> str:
        """Say which events have not come."""
        missing = [event for event in self._events if not event.triggered]
        shown = "; ".join(describe(event) for event in missing[:5])
        return f"{len(missing)} of {len(self._events)} events: {shown}{'; ...' if len(missing) > 5 else ''}"

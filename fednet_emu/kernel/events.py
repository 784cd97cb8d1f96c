"""The events that an algorithm waits for: each triggers once with a value, and can be cancelled and described.

They use private attributes of SimPy's events (`_ok`, `_value`, `_generator`, `_events`), because SimPy's calls cost
more than the rest of an event. Only this folder and the constructors of transfers and computations access them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import simpy
from simpy.events import Event

from fednet_emu.errors import AlgorithmError


class Completion(Event):
    """Base of the events that an algorithm waits for."""

    def __init__(self, clock: simpy.Environment) -> None:
        self.env = clock  # the constructor of SimPy's event, without the call
        self.callbacks = []
        self._ok = True

    def complete(self, value: Any) -> None:
        """Set the value of the event without running its callbacks, see `Clock.trigger_now`."""
        self._value = value

    def cancel(self, outcome: Any) -> None:
        """Stop the activity of the event, for which no process waits any more; `outcome` is a lost `Delivery`."""

    def describe(self) -> str:
        """Describe the activity of the event, for deadlock messages."""
        return type(self).__name__.lower()

    def __iter__(self) -> Iterator[Any]:
        raise not_awaited(self, "its value")

    def __getitem__(self, _key: Any) -> Any:
        raise not_awaited(self, "its value")


def not_awaited(event: object, what: str) -> AlgorithmError:
    """Return the error about an event that is used before it has triggered."""
    problem = f"is an event that has to be waited for, got {what} asked for before that"
    return AlgorithmError(type(event).__name__, problem, "write `yield` before the verb that makes it")


def cancel(event: Event | None, outcome: Any) -> None:
    """Cancel a pending event, and the events that it waits for; a process ends at once with the value `outcome`."""
    if isinstance(event, Completion):
        event.cancel(outcome)
    elif isinstance(event, simpy.events.Process):
        if event.is_alive:
            if getattr(event._generator, "gi_running", False):
                raise RuntimeError(f"{event.name}: cannot cancel itself; let it return")
            cancel(event.target, outcome)
            event.interrupt(outcome)
    elif isinstance(event, simpy.events.Condition):
        for part in event._events:
            cancel(part, outcome)


def describe(event: Event | None) -> str:
    """Describe an event and the chain of events that it waits for, for deadlock messages."""
    if isinstance(event, Completion):
        return event.describe()
    if isinstance(event, simpy.events.Process):
        return f"{event.name} waits for {describe(event.target)}" if event.is_alive else f"{event.name} (ended)"
    if isinstance(event, simpy.events.Condition):
        return several(event._events, "events")
    return type(event).__name__.lower()


def several(events: Any, what: str) -> str:
    """Describe the pending events among several."""
    missing = [event for event in events if not event.triggered]
    shown = "; ".join(describe(event) for event in missing[:5])
    return f"{len(missing)} of {len(events)} {what}: {shown}{'; ...' if len(missing) > 5 else ''}"

"""The events that an algorithm waits for: each comes once with a value, and can be cancelled and described.

They rest on private attributes of SimPy's events (`_ok`, `_value`, `_generator`, `_events`), because its own calls cost
more than all else that an event does; only this folder touches them, and the constructors of transfers and
computations, of which there are most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import simpy
from simpy.events import Event

from fednet_emu.errors import AlgorithmError


class Completion(Event):
    """Base of the events that an algorithm waits for.

    Args:
        clock: simulated time.
    """

    def __init__(self, clock: simpy.Environment) -> None:
        self.env = clock  # what SimPy's own does, without its call
        self.callbacks = []
        self._ok = True

    def complete(self, value: Any) -> None:
        """Give the event its value, but tell nobody yet: `Clock.trigger_now` does."""
        self._value = value

    def cancel(self, outcome: Any) -> None:
        """Stop what the event stands for, because nobody waits for it any more; `outcome` is a lost `Delivery`."""

    def describe(self) -> str:
        """Describe what the event stands for, for deadlock messages."""
        return type(self).__name__.lower()

    def __iter__(self) -> Iterator[Any]:
        raise not_awaited(self, "its value")

    def __getitem__(self, _key: Any) -> Any:
        raise not_awaited(self, "its value")


def not_awaited(event: object, what: str) -> AlgorithmError:
    """Return the error about an event that is used before it has come."""
    problem = f"is an event that has to be waited for, got {what} asked for before that"
    return AlgorithmError(type(event).__name__, problem, "write `yield` before the verb that makes it")


def cancel(event: Event | None, outcome: Any) -> None:
    """Cancel a pending event; a process stops where it waits and ends at once with the value `outcome`.

    What it waits for is stopped too, down to the transfer or computation.
    """
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
    """Describe what an event waits for, followed down to the innermost pending event, for deadlock messages."""
    if isinstance(event, Completion):
        return event.describe()
    if isinstance(event, simpy.events.Process):
        return f"{event.name} waits for {describe(event.target)}" if event.is_alive else f"{event.name} (ended)"
    if isinstance(event, simpy.events.Condition):
        return several(event._events, "events")
    return type(event).__name__.lower()


def several(events: Any, what: str) -> str:
    """Describe the pending ones of several events."""
    missing = [event for event in events if not event.triggered]
    shown = "; ".join(describe(event) for event in missing[:5])
    return f"{len(missing)} of {len(events)} {what}: {shown}{'; ...' if len(missing) > 5 else ''}"

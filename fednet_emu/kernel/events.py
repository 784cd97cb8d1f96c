"""The events that an algorithm waits for. Each event triggers once with a value, and can be cancelled and described.

The events use private attributes of SimPy's events (`_ok`, `_value`, `_generator`, `_events`), because calls of SimPy's
methods would take most of the time of an event. Only this folder and the constructors of transfers and computations use
these attributes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from heapq import heappush
from typing import Any, cast

import simpy
from simpy.events import NORMAL, Event

from fednet_emu.errors import AlgorithmError


class Completion(Event):
    """Base class of the events that an algorithm waits for, which can be cancelled and described."""

    def __init__(self, clock: simpy.Environment) -> None:
        self.env = clock  # the constructor of SimPy's event, without the call
        self.callbacks = []
        self._ok = True

    def complete(self, value: Any) -> None:
        """Set the value of the event without running its callbacks; see `Clock.trigger_now`."""
        self._value = value

    def cancel(self, outcome: Any) -> None:
        """Stop the activity at whose end the event would trigger; `outcome` is the lost `Delivery` of its process.

        It is called if no process waits for the event any more. By default, nothing is done.
        """

    def describe(self) -> str:
        return type(self).__name__.lower()

    def __iter__(self) -> Iterator[Any]:
        raise not_awaited(self, "its value")

    def __getitem__(self, _key: Any) -> Any:
        raise not_awaited(self, "its value")


class RunningProcess(simpy.events.Process):
    """Event that triggers at the end of a process; its value is the generator's result or, if cancelled, the outcome.

    The process can be cancelled while it waits, and is resumed faster than a process of SimPy. Exceptions propagate
    unchanged, whereas SimPy copies an exception by `type(e)(*e.args)`, which fails for exception classes with other
    constructor arguments. `start` is the event that starts the generator, or the first event that a started generator
    waits for.
    """

    def __init__(self, clock: simpy.Environment, generator: Generator[Event, Any, Any], start: Event) -> None:
        if not hasattr(generator, "throw"):
            raise AlgorithmError("process", f"is no generator, got {generator!r}", "a function with `yield` makes one")
        self.env = clock  # the constructor of SimPy's process, with fewer calls
        self.callbacks = []
        self._generator = generator
        self._target = start
        start.callbacks.append(self._resume)

    def _resume(self, event: Event) -> None:
        generator = self._generator
        self.env._active_proc = self
        try:
            while True:
                if event._ok:
                    event = generator.send(event._value)
                else:
                    event._defused = True
                    event = generator.throw(event._value)
                callbacks = event.callbacks
                if callbacks is not None:
                    callbacks.append(self._resume)
                    self._target = event
                    return
                event.late = True  # the event triggered before the process waited for it
        except StopIteration as end:
            self._end(end.value, ok=True)
        except simpy.Interrupt as cancelled:
            cancelled.__traceback__ = None  # avoids a reference cycle with this frame and the generator
            self._end(cancelled.cause, ok=True)
        except AttributeError as error:
            self._end(_explained(self.name, event, error), ok=False)
        except BaseException as error:
            self._end(error, ok=False)
        finally:
            self.env._active_proc = None

    def _end(self, value: Any, *, ok: bool) -> None:
        self._ok, self._value, self._target = ok, value, cast("Event", None)
        clock = self.env
        heappush(clock._queue, (clock._now, NORMAL, next(clock._eid), self))  # like SimPy's `schedule`


def _explained(name: str, waits_for: object, error: AttributeError) -> Exception:
    """Return an `AlgorithmError` if the generator has yielded an object that is not an event; else return `error`."""
    if isinstance(waits_for, Event):
        return error
    return AlgorithmError(name, f"yields no event, got {waits_for!r}", "yield the results of a federation's operations")


def not_awaited(event: object, what: str) -> AlgorithmError:
    """Return the error for use of the result `what` of an event before the event has triggered."""
    problem = f"is an event that has to be waited for, got {what} asked for before that"
    return AlgorithmError(type(event).__name__, problem, "write `yield` before the verb that makes it")


def cancel(event: Event | None, outcome: Any) -> None:
    """Cancel a pending event and the events that it waits for; a process ends at once with the value `outcome`.

    A `RuntimeError` is raised if the running process cancels itself.
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
    """Return a description of an event and of the chain of events that it waits for, for deadlock errors."""
    if isinstance(event, Completion):
        return event.describe()
    if isinstance(event, simpy.events.Process):
        return f"{event.name} waits for {describe(event.target)}" if event.is_alive else f"{event.name} (ended)"
    if isinstance(event, simpy.events.Condition):
        return several(event._events, "events")
    return type(event).__name__.lower()


def several(events: Any, what: str) -> str:
    """Return a description of the pending events in `events`, of which at most five are listed; `what` is a noun."""
    missing = [event for event in events if not event.triggered]
    shown = "; ".join(describe(event) for event in missing[:5])
    return f"{len(missing)} of {len(events)} {what}: {shown}{'; ...' if len(missing) > 5 else ''}"

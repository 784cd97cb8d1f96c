"""Wait for many events or processes at once, and cancel those that are still pending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import simpy
from simpy.events import Event

from fednet_emu.kernel.clock import COLLECT, Clock, Process, Timer, describe, to_ns
from fednet_emu.kernel.process import Awaited


def cancel(event: Event | None, outcome: Any) -> None:
    """Cancel a pending event; a process stops where it waits and ends at once with the value `outcome`.

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


class AllOf(Awaited, Event):
    """Event that triggers when all given events have triggered; its value is the list of their values, in order.

    With a deadline, those that have not come by then (at the very instant counts) are cancelled, and the value of such
    a process is `late(index)`. The first one that fails is what this fails with.

    Args:
        clock: simulated time.
        events: the events or processes to wait for; none of them has been processed yet.
        deadline_s: longest wait in seconds from now; None for no limit.
        late: gives the value of a cancelled process from its index in `events`.
        of: makes the value of this event from the list of values.
    """

    def __init__(
        self,
        clock: Clock,
        events: Sequence[Event],
        deadline_s: float | None = None,
        late: Callable[[int], Any] = lambda _index: None,
        of: Callable[[list[Any]], Any] = lambda values: values,
    ) -> None:
        super().__init__(clock)
        self.events, self._missing, self._late, self._of = events, len(events), late, of
        ended = self._ended
        for event in events:
            event.callbacks.append(ended)
        self._timer: Timer | None = None
        if not events:
            self.succeed(of([]))
        elif deadline_s is not None:
            self._timer = clock.call_at(clock.now + to_ns(deadline_s), self._deadline, COLLECT)

    def _ended(self, event: Event) -> None:
        if not event._ok:
            event.defused = True
            if not self.triggered:
                self._let_go()
                self.fail(cast("Exception", event._value))
            return
        self._missing -= 1
        if not self._missing and not self.triggered:
            self._let_go()
            self.succeed(self._of([event._value for event in self.events]))

    def _let_go(self) -> None:
        """Cancel the deadline timer, which would otherwise keep this event and all values in memory until it fires."""
        if self._timer is not None:
            self._timer.cancel()

    def _deadline(self, _event: Event) -> None:
        for index, event in enumerate(self.events):
            cancel(event, self._late(index))

    def cancel(self, outcome: Any) -> None:
        """Cancel every event that is still pending."""
        self._let_go()
        for event in self.events:
            cancel(event, outcome)
            if event.callbacks and not isinstance(event, simpy.events.Process):
                event.callbacks.remove(self._ended)  # it will never come: leaves no cycle for the garbage collector

    def describe(self) -> str:
        """Name the pending events and what each of them waits for."""
        missing = [event for event in self.events if not event.triggered]
        shown = "; ".join(describe(event) for event in missing[:5])
        what = "processes" if isinstance(self.events[0], simpy.events.Process) else "events"
        return f"{len(missing)} of {len(self.events)} {what}: {shown}{'; ...' if len(missing) > 5 else ''}"


def gather(
    clock: Clock,
    processes: Iterable[Process],
    deadline_s: float | None = None,
    late: Callable[[int], Any] = lambda _index: None,
    of: Callable[[list[Any]], Any] = lambda values: values,
) -> AllOf:
    """Start processes; the event's value is the list of their results in order, or what `of` makes of it."""
    return AllOf(clock, clock.processes(processes), deadline_s, late, of)

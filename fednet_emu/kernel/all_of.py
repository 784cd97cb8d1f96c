"""Waiting for many events or processes, with an optional deadline at which pending events are cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import simpy
from simpy.events import Event

from fednet_emu.kernel.clock import COLLECT, Clock, Process, Timer, to_ns
from fednet_emu.kernel.events import Completion, cancel, several


class AllOf(Completion):
    """Event that triggers when all given events have triggered.

    The callbacks of the given events must not have run yet. The value of this event is the list of the given events'
    values, in order. If `deadline_s` is given, events that are still pending at the end of the instant `deadline_s`
    seconds from now are cancelled, and `late()` replaces their values. If an event fails, this event fails with the
    same exception.
    """

    def __init__(
        self,
        clock: Clock,
        events: Sequence[Event],
        deadline_s: float | None = None,
        late: Callable[[], Any] = lambda: None,
    ) -> None:
        super().__init__(clock)
        self.events, self._missing, self._late = events, len(events), late
        ended = self._ended
        for event in events:
            event.callbacks.append(ended)
        self._given_up: dict[Event, Any] = {}
        self._timer: Timer | None = None
        if not events:
            self.succeed([])
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
        if not self._missing:
            self._end()

    def _end(self) -> None:
        if not self.triggered:
            self._let_go()
            self.succeed([self._given_up.get(event, event._value) for event in self.events])

    def _let_go(self) -> None:
        """Cancel the timer of the deadline, which would otherwise keep this event and all values in memory."""
        if self._timer is not None:
            self._timer.cancel()

    def _deadline(self, _event: Event) -> None:
        for event in self.events:
            self._give_up(event, self._late())
        if not self._missing:
            self._end()

    def cancel(self, outcome: Any) -> None:
        self._let_go()
        for event in self.events:
            self._give_up(event, outcome)

    def _give_up(self, event: Event, outcome: Any) -> None:
        """Cancel a pending event: a process ends with the value `outcome`; any other event never triggers."""
        cancel(event, outcome)
        if event.callbacks and not isinstance(event, simpy.events.Process):
            event.callbacks.remove(self._ended)  # avoids a reference cycle
            self._given_up[event] = outcome
            self._missing -= 1

    def describe(self) -> str:
        return several(self.events, "processes" if isinstance(self.events[0], simpy.events.Process) else "events")


def gather(
    clock: Clock,
    processes: Iterable[Process],
    deadline_s: float | None = None,
    late: Callable[[], Any] = lambda: None,
) -> AllOf:
    """Start processes, and return an event that triggers when all of them have ended; see `AllOf` for its value."""
    return AllOf(clock, clock.processes(processes), deadline_s, late)

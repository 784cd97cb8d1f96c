"""The clock: a SimPy environment with integer nanoseconds and a fixed order of simultaneous events.

Events at the same time run in the order of their priorities, and events of equal priority in the order of their
creation. The priorities, in order, are:

- URGENT and NORMAL, the priorities of SimPy, at which processes start, resume and end;
- SETTLE, at which a medium updates its rates, after all starts and ends of transfers at this time;
- COLLECT, at which inboxes and deadlines check all arrivals at this time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from math import ceil, ulp
from typing import Any, cast

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.core import StopSimulation
from simpy.events import URGENT, Event, EventPriority

from fednet_emu.errors import AlgorithmError, Deadlock, ScenarioError
from fednet_emu.host import rare_garbage_collection
from fednet_emu.kernel.events import Completion, RunningProcess, describe

Process = Generator[Event, Any, Any]
"""A process of an algorithm: a generator that yields events and returns a result."""

SETTLE = EventPriority(2)
COLLECT = EventPriority(3)

NS_PER_S = 1_000_000_000
FOREVER_NS = 1 << 62
"""A time in nanoseconds (146 years) that is later than any event of a run and means "never"."""


def to_ns(duration_s: float, what: str = "a duration") -> int:
    """Convert s to ns, rounded up; a number of ns just above an integer because of rounding errors is rounded down.

    A `ScenarioError`, whose message begins with `what`, is raised if the duration is 2^62 ns or longer.
    """
    exact = duration_s * 1e9
    if not exact < FOREVER_NS:
        raise ScenarioError(f"{what}: too long for the clock, got {duration_s:g} s; 4.6e9 s is the most")
    noise = 4 * ulp(exact)
    return ceil(exact - (noise if noise < 0.25 else 0.25))


def all_to_ns(durations_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Convert each duration [n] from seconds to nanoseconds, as `to_ns` does."""
    to_ns(float(durations_s.max(initial=0.0)))
    exact = durations_s * 1e9
    return np.ceil(exact - np.minimum(4.0 * np.spacing(exact), 0.25)).astype(np.int64)


class Clock(simpy.Environment):
    """Simulated time in integer nanoseconds; `now` is in nanoseconds and `now_s` in seconds."""

    __slots__ = ("_now",)
    _now: int
    now: int
    """Simulated time in nanoseconds."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self._forgotten = 0  # upper bound on the number of forgotten events in the queue
        self._quiet = 0  # upper bound on the number of events that wake no process: forgotten or in the background
        self.asked: Decision | None = None
        """Event for the decision that a process has requested and that the caller of `advance` passes to `answer`; None
        if there is no such request."""
        self.stopping = False
        """If set to True, for example in a signal handler, `run_process` raises a `KeyboardInterrupt` after the current
        event."""

    @property
    def now_s(self) -> float:
        return self._now / NS_PER_S

    def process(self, generator: Process) -> RunningProcess:
        return self.processes([generator])[0]

    def processes(self, generators: Iterable[Process]) -> list[RunningProcess]:
        """Start several processes in the given order, by a single event in the event queue, and return them."""
        start: Event = _Bare()
        start.callbacks, start._ok = [], True
        heappush(self._queue, (self._now, URGENT, next(self._eid), start))
        return [RunningProcess(self, generator, start) for generator in generators]

    def begin(self, generators: Iterable[Process]) -> list[RunningProcess]:
        """Start several processes in the given order, immediately up to the first `yield` of each; return them."""
        return [RunningProcess(self, generator, next(generator)) for generator in generators]

    def sleep(self, duration_s: float) -> Sleep:
        """Return an event that triggers after `duration_s` seconds (0 or more) of simulated time."""
        return self.sleep_until(self._now + to_ns(duration_s))

    def sleep_until(self, time_ns: int) -> Sleep:
        sleep = Sleep(self)
        sleep.complete(None)
        self.schedule(sleep, delay=time_ns - self._now)
        return sleep

    @property
    def is_quiet(self) -> bool:
        """True if the event queue has no event that may resume a process."""
        return not self.waking

    @property
    def waking(self) -> int:
        """Number of events in the event queue that may resume a process."""
        if len(self._queue) > self._quiet:
            self._sweep()
        return len(self._queue) - self._quiet

    def call_at(
        self,
        time_ns: int,
        callback: Callable[[Event], None],
        priority: EventPriority = SETTLE,
        *,
        background: bool = False,
        again: Timer | None = None,
    ) -> Timer:
        """Call `callback` at the time `time_ns`, after all events at this time with a smaller priority number.

        The returned timer can be cancelled. If `again` is given, this timer, which must just have run, is used again. A
        `ValueError` is raised if `time_ns` is in the past.

        If `background` is True, the callback must not resume a process, directly or indirectly. The run is a deadlock
        if the event queue has only background timers.
        """
        if time_ns < self._now:
            raise ValueError(
                f"clock: cannot call back in the past, got {time_ns} ns; {self._now} ns, now, is the earliest"
            )
        if again is None:
            timer: Timer = Timer()
            timer.env, timer._ok = self, True
        else:
            timer = again
        timer.callbacks = [callback]
        if background:
            timer.background, timer.callbacks = True, [timer.to_foreground, callback]
            self._quiet += 1
        heappush(self._queue, (time_ns, priority, next(self._eid), timer))
        return timer

    def forget(self, event: Event) -> None:
        """Mark a scheduled event, whose callbacks must not run any more, for removal from the event queue.

        Marked events are removed together when they are about half of the queue, in constant time on average.
        """
        event.forgotten = True  # type: ignore[attr-defined]
        self._forgotten += 1
        self._quiet += 1
        if self._forgotten > 64 and 2 * self._forgotten > len(self._queue):
            self._sweep()

    def _sweep(self) -> None:
        """Remove events marked by `forget` from the event queue, and count the remaining background timers."""
        queue = self._queue
        queue[:] = [entry for entry in queue if not hasattr(entry[3], "forgotten")]
        heapify(queue)
        self._forgotten = 0
        self._quiet = sum(getattr(entry[3], "background", False) for entry in queue)

    def trigger_now(self, events: list[Event]) -> None:
        """Run the callbacks of `events` immediately, without the event queue.

        Call this method as the last step of a callback. The events must have values and must not have failed. The
        callbacks run as if the events were at the head of the queue: after each event, the urgent events at the current
        time run.
        """
        now_ns, queue = self._now, self._queue
        for event in events:
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            while queue and queue[0][1] == URGENT and queue[0][0] == now_ns:
                self.step()

    def come(self, event: Event, value: Any) -> None:
        """Set the value of one event, and run its callbacks immediately, as `trigger_now` does."""
        event._value = value
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)
        now_ns, queue = self._now, self._queue
        while queue and queue[0][1] == URGENT and queue[0][0] == now_ns:
            self.step()

    def run_process(self, process: Process, until_s: float | None = None) -> Any:
        """Run until `process` has ended, and return its result; return None if the time `until_s` is reached first.

        Raises:
            Deadlock: `process` has not ended, but no event can resume a process any more, even if `until_s` is not
                reached.
            AlgorithmError: a process requests a decision by `ask`, which needs a caller of `advance`.
        """
        main = self.main(process, until_s)
        if self.advance(main):
            what = f"asks a question, got {self.asked}, and no caller answers it"
            raise AlgorithmError("clock.ask", what, "drive the run by Federation.begin and answer", line="")
        return main.value if main.callbacks is None else None

    def main(self, process: Process, until_s: float | None = None) -> RunningProcess:
        """Start the main process, which `advance` runs until the process ends or the time `until_s` is reached."""
        main = self.process(process)
        if until_s is not None:
            self.call_at(to_ns(until_s), StopSimulation.callback, COLLECT, background=True)
        return main

    def ask(self, question: Any) -> Decision:
        """Request a decision: `advance` returns, and the value of the returned event is its caller's decision.

        After `answer`, the requesting process continues before any other event, as if `advance` had not returned. The
        requesting process must therefore be the last process that the current event resumes; otherwise `advance` raises
        an `AlgorithmError`. `question` describes the decision.
        """
        self.asked = Decision(self, question)
        return self.asked

    def answer(self, value: Any) -> None:
        """Pass the requested decision `value` to the requesting process, which continues up to its next `yield`.

        An `AlgorithmError` is raised if this process causes another process to request a decision; see `ask`.
        """
        decision, self.asked = self.asked, None
        assert decision is not None, "a question is open"
        decision._value = value
        callbacks, decision.callbacks = decision.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(decision)
        if self.asked is not None:
            self.asked.check(decision, callbacks)

    def advance(self, main: RunningProcess) -> bool:
        """Run until a process requests a decision (return True), or `main` ends or its time limit is reached (False).

        A `Deadlock` is raised if `main` has not ended, but no event can resume a process any more, and an
        `AlgorithmError` if another process would continue before the requesting process; see `ask`.
        """
        queue = self._queue
        if self.asked is not None:
            return True
        with rare_garbage_collection(), suppress(StopSimulation):
            while main.callbacks is not None and not self.stopping:
                if len(queue) <= self._quiet:  # perhaps no event that may wake a process is left
                    self._sweep()
                    if len(queue) == self._quiet:
                        raise Deadlock(self.now_s, describe(main))
                # SimPy's `step`, inlined; an event without callbacks does not advance the time
                time_ns, _, _, event = heappop(queue)
                callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
                if not callbacks and event._ok:
                    if hasattr(event, "forgotten"):
                        self._forgotten -= 1
                        self._quiet -= 1
                    continue
                self._now = time_ns  # type: ignore[assignment]
                for callback in callbacks:
                    callback(event)
                if not event._ok and not hasattr(event, "_defused"):
                    raise event._value
                if self.asked is not None:
                    self.asked.check(event, callbacks)
                    return True
        if self.stopping:
            raise KeyboardInterrupt
        return False


Clock.now = Clock._now
"""Replacement of SimPy's property by direct access to the attribute, which is much faster."""


class _Bare(Event):
    """Event with the value None; it skips the constructor of `Event`, which halves the time to create an event."""

    __init__ = object.__init__
    _value: Any = None


class Timer(_Bare):
    """Event that calls a function once at a given time, unless the event is cancelled before."""

    background = False
    """Whether the callback of the timer resumes no process."""

    def to_foreground(self, _event: Event | None = None) -> None:
        """Declare that the callback of the timer may resume a process, so that the timer prevents a deadlock."""
        if self.background:
            self.background = False
            cast("Clock", self.env)._quiet -= 1

    def cancel(self) -> None:
        """Cancel the timer, and release its callback; no effect after the callback has run."""
        if self.callbacks:
            self.callbacks.clear()
            if self.background:
                self.to_foreground()
            cast("Clock", self.env).forget(self)


class Decision(Completion):
    """Event for a requested decision; its value is the decision of the caller of `Clock.advance`."""

    def __init__(self, clock: Clock, question: Any) -> None:
        super().__init__(clock)
        self.question = question
        self._asker = clock.active_process
        self._woken_by = None if self._asker is None else self._asker.target

    def check(self, event: Event, callbacks: list[Callable[[Event], None]]) -> None:
        """Raise an `AlgorithmError` unless the requesting process is the last process that `event` resumes.

        If another process were later in the callbacks of `event`, it would run before the decision instead of after it.
        """
        asker, waiting = self._asker, self.callbacks or []
        last, waits = (getattr(its[-1], "__self__", None) if its else None for its in (callbacks, waiting))
        if asker is None or asker is not last or asker is not waits or self._woken_by is not event:
            what = f"asks while other processes of the same instant are pending, got {self}"
            remedy = "let the process wait for an event of its own before the question, and for the answer at once"
            raise AlgorithmError("clock.ask", what, remedy, line="")

    def describe(self) -> str:
        return f"an answer to {self.question!r}"

    def __repr__(self) -> str:
        return f"{self.question!r}"


class Sleep(Completion):
    """Event that triggers after a duration of simulated time."""

    def cancel(self, outcome: Any) -> None:
        """Remove the event from the event queue, unless another process also waits for the event."""
        if self.callbacks is not None and len(self.callbacks) == 1:
            cast("Clock", self.env).forget(self)

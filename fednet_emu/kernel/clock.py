"""The clock: a SimPy environment with integer nanoseconds and a fixed order of simultaneous events.

Events of the same instant run in the order (priority, creation). The priorities, in order, are:

- URGENT and NORMAL, the priorities of SimPy: processes start, resume and end;
- SETTLE: a medium updates the rates, after all starts and ends of transfers at this instant;
- COLLECT: an inbox or a deadline checks all arrivals at this instant.
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
"""A time in nanoseconds (146 years) that is later than any event of a run; it stands for "never"."""


def to_ns(duration_s: float, what: str = "a duration") -> int:
    """Convert s to ns, rounded up; a product that rounding errors put just above an integer counts as this integer."""
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
        """The open question, which the caller of `advance` answers by calling `answer`; None if no question is open."""
        self.stopping = False
        """Set to True, e.g. in a signal handler, to end `run_process` after the current event with a
        KeyboardInterrupt."""

    @property
    def now_s(self) -> float:
        return self._now / NS_PER_S

    def process(self, generator: Process) -> RunningProcess:
        return self.processes([generator])[0]

    def processes(self, generators: Iterable[Process]) -> list[RunningProcess]:
        """Start several processes in the given order, by a single event in the queue."""
        start: Event = _Bare()
        start.callbacks, start._ok = [], True
        heappush(self._queue, (self._now, URGENT, next(self._eid), start))
        return [RunningProcess(self, generator, start) for generator in generators]

    def begin(self, generators: Iterable[Process]) -> list[RunningProcess]:
        """Start several processes in the given order, each of which runs immediately up to its first `yield`."""
        return [RunningProcess(self, generator, next(generator)) for generator in generators]

    def sleep(self, duration_s: float) -> Sleep:
        """Return an event that triggers after `duration_s` seconds (0 or more)."""
        return self.sleep_until(self._now + to_ns(duration_s))

    def sleep_until(self, time_ns: int) -> Sleep:
        sleep = Sleep(self)
        sleep.complete(None)
        self.schedule(sleep, delay=time_ns - self._now)
        return sleep

    @property
    def is_quiet(self) -> bool:
        """True if the queue holds no event that may wake a process."""
        return not self.waking

    @property
    def waking(self) -> int:
        """Number of events in the queue that may wake a process."""
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
        """Call `callback` at `time_ns`, after all events of that instant with a smaller priority number.

        The returned timer can be cancelled. If `again` is given, that timer is reused; it must just have run.

        A timer with `background` set must not wake a process, directly or indirectly. The run is a deadlock if only
        background timers are left.
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
        """Mark a scheduled event, whose callbacks must not run any more, for removal from the queue.

        Marked events are removed together when they are about half of the queue, so that a removal takes constant time
        on average.
        """
        event.forgotten = True  # type: ignore[attr-defined]
        self._forgotten += 1
        self._quiet += 1
        if self._forgotten > 64 and 2 * self._forgotten > len(self._queue):
            self._sweep()

    def _sweep(self) -> None:
        """Remove forgotten events from the queue, and count the background timers that remain."""
        queue = self._queue
        queue[:] = [entry for entry in queue if not hasattr(entry[3], "forgotten")]
        heapify(queue)
        self._forgotten = 0
        self._quiet = sum(getattr(entry[3], "background", False) for entry in queue)

    def trigger_now(self, events: list[Event]) -> None:
        """Run the callbacks of `events` immediately, without the event queue.

        Call this method as the last step of a callback. The events must have values and must not have failed. They run
        as if they were at the head of the queue: after each of them, the urgent events of this instant run.
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
        """Run until `process` has ended, and return its result; return None if `until_s` is reached first.

        Raises:
            Deadlock: no event can wake a process any more, but `process` has not ended; raised even if `until_s` is
                later.
            AlgorithmError: a process asks a question, which `run_process` cannot answer.
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
        """Stop `advance` at the current time; return an event whose value is the answer of the caller of `advance`.

        With the answer, the asking process continues before any other event, as if there had been no stop. The asking
        process must therefore be the last process that the current event wakes; otherwise `advance` raises an error.
        """
        self.asked = Decision(self, question)
        return self.asked

    def answer(self, value: Any) -> None:
        """Answer the open question: the process that asked it continues up to its next `yield`.

        Raises:
            AlgorithmError: the resumed process makes another process ask a question; see `ask`.
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
        """Run until a question is open (return True), or until `main` has ended or its time limit is reached (False).

        Raises:
            Deadlock: as for `run_process`.
            AlgorithmError: other processes would continue before the asking process, see `ask`.
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
"""Reads the attribute directly, because SimPy's property is much slower."""


class _Bare(Event):
    """Event without a value; it skips the constructor of `Event`, which halves the time needed to create an event."""

    __init__ = object.__init__
    _value: Any = None


class Timer(_Bare):
    """An event that runs its callback once, unless the event is cancelled before."""

    background = False
    """Whether the timer wakes no process."""

    def to_foreground(self, _event: Event | None = None) -> None:
        """Declare that the timer may wake a process."""
        if self.background:
            self.background = False
            cast("Clock", self.env)._quiet -= 1

    def cancel(self) -> None:
        """Drop the callback and its references; no effect after the callback has run."""
        if self.callbacks:
            self.callbacks.clear()
            if self.background:
                self.to_foreground()
            cast("Clock", self.env).forget(self)


class Decision(Completion):
    """Event for an open question; its value is the answer given by the caller of `Clock.advance`."""

    def __init__(self, clock: Clock, question: Any) -> None:
        super().__init__(clock)
        self.question = question
        self._asker = clock.active_process
        self._woken_by = None if self._asker is None else self._asker.target

    def check(self, event: Event, callbacks: list[Callable[[Event], None]]) -> None:
        """Raise an `AlgorithmError` unless the asking process is the last one in the callbacks of `event`.

        If another process came later in the callbacks of `event`, it would run before the answer instead of after it.
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
    """Event that triggers after a duration."""

    def cancel(self, outcome: Any) -> None:
        """Remove the event from the queue, unless another process also waits for the event."""
        if self.callbacks is not None and len(self.callbacks) == 1:
            cast("Clock", self.env).forget(self)

"""A SimPy process that can be cancelled wherever it waits, passes exceptions on unchanged, and resumes faster.

SimPy copies an exception as `type(e)(*e.args)` at each process boundary, which fails for a class whose constructor
takes other arguments. Here the exception itself goes on, with its attributes and the traceback of where it was raised.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappush
from typing import Any, cast

import simpy
from simpy.events import NORMAL, Event

from fednet_emu.errors import AlgorithmError


class RunningProcess(simpy.events.Process):
    """Event that triggers when a generator has ended; its value is the generator's result, or the interruption's cause.

    Args:
        clock: simulated time.
        generator: the generator to run.
        start: the event that starts it, or the first event that it waits for if it has begun.
    """

    def __init__(self, clock: simpy.Environment, generator: Generator[Event, Any, Any], start: Event) -> None:
        if not hasattr(generator, "throw"):
            raise AlgorithmError("process", f"is no generator, got {generator!r}", "a function with `yield` makes one")
        self.env = clock  # what SimPy's own does, with fewer calls
        self.callbacks = []
        self._generator = generator
        self._target = start
        start.callbacks.append(self._resume)

    def _resume(self, event: Event) -> None:
        """Send the value of an event into the generator and run it up to its next `yield`."""
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
                event.late = True  # it had come before somebody waited for it
        except StopIteration as end:
            self._end(end.value, ok=True)
        except simpy.Interrupt as cancelled:
            cancelled.__traceback__ = None  # it would keep this frame, and all that the generator held, in a cycle
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
        heappush(clock._queue, (clock._now, NORMAL, next(clock._eid), self))  # what SimPy's `schedule` does


def _explained(name: str, waits_for: object, error: AttributeError) -> Exception:
    """Return a clear error if the generator yielded something that is not an event; else the error unchanged."""
    if isinstance(waits_for, Event):
        return error
    return AlgorithmError(name, f"yields what is no event, got {waits_for!r}", "yield what a federation's verbs return")

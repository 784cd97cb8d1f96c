"""A SimPy process that can be cancelled while it waits, propagates exceptions unchanged, and resumes faster.

SimPy copies an exception as `type(e)(*e.args)` at each process boundary, which fails for a class whose constructor
takes other arguments. Here the exception itself is propagated, with its attributes and its original traceback.
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

    `start` is the event that starts the generator, or the first event that a started generator waits for.
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
            cancelled.__traceback__ = None  # it would keep this frame and the objects of the generator in a cycle
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
        heappush(clock._queue, (clock._now, NORMAL, next(clock._eid), self))  # as SimPy's `schedule`


def _explained(name: str, waits_for: object, error: AttributeError) -> Exception:
    """Replace the error if the generator has yielded something that is not an event."""
    if isinstance(waits_for, Event):
        return error
    return AlgorithmError(name, f"yields what is no event, got {waits_for!r}", "yield what a federation's verbs return")

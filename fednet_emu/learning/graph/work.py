"""What makes the value of a Deferred: a cheap function, or a part of another value or of the result of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ref

from fednet_emu.learning.graph.accumulation import Accumulate
from fednet_emu.learning.graph.deferred import Deferred

PARAMS, SQUARE = attrgetter("params"), attrgetter("square")
"""What makes the parts of the result of a training job beside its loss, which is the value of the job itself."""


class Call(NamedTuple):
    """A function and its arguments, with Deferreds among them."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


class Pick(NamedTuple):
    """A part of one value, extracted as soon as the value is known."""

    function: Callable[[Any], Any]
    args: Sequence[Any]


class Part(NamedTuple):
    """A part of the result of a training job, known as soon as the job has ended and at no other time."""

    function: Callable[[Any], Any]
    args: Sequence[Any]


def sums_of(jobs: Iterable[Deferred]) -> list[Accumulate]:
    """The accumulations that wait for the model of one of these jobs."""
    models = (part for job in jobs for part in alive(job._waiters) if part._waiters and trained_by(part) is job)
    return [node._work for part in models for node in alive(part._waiters) if type(node._work) is Accumulate]


def trained_by(part: Deferred) -> Deferred | None:
    """The training job of which a Deferred is the model, if it is one."""
    work = part._work
    return work.args[0] if type(work) is Part and work.function is PARAMS else None


def alive(nodes: Sequence[ref[Deferred]] | None) -> list[Deferred]:
    """The nodes that something still refers to."""
    return [node for me in nodes or () if (node := me()) is not None]

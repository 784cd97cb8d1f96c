"""Computations that produce the value of a Deferred: a cheap function, or a part of a value or of a job's result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ref

from fednet_emu.learning.graph.accumulation import Accumulate
from fednet_emu.learning.graph.deferred import Deferred, values_of

PARAMS, SQUARE = attrgetter("params"), attrgetter("square")
"""Functions that return a part of a job's result. The loss needs no function, because it is the value of the job's
node."""


class Call(NamedTuple):
    """A function and its arguments, some of which are Deferreds."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


class Pick(NamedTuple):
    """A part of one value, extracted as soon as the value is known."""

    function: Callable[[Any], Any]
    args: Sequence[Any]


class Part(NamedTuple):
    """A part of the result of a training job, which is available only at the moment when the job ends."""

    function: Callable[[Any], Any]
    args: Sequence[Any]


class OfCohort(NamedTuple):
    """The parameters of a device after the training of a cohort, known as soon as the device's stack has ended."""

    cohort: Deferred


class Trained(NamedTuple):
    """Result of a training job: the parameters and the mean loss of its steps."""

    params: Deferred
    loss: Deferred


class Measured(NamedTuple):
    """Result of a job that requests squares: `square` is the mean squared loss of all samples in all steps."""

    params: Deferred
    loss: Deferred
    square: Deferred


def evaluated(node: Deferred) -> Any:
    """Return the value of a node whose inputs are known, or `PENDING` while an accumulation waits for its next part."""
    work = node._work
    try:
        return work.advance() if type(work) is Accumulate else work.function(*values_of(work.args))
    except Exception as error:
        name = getattr(work.function, "__qualname__", work.function)
        error.add_note(f"in call {name!s} (deferred {node.number})")
        raise


def alive(nodes: Sequence[ref[Deferred]] | None) -> list[Deferred]:
    """Return the nodes that are still referenced."""
    return [node for me in nodes or () if (node := me()) is not None]

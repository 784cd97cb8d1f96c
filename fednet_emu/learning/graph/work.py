"""The cheap computations that produce the value of a Deferred, and the results of training jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ref

from fednet_emu.learning.graph.accumulation import Accumulate
from fednet_emu.learning.graph.deferred import Deferred, values_of
from fednet_emu.learning.graph.engine import Engine, Results, TrainResult
from fednet_emu.learning.graph.jobs import ResolvedJob


def trained(engine: Engine, waiting: Mapping[ResolvedJob, Deferred]) -> Results:
    """Yield the jobs in `waiting` with their results.

    For jobs whose models are only summed, an engine may return only the mean of their models.
    """
    yield from _means(engine, waiting)
    yield from engine.run(list(waiting))


def _means(engine: Engine, waiting: Mapping[ResolvedJob, Deferred]) -> Results:
    """Yield the jobs whose models are only summed, with the means that the engine has computed for groups of jobs."""
    job_of: dict[Deferred | None, ResolvedJob] = {node: resolved for resolved, node in waiting.items()}
    for total in _sums_of(waiting.values()):
        mean = total.as_mean()
        if mean is None:
            continue
        jobs = [job_of[node] for part in mean.parts if (node := _trained_by(part)) in job_of]
        groups = engine.means(jobs, mean.w.value, mean.weights) if len(jobs) == len(mean.parts) else []
        if groups:
            total.put_together([group.places for group in groups])
        for group in groups:
            for place, told in zip(group.places, group.told, strict=True):
                yield jobs[place], TrainResult(group.mean, *told)


def _sums_of(jobs: Iterable[Deferred]) -> list[Accumulate]:
    models = (part for job in jobs for part in alive(job._waiters) if part._waiters and _trained_by(part) is job)
    return [node._work for part in models for node in alive(part._waiters) if type(node._work) is Accumulate]


def _trained_by(part: Deferred) -> Deferred | None:
    work = part._work
    return work.args[0] if type(work) is Part and work.function is PARAMS else None


PARAMS, SQUARE = attrgetter("params"), attrgetter("square")
"""Functions that return the parameters or the mean squared loss from a job's result. The mean loss needs no function,
because it is the value of the job's own node."""


class Call(NamedTuple):
    """A function and its arguments, some of which are Deferreds."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


class Pick(NamedTuple):
    """A part of the value of another node, extracted as soon as the value is known."""

    function: Callable[[Any], Any]
    args: Sequence[Any]


class Part(NamedTuple):
    """A part of the result of a training job. The result is available only at the moment when the job ends."""

    function: Callable[[Any], Any]
    args: Sequence[Any]


class OfCohort(NamedTuple):
    """The trained parameters of a device of a cohort. They are known as soon as the device's stack is trained."""

    cohort: Deferred


class Trained(NamedTuple):
    """Result of a training job: the parameters, and the mean loss over its steps."""

    params: Deferred
    loss: Deferred


class Measured(NamedTuple):
    """Result of a training job that requests squared losses.

    `square` is the mean of the squared losses of all samples in all steps.
    """

    params: Deferred
    loss: Deferred
    square: Deferred


def evaluated(node: Deferred) -> Any:
    """Compute the value of a node whose inputs are known.

    The result is `PENDING` if an accumulation waits for its next part.
    """
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

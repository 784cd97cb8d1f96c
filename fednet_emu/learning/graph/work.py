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
    """Yield the results of the jobs in `waiting`; models used only in a weighted sum may be replaced by their mean."""
    yield from _means(engine, waiting)
    yield from engine.run(list(waiting))


def _means(engine: Engine, waiting: Mapping[ResolvedJob, Deferred]) -> Results:
    """Yield jobs whose trained models are only summed, each with the mean model that the engine returns for a group."""
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
    args: Sequence[Any]


class Pick(Call):
    """An attribute or entry of the value of another node, which is extracted as soon as that value is known."""

    __slots__ = ()


class Part(Call):
    """One field of the result of a training job, extracted when the job ends because the whole result is not kept."""

    __slots__ = ()


class OfCohort(NamedTuple):
    """The trained parameters of a device of a cohort, known as soon as its group of jobs has been trained."""

    cohort: Deferred


class Trained(NamedTuple):
    """Deferred results of a training job: the parameters, and the mean loss over the steps."""

    params: Deferred
    loss: Deferred


class Measured(NamedTuple):
    """Deferred results of a training job; `square` is the square of the loss, averaged over samples and steps."""

    params: Deferred
    loss: Deferred
    square: Deferred


def evaluated(node: Deferred) -> Any:
    """Return the value of a node with known inputs, or `PENDING` if it is an accumulation without its next input."""
    work = node._work
    try:
        return work.advance() if type(work) is Accumulate else work.function(*values_of(work.args))
    except Exception as error:
        name = getattr(work.function, "__qualname__", work.function)
        error.add_note(f"in call {name!s} (deferred {node.number})")
        raise


def alive(nodes: Sequence[ref[Deferred]] | None) -> list[Deferred]:
    """Return the nodes to which the weak references `nodes` refer, except those that no longer exist."""
    return [node for me in nodes or () if (node := me()) is not None]

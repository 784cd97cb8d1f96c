"""Results of a wavefront, which is a set of jobs that are trained together.

If possible, an engine sums models where they are trained, and returns only their mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fednet_emu.learning.graph.accumulation import Accumulate
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.engine import Engine, Results, TrainResult
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.learning.graph.work import PARAMS, Part, alive


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

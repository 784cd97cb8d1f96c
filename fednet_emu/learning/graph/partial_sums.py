"""Sums of which an engine elsewhere makes parts, so that means come back instead of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from weakref import ref

from fednet_emu.learning.graph.accumulation import Accumulate
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.engine import EngineElsewhere, Take, TrainResult
from fednet_emu.learning.graph.jobs import ResolvedJob

JobOf = Callable[[Deferred], Deferred | None]
"""The training job of which a Deferred is the parameters; None if it is of none."""


def run_sums(
    engine: EngineElsewhere,
    jobs: Sequence[ResolvedJob],
    waiting: Mapping[int, Deferred],
    sums: Sequence[ref[Deferred]],
    job_of: JobOf,
    take: Take,
) -> list[ref[Deferred]]:
    """Let the engine make means of those jobs of which only a sum is asked for; in the sum, each stands for its group.

    Args:
        engine: has begun the jobs.
        jobs: all jobs of a wavefront.
        waiting: their nodes, by the place of the job.
        sums: accumulations that are not known yet.
        job_of: finds the job of a part of a sum.
        take: is given the mean as the result of each job of the group.

    Returns:
        The sums that still wait for something else.
    """
    place_of = {id(node): place for place, node in waiting.items()}
    left = []
    for me in sums:
        node = me()
        if node is None or not isinstance(node._work, Accumulate):
            continue
        found = node._work.as_mean()
        places = [] if found is None else [place_of.get(id(job_of(part)), -1) for part in found.parts]
        if found is None or min(places) < 0 or any(part.is_shared for part in found.parts):
            left.append(me)
            continue
        groups = engine.means([jobs[place] for place in places], found.w.value, found.weights)
        if groups is None:
            continue
        node._work.put_together([group.places for group in groups])
        for group in groups:
            for own, told in zip(group.places, group.told, strict=True):
                take(places[own], TrainResult(group.mean, *told))
    return left

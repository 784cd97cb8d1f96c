"""The interface of engines, which run training jobs, and the check of every result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from fednet_emu.errors import Diverged
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainJob


class TrainResult(NamedTuple):
    """Parameters [size] after local training, in their own memory, and the mean loss of the steps.

    `square` is the mean of the squared losses of all samples of all steps, each before its step; nan unless the job
    asks for it.
    """

    params: Tensor
    loss: float
    square: float = math.nan


Take = Callable[[int, TrainResult], None]
"""Takes the result of a job, with the job's place among all; it is always called in the thread that runs the jobs."""


class Engine(Protocol):
    """Runs training jobs that do not depend on each other.

    Up to float rounding, a result depends only on its own job, not on the other jobs, their order or their number.
    """

    def run(self, jobs: Sequence[ResolvedJob], take: Take) -> None:
        """Train the jobs; each result is handed over as soon as it is known, in any order, and not kept.

        Results that are known before an error are handed over all the same.

        Raises:
            Diverged: a loss or a parameter stopped being finite; the text names the job and the step.
        """
        ...

    def close(self) -> None:
        """End the threads that train, which a later `run` starts anew, or for good what trains elsewhere."""
        ...


class Group(NamedTuple):
    """Jobs of which only a mean is known: their places, the weighted mean [size] of their parameters, and the rest.

    `told` is the loss and the square of each.
    """

    places: list[int]
    mean: Tensor
    told: list[tuple[float, float]]


@runtime_checkable
class EngineElsewhere(Engine, Protocol):
    """An engine that trains while the caller goes on, and that can add up where it trains."""

    def begin(self, resolved: ResolvedJob) -> None:
        """Begin to train a job whose inputs are known; `run` then only waits for it."""
        ...

    def begin_all(self, jobs: Sequence[ResolvedJob]) -> None:
        """Begin to train all jobs of a wavefront; whatever else was begun is no longer wanted."""
        ...

    def means(self, jobs: Sequence[ResolvedJob], w: Tensor, weights: Sequence[float]) -> list[Group] | None:
        """Weighted means of what jobs that were begun come to, near w, in groups; None if one of them fails."""
        ...


def at(places: Sequence[int], take: Take) -> Take:
    """Hands over the results of some of the jobs, whose places among all of them are given."""

    def take_at(place: int, result: TrainResult) -> None:
        take(places[place], result)

    return take_at


def results_of(engine: Engine, jobs: Sequence[ResolvedJob]) -> list[TrainResult]:
    """All results of an engine, in the order of the jobs."""
    results: dict[int, TrainResult] = {}
    engine.run(jobs, results.__setitem__)
    return [results[place] for place in range(len(jobs))]


def checked_result(job: TrainJob, losses: Tensor, params: Tensor, squares: Tensor | None = None) -> TrainResult:
    """The result of a job, given the loss [steps] before each step and the parameters [size] after the last.

    With `squares`, the sum [steps] of the squared losses of each batch, their mean over all samples is in it, too.

    Raises:
        Diverged: a loss or a parameter is not finite.
    """
    mean = float(losses.double().mean())
    if not torch.isfinite(params.sum() + mean) and not (torch.isfinite(losses).all() and torch.isfinite(params).all()):
        raise Diverged(_divergence(job, losses))
    return TrainResult(params, mean, math.nan if squares is None else mean_square(job, float(squares.double().sum())))


def mean_square(job: TrainJob, total: float) -> float:
    """The mean square of the samples' losses in all steps of a job, from the sum of all squares."""
    return total / job.plan.n_samples_processed(job.n_samples)


def _divergence(job: TrainJob, losses: Tensor) -> str:
    advice = f"with lr={job.plan.lr:g}; lower the learning rate or look for extreme values in the data"
    bad = (~torch.isfinite(losses)).nonzero()
    if len(bad) == 0:
        return f"{job.label}: training diverges, got parameters that are not finite after step {len(losses)} {advice}"
    step = int(bad[0])
    when = f"after step {step}" if step else "before the first step"
    return f"{job.label}: training diverges, got loss {float(losses[step]):g} {when} {advice}"

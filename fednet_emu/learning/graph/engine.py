"""The interface of engines, which run training jobs, and the check of every result."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fednet_emu.errors import Diverged
from fednet_emu.learning.graph.cohort import Columns
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainJob


class TrainResult(NamedTuple):
    """Parameters [size] after local training, in separate memory, and the mean loss of the steps.

    `square` is the mean of the squared losses of all samples of all steps, each loss taken before its step; nan unless
    the job requests it.
    """

    params: Tensor
    loss: float
    square: float = math.nan


Results = Iterator[tuple[ResolvedJob, TrainResult]]
"""Jobs, each with its result."""


CohortResults = Iterator[tuple[Sequence[int], Sequence[Tensor]]]
"""Indices of the jobs of a stack, and the parameters [size] of each job after training."""


Ended = Iterator[tuple[int, float, float]]
"""Index, mean loss and mean squared loss of each job that has ended."""


class Group(NamedTuple):
    """Indices of jobs whose trained parameters are known only as a weighted mean, and this mean.

    `mean` has shape [size]. `told` holds the mean loss and the mean squared loss of each job.
    """

    places: list[int]
    mean: Tensor
    told: list[tuple[float, float]]


class Engine(ABC):
    """Runs training jobs that do not depend on each other.

    Up to floating-point rounding, a result depends only on its own job, not on the number or order of other jobs. An
    engine that uses other processes may train while the caller continues, and may average models in these processes.
    Such an engine overrides `begin`, `begin_all` and `means`.
    """

    @abstractmethod
    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        """Train the jobs, and yield each job with its result as soon as the result is known, in any order.

        The engine keeps no result that it has yielded. Results that are known before an error are still yielded.

        Raises:
            Diverged: a loss or a parameter is no longer finite. The message names the job and the step.
        """

    def cut(self, jobs: Sequence[ResolvedJob]) -> list[list[ResolvedJob]]:
        """Divide the jobs into stacks that may be trained in parallel. The stacks depend only on the jobs."""
        return [[resolved] for resolved in jobs]

    def is_alone(self, resolved: ResolvedJob) -> bool:
        """Return True if `cut` puts this job into a stack of its own, whatever the other jobs are."""
        return True

    def run_stack(self, jobs: Sequence[ResolvedJob]) -> Results:
        """Train one of the stacks that `cut` returned; otherwise like `run`."""
        return self.run(jobs)

    def train_into(self, jobs: Sequence[ResolvedJob], out: Tensor) -> Ended:
        """Train a stack like `run_stack`, but write the parameters of each job into its row of `out` [jobs, size].

        Each row of `out` must begin at a cache line, in memory of the torch device of the jobs.
        """
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        for resolved, result in self.run_stack(jobs):
            place = place_of[resolved]
            out[place] = result.params
            yield place, result.loss, result.square

    def begin(self, job: TrainJob) -> None:  # noqa: B027
        """Start a job whose inputs are known, without waiting for its end. By default, only `run` trains the job."""

    def begin_all(self, jobs: Sequence[ResolvedJob]) -> None:  # noqa: B027
        """Start all jobs of a wavefront, possibly before `run` is called for them; drop all other started jobs.

        Jobs started by `begin` between `begin_all` and `run` belong to the next wavefront.
        """

    def takes(self, columns: Columns) -> bool:
        """Return True if stacks of such jobs are packed faster as a `Columns` record than as single jobs."""
        return False

    def cut_cohort(self, columns: Columns) -> list[list[int]]:
        """Return the job indices of each stack. The stacks are the same as those of `cut`."""
        jobs = columns.jobs()
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        return [[place_of[resolved] for resolved in stack] for stack in self.cut(jobs)]

    def begin_cohort(self, columns: Columns) -> None:  # noqa: B027
        """Start a cohort that is a whole wavefront, possibly before `run_cohort` is called."""

    def run_cohort(self, columns: Columns) -> CohortResults:
        """Train a cohort that is a whole wavefront. By default, its jobs are trained as single jobs.

        Raises:
            Diverged: a loss or a parameter is no longer finite. The message names the job and the step.
        """
        jobs = columns.jobs()
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        for resolved, result in self.run(jobs):
            yield [place_of[resolved]], [result.params]

    def means(self, jobs: Sequence[ResolvedJob], w: Tensor, weights: Sequence[float]) -> list[Group]:
        """Return weighted means of the results of started jobs, each with the indices of its jobs.

        A mean is computed from the differences between the results and `w`. `run` is not called for jobs in a group. By
        default, or if a job fails, there are no groups, and `run` yields every result.
        """
        return []

    def close(self) -> None:  # noqa: B027
        """Stop the training threads, which a later `run` starts again; a Ray cluster cannot be used again."""

    @property
    def choices(self) -> Sequence[str]:
        """Descriptions of the choices that the engine has made, in chronological order."""
        return ()

    @property
    def statistics(self) -> Mapping[str, float]:
        """Measurements of an engine that trains in other processes; empty for other engines."""
        return {}


def checked_result(job: TrainJob, losses: Tensor, params: Tensor, squares: Tensor | None = None) -> TrainResult:
    """Return the result of a job from the losses [steps] before each step and the final parameters [size].

    With `squares` [steps], the sums of squared losses per batch, the result includes the mean squared loss per sample.
    """
    mean = float(losses.double().mean())
    if not torch.isfinite(params.sum() + mean) and not (torch.isfinite(losses).all() and torch.isfinite(params).all()):
        raise Diverged(_divergence(job, losses))
    return TrainResult(params, mean, math.nan if squares is None else mean_square(job, float(squares.double().sum())))


def mean_square(job: TrainJob, total: float) -> float:
    """Return the mean squared loss per sample over all steps of a job, from the sum of all squared losses."""
    return total / job.plan.n_samples_processed(job.n_samples)


def _divergence(job: TrainJob, losses: Tensor) -> str:
    advice = f"with lr={job.plan.lr:g}; lower the learning rate or look for extreme values in the data"
    bad = (~torch.isfinite(losses)).nonzero()
    if len(bad) == 0:
        return f"{job.label}: training diverges, got parameters that are not finite after step {len(losses)} {advice}"
    step = int(bad[0])
    when = f"after step {step}" if step else "before the first step"
    return f"{job.label}: training diverges, got loss {float(losses[step]):g} {when} {advice}"

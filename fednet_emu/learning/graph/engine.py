"""The interface of engines, which execute training jobs, and the check of their results."""

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
    """Result of a training job: the parameters [size] after training, and the mean loss over the steps.

    The parameters are in separate memory. `square` is the mean of the squared losses of the samples in all steps, where
    a loss is computed before the step; nan unless the job requests it.
    """

    params: Tensor
    loss: float
    square: float = math.nan


Results = Iterator[tuple[ResolvedJob, TrainResult]]
"""Jobs, each with its result."""


CohortResults = Iterator[tuple[Sequence[int], Sequence[Tensor]]]
"""For each stack of jobs, the indices of the jobs and their parameters [size] after training."""


Ended = Iterator[tuple[int, float, float]]
"""For each completed job, its index, mean loss and mean squared loss."""


class Group(NamedTuple):
    """A group of jobs whose trained parameters are known only as their weighted mean.

    The weighted mean has the shape [size]. `told` holds the mean loss and the mean squared loss of each job.
    """

    places: list[int]
    mean: Tensor
    told: list[tuple[float, float]]


class Engine(ABC):
    """Base class of engines, which execute training jobs that do not depend on each other.

    Apart from floating-point rounding, the result of a job does not depend on the number or order of other jobs. An
    engine that uses other processes may train while the caller continues, and may average models in these processes.
    Such an engine overrides `begin`, `begin_all` and `means`.
    """

    @abstractmethod
    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        """Train the jobs, and yield each job with its result as soon as the result is known. The order is arbitrary.

        The engine keeps no reference to a result that it has yielded. Results that are known before an error are still
        yielded.

        Raises:
            Diverged: a loss or a parameter is no longer finite. The message names the job and the step.
        """

    def cut(self, jobs: Sequence[ResolvedJob]) -> list[list[ResolvedJob]]:
        """Divide jobs into stacks that may be trained in parallel. The stacks depend only on the jobs."""
        return [[resolved] for resolved in jobs]

    def is_alone(self, resolved: ResolvedJob) -> bool:
        """Return True if `cut` always puts this job into a stack of its own, regardless of the other jobs."""
        return True

    def run_stack(self, jobs: Sequence[ResolvedJob]) -> Results:
        """Train one of the stacks that `cut` has returned. Otherwise, the method is like `run`."""
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
        """Start a job whose inputs are known, without waiting for its end.

        By default, this method does nothing, and the job is trained by `run`.
        """

    def begin_all(self, jobs: Sequence[ResolvedJob]) -> None:  # noqa: B027
        """Start all jobs of a wavefront before `run` is called for them, and drop all other started jobs.

        A job that is started by `begin` between the calls of `begin_all` and `run` belongs to the next wavefront.
        """

    def takes(self, columns: Columns) -> bool:
        """Return True if stacks of the cohort's jobs are packed faster as a `Columns` record than as single jobs."""
        return False

    def cut_cohort(self, columns: Columns) -> list[list[int]]:
        """Return the job indices of each stack into which `cut` would divide the jobs of a cohort."""
        jobs = columns.jobs()
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        return [[place_of[resolved] for resolved in stack] for stack in self.cut(jobs)]

    def begin_cohort(self, columns: Columns) -> None:  # noqa: B027
        """Start training a cohort that forms a whole wavefront, before `run_cohort` is called."""

    def run_cohort(self, columns: Columns) -> CohortResults:
        """Train a cohort that forms a whole wavefront. By default, its jobs are trained as single jobs.

        Raises:
            Diverged: a loss or a parameter is no longer finite. The message names the job and the step.
        """
        jobs = columns.jobs()
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        for resolved, result in self.run(jobs):
            yield [place_of[resolved]], [result.params]

    def means(self, jobs: Sequence[ResolvedJob], w: Tensor, weights: Sequence[float]) -> list[Group]:
        """Return weighted means of the models that started jobs have trained, each with the indices of its jobs.

        A mean is computed from the differences between the models and `w`. For jobs in a group, `run` is not called. By
        default, or if a job fails, there are no groups, and `run` yields the result of every job.
        """
        return []

    def close(self) -> None:  # noqa: B027
        """Stop the training threads.

        A later call of `run` starts them again. A Ray cluster, however, cannot be used again.
        """

    @property
    def choices(self) -> Sequence[str]:
        """Descriptions of the choices that the engine has made so far, in chronological order."""
        return ()

    @property
    def statistics(self) -> Mapping[str, float]:
        """Measurements of an engine that trains in other processes; empty for other engines."""
        return {}


def checked_result(job: TrainJob, losses: Tensor, params: Tensor, squares: Tensor | None = None) -> TrainResult:
    """Return the result of a job, after checking that its losses and parameters are finite.

    `losses` [steps] are the losses before each step. If `squares` [steps], the sums of the squared losses in each
    batch, are given, the result includes the mean squared loss per sample.
    """
    mean = float(losses.double().mean())
    if not torch.isfinite(params.sum() + mean) and not (torch.isfinite(losses).all() and torch.isfinite(params).all()):
        raise Diverged(_divergence(job, losses))
    return TrainResult(params, mean, math.nan if squares is None else mean_square(job, float(squares.double().sum())))


def mean_square(job: TrainJob, total: float) -> float:
    """Return a job's mean squared loss per sample over all steps, from the sum of the squared losses."""
    return total / job.plan.n_samples_processed(job.n_samples)


def _divergence(job: TrainJob, losses: Tensor) -> str:
    advice = f"with lr={job.plan.lr:g}; lower the learning rate or look for extreme values in the data"
    bad = (~torch.isfinite(losses)).nonzero()
    if len(bad) == 0:
        return f"{job.label}: training diverges, got parameters that are not finite after step {len(losses)} {advice}"
    step = int(bad[0])
    when = f"after step {step}" if step else "before the first step"
    return f"{job.label}: training diverges, got loss {float(losses[step]):g} {when} {advice}"

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

    The parameters are in separate memory. `square` is the mean squared loss of the samples over all steps, where the
    losses of a step are computed before its update. It is nan if the job does not request it.
    """

    params: Tensor
    loss: float
    square: float = math.nan


Results = Iterator[tuple[ResolvedJob, TrainResult]]
"""Iterator over pairs of a training job and its result."""


CohortResults = Iterator[tuple[Sequence[int], Sequence[Tensor]]]
"""Iterator over stacks, which are groups of jobs trained together. An item has the indices of the jobs in a stack, and
their parameters [size] after training."""


Ended = Iterator[tuple[int, float, float]]
"""Iterator over completed jobs. An item has the index of the job, its mean loss, and its mean squared loss."""


class Group(NamedTuple):
    """A group of training jobs for which only the weighted mean of the trained parameters is known.

    `places` are the indices of the jobs, `mean` is the weighted mean [size], `told` the mean losses and squared losses.
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

        The engine keeps no reference to a result that it has yielded. If a loss or a parameter is no longer finite, a
        `Diverged` error names the job and the step. Results that are known before an error are still yielded.
        """

    def cut(self, jobs: Sequence[ResolvedJob]) -> list[list[ResolvedJob]]:
        """Divide jobs into stacks that are trained together, perhaps in parallel; the division depends only on them."""
        return [[resolved] for resolved in jobs]

    def is_alone(self, resolved: ResolvedJob) -> bool:
        """Return True if `cut` always puts this job into a stack of its own, regardless of the other jobs."""
        return True

    def run_stack(self, jobs: Sequence[ResolvedJob]) -> Results:
        """Train one of the stacks that `cut` has returned, and yield each job with its result, as `run` does."""
        return self.run(jobs)

    def train_into(self, jobs: Sequence[ResolvedJob], out: Tensor) -> Ended:
        """Train a stack like `run_stack`, but write the parameters of each job into its row of `out` [jobs, size].

        Yield the index, the mean loss and the mean squared loss of each job as soon as it is completed. Each row of
        `out` must begin at a cache line, in memory of the torch device of the jobs.
        """
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        for resolved, result in self.run_stack(jobs):
            place = place_of[resolved]
            out[place] = result.params
            yield place, result.loss, result.square

    def begin(self, job: TrainJob) -> None:  # noqa: B027
        """Start a job whose inputs are known, without waiting; by default `run` trains it later."""

    def begin_all(self, jobs: Sequence[ResolvedJob]) -> None:  # noqa: B027
        """Start all jobs of a wavefront (a set of jobs that run together), and drop all other jobs started so far.

        `run` is called for them later. A job that `begin` starts in between belongs to the next wavefront.
        """

    def takes(self, columns: Columns) -> bool:
        """Return True if the engine prepares a cohort faster from a single `Columns` record than from separate jobs."""
        return False

    def cut_cohort(self, columns: Columns) -> list[list[int]]:
        """Return the job indices of each stack into which `cut` would divide the jobs of a cohort."""
        jobs = columns.jobs()
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        return [[place_of[resolved] for resolved in stack] for stack in self.cut(jobs)]

    def begin_cohort(self, columns: Columns) -> None:  # noqa: B027
        """Start training a cohort whose jobs form a whole wavefront. `run_cohort` is called for it later."""

    def run_cohort(self, columns: Columns) -> CohortResults:
        """Train a cohort whose jobs form a whole wavefront, and yield the job indices and parameters of each stack.

        By default, the jobs are passed to `run` as separate jobs. A `Diverged` error is raised as by `run`.
        """
        jobs = columns.jobs()
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        for resolved, result in self.run(jobs):
            yield [place_of[resolved]], [result.params]

    def means(self, jobs: Sequence[ResolvedJob], w: Tensor, weights: Sequence[float]) -> list[Group]:
        """Return weighted means of the models that started jobs have trained, each with the indices of its jobs.

        Each job has an entry of `weights`. A mean is computed from the differences between the models and `w`. The
        method `run` is not called for jobs in a group. By default, or if a job fails, the list of groups is empty, and
        `run` yields the result of every job.
        """
        return []

    def close(self) -> None:  # noqa: B027
        """Stop the threads that train jobs; `run` starts them again, except on a Ray cluster."""

    @property
    def choices(self) -> Sequence[str]:
        """Descriptions of the choices that the engine has made so far, in chronological order."""
        return ()

    @property
    def statistics(self) -> Mapping[str, float]:
        """Measurements of the worker processes (times, memory) by name; empty for engines without worker processes."""
        return {}


def checked_result(job: TrainJob, losses: Tensor, params: Tensor, squares: Tensor | None = None) -> TrainResult:
    """Return the result of a job. Raise a `Diverged` error if its losses or parameters are not finite.

    `losses` [steps] are the mean losses of the batches, each computed before the step. `squares` [steps] are the sums
    of the samples' squared losses in each batch. They give the mean squared loss.
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

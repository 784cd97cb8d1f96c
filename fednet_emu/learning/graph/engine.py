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
    """Parameters [size] after local training, in their own memory, and the mean loss of the steps.

    `square` is the mean of the squared losses of all samples of all steps, each before its step; nan unless the job
    requests it.
    """

    params: Tensor
    loss: float
    square: float = math.nan


Results = Iterator[tuple[ResolvedJob, TrainResult]]
"""Jobs, each with its result."""


CohortResults = Iterator[tuple[Sequence[int], Sequence[Tensor]]]
"""Places of the jobs of a stack, and the parameters [size] of each after training."""


Ended = Iterator[tuple[int, float, float]]
"""Place, mean loss and mean square of each job that has ended."""


class Group(NamedTuple):
    """Jobs with a known mean only: their places, the weighted mean [size] of their parameters, and their losses.

    `told` has the loss and the mean square of each job.
    """

    places: list[int]
    mean: Tensor
    told: list[tuple[float, float]]


class Engine(ABC):
    """Runs training jobs that do not depend on each other.

    Up to float rounding, a result depends only on its own job, not on the other jobs, their order or their number.
    An engine with other processes may train while the caller continues, and add up models in these processes: it
    overrides `begin`, `begin_all` and `means`.
    """

    @abstractmethod
    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        """Train the jobs, and yield each with its result as soon as the result is known, in any order.

        The engine keeps no result that it has yielded. Results that are known before an error are still yielded.

        Raises:
            Diverged: a loss or a parameter stopped being finite; the text names the job and the step.
        """

    def cut(self, jobs: Sequence[ResolvedJob]) -> list[list[ResolvedJob]]:
        """The jobs in stacks that may be trained in parallel; the division depends on the jobs only."""
        return [[resolved] for resolved in jobs]

    def is_alone(self, resolved: ResolvedJob) -> bool:
        """Whether `cut` makes a stack of this job alone, for any other jobs."""
        return True

    def run_stack(self, jobs: Sequence[ResolvedJob]) -> Results:
        """Train a stack that `cut` has made, as `run`."""
        return self.run(jobs)

    def train_into(self, jobs: Sequence[ResolvedJob], out: Tensor) -> Ended:
        """Train a stack as `run_stack`, and write the parameters of each job into its row of out [jobs, size].

        Rows of `out` begin at cache lines of the memory of the torch device of the jobs.
        """
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        for resolved, result in self.run_stack(jobs):
            place = place_of[resolved]
            out[place] = result.params
            yield place, result.loss, result.square

    def begin(self, job: TrainJob) -> None:  # noqa: B027
        """Begin to train a job whose inputs are known, without waiting for it; by default it waits for `run`."""

    def begin_all(self, jobs: Sequence[ResolvedJob]) -> None:  # noqa: B027
        """Begin to train all jobs of a wavefront, possibly before the `run` for them; drop all other begun jobs.

        Jobs that `begin` between the two belong to the next wavefront.
        """

    def takes(self, columns: Columns) -> bool:
        """Whether jobs like these are trained in stacks that a record in columns describes faster than single jobs."""
        return False

    def cut_cohort(self, columns: Columns) -> list[list[int]]:
        """The places of the jobs of each stack, the same stacks as by `cut`."""
        jobs = columns.jobs()
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        return [[place_of[resolved] for resolved in stack] for stack in self.cut(jobs)]

    def begin_cohort(self, columns: Columns) -> None:  # noqa: B027
        """Begin to train a cohort that is a whole wavefront, possibly before the `run_cohort` for it."""

    def run_cohort(self, columns: Columns) -> CohortResults:
        """Train a cohort that is a whole wavefront; by default as single jobs.

        Raises:
            Diverged: a loss or a parameter stopped being finite; the text names the job and the step.
        """
        jobs = columns.jobs()
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        for resolved, result in self.run(jobs):
            yield [place_of[resolved]], [result.params]

    def means(self, jobs: Sequence[ResolvedJob], w: Tensor, weights: Sequence[float]) -> list[Group]:
        """Weighted means, near w, of the results of jobs that were begun, each mean with the places of its jobs.

        `run` is not called for jobs in a group. By default, or if a job fails, there are no groups: `run` yields every
        result.
        """
        return []

    def close(self) -> None:  # noqa: B027
        """End the threads that train, which a later `run` starts again; training on other machines ends for good."""

    @property
    def choices(self) -> Sequence[str]:
        """The choices that the engine has made, as text, in the order in which it made them."""
        return ()

    @property
    def statistics(self) -> Mapping[str, float]:
        """Measurements of an engine that trains in other processes; empty for the others."""
        return {}


def checked_result(job: TrainJob, losses: Tensor, params: Tensor, squares: Tensor | None = None) -> TrainResult:
    """The result of a job, given the loss [steps] before each step and the parameters [size] after the last.

    With `squares`, the sum [steps] of the squared losses of each batch, the result has their mean over all samples.
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

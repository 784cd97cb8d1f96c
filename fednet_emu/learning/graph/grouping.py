"""Group the training jobs of a wavefront by shape. Jobs of the same shape may share one vectorised call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainData
from fednet_emu.learning.graph.optimizers import Optimizer
from fednet_emu.learning.models.flat import FlatModel


class Rule(NamedTuple):
    """The rule that turns gradients into steps, for jobs whose steps are not minus the step size times the gradient."""

    optimizer: Optimizer
    lr: float
    clip_norm: float | None
    private: PrivateSgd | None


class JobShape(NamedTuple):
    """The properties that all jobs in a stack share; models, data and streams are compared by identity."""

    model: FlatModel  # the model to train
    data: TrainData  # the data with the samples
    streams: Streams  # the random streams of the batches
    batchable: bool  # whether jobs of this shape may be stacked rather than run one at a time
    full_batch: bool  # whether every step uses all samples of its device
    width: int  # batch size, rounded up to a power of two, so that padding costs at most a factor of two
    linear: bool  # whether the job has a linear term
    drift: bool  # whether a drift is added to the optimizer's steps
    anchor: bool  # whether the job has a proximal term
    mask: Tensor | None  # mask [size] of trained parameters, or None; compared by identity
    rule: Rule | None  # None for plain steps, whose sizes may differ from job to job
    squares: bool = False  # whether the mean squared loss of the samples must be computed
    base: Tensor | None = None  # weights under adapters, or None; compared by identity

    @property
    def private(self) -> PrivateSgd | None:
        """Settings of DP-SGD (differentially private SGD); None if the jobs do not use it."""
        return None if self.rule is None else self.rule.private


def shape_of(resolved: ResolvedJob) -> JobShape:
    """Return the `JobShape` of a job. Jobs with equal shapes may be stacked."""
    job, plan = resolved.job, resolved.job.plan
    width = plan.batch_width(job.n_samples)
    return JobShape(
        model=job.model,
        data=job.data,
        streams=job.streams,
        batchable=job.batchable,
        full_batch=job.is_full_batch,
        width=1 << (width - 1).bit_length(),
        linear=resolved.linear is not None,
        drift=resolved.drift is not None,
        anchor=resolved.anchor is not None,
        mask=job.mask,
        rule=None if plan.is_plain else Rule(plan.optimizer, plan.lr, plan.clip_norm, plan.private),
        squares=job.squares,
        base=resolved.base,
    )


def group_by_shape(jobs: Sequence[ResolvedJob]) -> dict[JobShape, list[ResolvedJob]]:
    """Return a dictionary from shapes to the jobs of each shape, in the order of the first appearance of the shapes."""
    groups: dict[JobShape, list[ResolvedJob]] = {}
    for resolved in jobs:
        groups.setdefault(shape_of(resolved), []).append(resolved)
    return groups

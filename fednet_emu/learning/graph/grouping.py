"""Groups the training jobs of a wavefront that may share one vectorised call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainData
from fednet_emu.learning.graph.optimizers import Optimizer
from fednet_emu.learning.graph.private_sgd import PrivateSgd
from fednet_emu.learning.models.flat import FlatModel


class Rule(NamedTuple):
    """The rule that makes steps of gradients, if steps are not -lr times the gradient."""

    optimizer: Optimizer
    lr: float
    clip_norm: float | None
    private: PrivateSgd | None


class JobShape(NamedTuple):
    """The properties that jobs in one stack share; models, data and streams are equal only if the same object."""

    model: FlatModel  # the model to train
    data: TrainData  # the data that the samples come from
    streams: Streams  # the random streams that the batches come from
    batchable: bool  # whether jobs of this shape may be stacked; otherwise they run one by one
    full_batch: bool  # whether every step uses all samples of its device
    width: int  # samples per batch, rounded up to a power of two, so that padding costs at most a factor of two
    linear: bool  # whether there is an added linear term
    drift: bool  # whether something is added to the steps of the optimizer
    anchor: bool  # whether there is a proximal term
    mask: Tensor | None  # mask [size] of trained parameters, or None; masks are equal only if they are the same object
    rule: Rule | None  # how steps are made of gradients; None for plain steps, whose sizes may differ from job to job
    squares: bool = False  # whether the mean square of the samples' losses is requested
    base: Tensor | None = None  # weights under adapters, or None; equal only if they are the same object

    @property
    def private(self) -> PrivateSgd | None:
        """The settings of DP-SGD; None without it."""
        return None if self.rule is None else self.rule.private


def shape_of(resolved: ResolvedJob) -> JobShape:
    """The shape by which a job is grouped."""
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
    """The jobs of each shape; shapes in order of first appearance."""
    groups: dict[JobShape, list[ResolvedJob]] = {}
    for resolved in jobs:
        groups.setdefault(shape_of(resolved), []).append(resolved)
    return groups

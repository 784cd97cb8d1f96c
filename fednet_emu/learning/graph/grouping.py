"""Which training jobs of a wavefront may share one vectorised call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainData
from fednet_emu.learning.models.flat import FlatModel


class JobShape(NamedTuple):
    """What jobs have in common that may be stacked; models, data and streams count as equal when the same object.

    Attributes:
        model: the model trained.
        data: where the samples come from.
        streams: where the batches come from.
        batchable: whether jobs of this shape may be stacked at all; else they are run one by one.
        full_batch: whether every step uses all samples of its device.
        width: samples per batch, rounded up to a power of two, so that filling up costs a factor of two at most.
        linear: whether there is an added linear term.
        anchor: whether there is a proximal term.
        mask: what is frozen; masks count as equal when they are the same object.
    """

    model: FlatModel
    data: TrainData
    streams: Streams
    batchable: bool
    full_batch: bool
    width: int
    linear: bool
    anchor: bool
    mask: Tensor | None


def shape_of(resolved: ResolvedJob) -> JobShape:
    """The shape by which a job is grouped."""
    job = resolved.job
    width = job.plan.batch_width(job.n_samples)
    return JobShape(
        model=job.model,
        data=job.data,
        streams=job.streams,
        batchable=job.batchable,
        full_batch=job.is_full_batch,
        width=1 << (width - 1).bit_length(),
        linear=resolved.linear is not None,
        anchor=resolved.anchor is not None,
        mask=job.mask,
    )


def group_by_shape(jobs: Sequence[ResolvedJob]) -> dict[JobShape, list[int]]:
    """The places of the jobs of each shape; shapes in order of first appearance."""
    groups: dict[JobShape, list[int]] = {}
    for place, resolved in enumerate(jobs):
        groups.setdefault(shape_of(resolved), []).append(place)
    return groups

"""Stacked batches of many jobs.

The indices of samples are drawn on the host and moved to the torch device once. The samples are gathered into memory
that is reused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.stacks.form import Batch
from fednet_emu.learning.graph.grouping import JobShape
from fednet_emu.learning.graph.jobs import ResolvedJob, SgdPlan, TrainData


@final
class Scratch:
    """Growing memory buffers, one for each role; a tensor is valid until `take` is called again with the role."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, role: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return an uninitialised tensor of the given shape, with the dtype and torch device of `like`."""
        size, buffer = math.prod(shape), self._buffers.get(role)
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._buffers[role] = like.new_empty(size)
        return buffer[:size].view(shape)


def batches_of(shape: JobShape, jobs: Sequence[ResolvedJob], steps: IntArray, scratch: Scratch) -> Iterator[Batch]:
    """Yield the stacked batches of each step for jobs of one shape.

    The jobs must be sorted by descending number of steps. Jobs that have taken all their steps are left out of later
    batches. A batch may overwrite the previous one.
    """
    if not shape.full_batch:
        return _mini_batches(shape, jobs, steps, scratch)
    whole = _whole(shape.data, jobs, scratch)
    return (_first(whole, active) for active in _active(steps))


def _active(steps: IntArray) -> list[int]:
    """Return the number of jobs that still train in each step, from their descending numbers of `steps`."""
    active: list[int] = np.searchsorted(-steps, -np.arange(steps[0]), side="left").tolist()
    return active


def _first(batch: Batch, active: int) -> Batch:
    return Batch(batch.x[:active], batch.y[:active], None if batch.weight is None else batch.weight[:active])


def _whole(data: TrainData, jobs: Sequence[ResolvedJob], scratch: Scratch) -> Batch:
    """Return all samples of each job in one stack: a view if they are contiguous in the data, otherwise a copy."""
    joined = _one_slice([resolved.job.indices for resolved in jobs])
    if joined is not None:
        x, y = data.x[joined], data.y[joined]
        return Batch(x.view(len(jobs), -1, *x.shape[1:]), y.view(len(jobs), -1, *y.shape[1:]), None)
    rows = [resolved.job.rows() for resolved in jobs]
    count = np.array([len(own) for own in rows])
    width = int(count.max())
    index = np.stack([own if len(own) == width else np.resize(own, width) for own in rows])
    flat = torch.from_numpy(index.reshape(-1)).to(data.x.device)
    x = torch.index_select(data.x, 0, flat, out=scratch.take("batch", (len(flat), *data.x.shape[1:]), data.x))
    y = data.y[flat]
    weight = _weights(count, width, x)
    return Batch(x.view(*index.shape, *x.shape[1:]), y.view(*index.shape, *y.shape[1:]), weight)


def _one_slice(parts: list[IntArray | slice]) -> slice | None:
    """Return one slice that covers consecutive slices of equal length; None if they are not consecutive."""
    first = parts[0]
    if not isinstance(first, slice) or first.step not in {None, 1} or first.start is None or first.stop is None:
        return None
    width = first.stop - first.start
    for place, part in enumerate(parts):
        start = first.start + place * width
        if not isinstance(part, slice) or part != slice(start, start + width, first.step):
            return None
    return slice(first.start, first.start + len(parts) * width)


def _mini_batches(shape: JobShape, jobs: Sequence[ResolvedJob], steps: IntArray, scratch: Scratch) -> Iterator[Batch]:
    """Yield the batches that each job draws, padded to a common width."""
    data = shape.data
    index, count = _drawn(shape.streams, jobs, steps)
    n_steps, n_jobs, width = index.shape
    rows = torch.from_numpy(index.reshape(n_steps, -1)).to(data.x.device)
    weight = _weights(count, width, data.x)
    ragged = (count < width).any(1).tolist()
    y = data.y.index_select(0, rows.view(-1)).view(n_steps, n_jobs, width, *data.y.shape[1:])
    x = scratch.take("batch", (n_jobs * width, *data.x.shape[1:]), data.x)
    active, own = 0, x
    for step, still in enumerate(_active(steps)):
        if still != active:
            active, own = still, x[: still * width]
            batch_x = own.view(active, width, *x.shape[1:])
        torch.index_select(data.x, 0, rows[step, : len(own)], out=own)
        own_weight = weight[step, :active] if weight is not None and ragged[step] else None
        yield Batch(batch_x, y[step, :active], own_weight)


def _drawn(streams: Streams, jobs: Sequence[ResolvedJob], steps: IntArray) -> tuple[IntArray, IntArray]:
    """Draw the batches of J jobs in S steps. Return row indices [S, J, B], padded to width B, and sizes [S, J]."""
    generators = streams.many([resolved.job.rng_key for resolved in jobs])
    own = [resolved.job for resolved in jobs]
    plan, n_samples = own[0].plan, own[0].n_samples
    if all(job.n_samples == n_samples and job.plan is plan and _is_run_of_rows(job.indices) for job in own):
        return _drawn_alike(plan, np.array([job.first_row for job in own]), n_samples, generators)
    drawn = [resolved.job.batches(rng) for resolved, rng in zip(jobs, generators, strict=True)]
    width = max(batches.index.shape[1] for batches in drawn)
    index = np.zeros((int(steps[0]), len(jobs), width), dtype=np.int64)
    count = np.full((int(steps[0]), len(jobs)), width)
    for place, (batches, own_steps) in enumerate(zip(drawn, steps.tolist(), strict=True)):
        own_width = batches.index.shape[1]
        index[:own_steps, place, :own_width] = batches.index
        if own_width < width:
            index[:own_steps, place, own_width:] = batches.index[:, :1]
        count[:own_steps, place] = batches.count
    return index, count


def _drawn_alike(
    plan: SgdPlan, first: IntArray, n_samples: int, generators: Sequence[np.random.Generator]
) -> tuple[IntArray, IntArray]:
    """Draw batches as `_drawn`, for jobs with `n_samples` consecutive rows, from the rows `first` [J] on."""
    steps, width, per_epoch = plan.n_steps(n_samples), plan.batch_width(n_samples), plan.steps_per_epoch(n_samples)
    passes = 1 if steps <= n_samples // width else -(-steps // per_epoch)
    rows = np.empty((len(first), passes, max(n_samples, per_epoch * width)), np.int64)
    rows[:] = first[:, None, None]  # padding of incomplete batches repeats the first row
    own = rows[:, :, :n_samples]
    own += np.arange(n_samples)
    for rng, epochs in zip(generators, own, strict=True):
        for epoch in epochs:
            rng.shuffle(epoch)
    index = rows[:, :, : per_epoch * width].reshape(len(first), -1, width)[:, :steps].transpose(1, 0, 2)
    count = np.full((steps, len(first)), width)
    count[per_epoch - 1 :: per_epoch] = min(n_samples, per_epoch * width) - (per_epoch - 1) * width
    return index, count


def _is_run_of_rows(indices: IntArray | slice) -> bool:
    return isinstance(indices, slice) and indices.step in {None, 1}


def _weights(count: IntArray, width: int, like: Tensor) -> Tensor | None:
    """Return the weights [..., B] of batches of width B: 1 for a sample, 0 for padding; None if there is no padding."""
    if count.min() == width:
        return None
    return torch.from_numpy(np.arange(width) < count[..., None]).to(like)

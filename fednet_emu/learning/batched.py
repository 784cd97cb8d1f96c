"""The engine that trains many devices in one vectorised call: stacked parameters, one `vmap(grad)` per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fednet_emu.learning.engine import TrainResult, checked_result
from fednet_emu.learning.flat import FlatModel
from fednet_emu.learning.grouping import JobShape, group_by_shape
from fednet_emu.learning.jobs import Indices, ResolvedJob, TrainData
from fednet_emu.learning.serial import SerialEngine


class Batch(NamedTuple):
    """One step of the first A jobs: x [A, B, ...], y [A, B, ...] and weights [A, B], None when no batch is ragged."""

    x: Tensor
    y: Tensor
    weight: Tensor | None


@final
class BatchedEngine:
    """Trains jobs of one shape together; lone jobs, and models whose batches cannot be shared, run one by one.

    Batches narrower than their neighbours' are filled up with weight zero, and jobs with fewer steps drop out early.

    Args:
        memory_limit_byte: a group is cut so that parameters, batches and activations stay near this.
    """

    def __init__(self, memory_limit_byte: int = 2**29) -> None:
        self._memory_limit_byte = memory_limit_byte
        self._serial = SerialEngine()

    def run(self, jobs: Sequence[ResolvedJob]) -> list[TrainResult]:
        """The results of the jobs, in their order.

        Raises:
            ScenarioError: a loss or a parameter stopped being finite; the text names the job and the step.
        """
        results: dict[int, TrainResult] = {}
        for shape, places in group_by_shape(jobs).items():
            for part in self._cut(shape, places, jobs):
                members = [jobs[place] for place in part]
                alone = len(part) == 1 or not shape.batchable
                done = self._serial.run(members) if alone else _run_noted(shape, members)
                results.update(zip(part, done, strict=True))
        return [results[place] for place in range(len(jobs))]

    def _cut(self, shape: JobShape, places: list[int], jobs: Sequence[ResolvedJob]) -> Iterator[list[int]]:
        """Cuts a group into parts that fit in memory, the jobs with most steps first."""
        if not shape.batchable:
            yield places
            return
        ordered = sorted(places, key=lambda place: -_n_steps(jobs[place]))
        limit = max(1, self._memory_limit_byte // _byte_per_job(shape))
        for start in range(0, len(ordered), limit):
            yield ordered[start : start + limit]


def _n_steps(resolved: ResolvedJob) -> int:
    return resolved.job.plan.n_steps(resolved.job.n_samples)


def _byte_per_job(shape: JobShape) -> int:
    """Memory of one job: parameters, gradient, terms and their temporaries, and twice the activations of a batch."""
    vectors = 4 + shape.linear + 2 * shape.anchor
    sample = shape.data.x[0].numel() * shape.data.x.element_size() + 2 * shape.model.activation_byte_per_sample
    return vectors * shape.model.size * shape.model.dtype.itemsize + shape.width * sample


def _run_noted(shape: JobShape, jobs: list[ResolvedJob]) -> list[TrainResult]:
    try:
        return _run_stack(shape, jobs)
    except Exception as error:
        error.add_note(f"in {len(jobs)} training jobs run together, the first of them {jobs[0].job.label}")
        raise


def _run_stack(shape: JobShape, jobs: list[ResolvedJob]) -> list[TrainResult]:
    """Trains jobs of one shape, ordered by falling number of steps, as one stack."""
    w = torch.stack([resolved.params for resolved in jobs])
    terms = _Terms.stack(jobs, w)
    steps = np.array([_n_steps(resolved) for resolved in jobs])
    losses = torch.zeros((int(steps[0]), len(jobs)), dtype=w.dtype, device=w.device)
    gradient = _gradient(shape.model)
    batches = (_full_batches if shape.full_batch else _mini_batches)(shape.data, jobs, steps)
    for step, batch in enumerate(batches):
        active = len(batch.x)
        g, losses[step, :active] = gradient(w[:active], batch)
        terms.descend(w[:active], g)
    return _results(jobs, steps, losses, w)


class _Terms(NamedTuple):
    """The step sizes [J, 1] and the terms that jobs add to the loss gradient."""

    lr: Tensor
    scale: Tensor | None
    prox: Tensor
    linear: Tensor | None
    anchor: Tensor | None
    mask: Tensor | None

    @classmethod
    def stack(cls, jobs: list[ResolvedJob], like: Tensor) -> _Terms:
        def column(values: list[float]) -> Tensor:
            return like.new_tensor(values)[:, None]

        def rows(values: list[Tensor | None]) -> Tensor | None:
            known = [value for value in values if value is not None]
            return torch.stack(known) if known else None

        scales = [resolved.scale for resolved in jobs]
        return cls(
            lr=column([resolved.job.plan.lr for resolved in jobs]),
            scale=None if all(scale == 1.0 for scale in scales) else column(scales),
            prox=column([resolved.job.prox for resolved in jobs]),
            linear=rows([resolved.linear for resolved in jobs]),
            anchor=rows([resolved.anchor for resolved in jobs]),
            mask=None if jobs[0].job.mask is None else jobs[0].job.mask.to(like),
        )

    def descend(self, w: Tensor, g: Tensor) -> None:
        """Makes one step of w [A, P] in place for the first A jobs; g [A, P] is used up."""
        active = len(w)
        if self.scale is not None:
            g.mul_(self.scale[:active])
        if self.linear is not None:
            g.add_(self.linear[:active])
        if self.anchor is not None:
            g.add_((w - self.anchor[:active]).mul_(self.prox[:active]))
        if self.mask is not None:
            g.mul_(self.mask)
        w.sub_(g.mul_(self.lr[:active]))


def _gradient(model: FlatModel) -> Callable[[Tensor, Batch], tuple[Tensor, Tensor]]:
    """The function from parameters [A, P] and a batch to gradients [A, P] and losses [A]."""
    function = vmap(grad_and_value(model.loss))

    def gradient(w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        g, loss = function(w, *batch) if batch.weight is not None else function(w, batch.x, batch.y)
        return g, loss

    return gradient


@final
class _Lookup:
    """Looks up batches into one pair of buffers, which every call overwrites."""

    def __init__(self, data: TrainData, n_samples: int) -> None:
        self._data = data
        self._x = data.x.new_empty((n_samples, *data.x.shape[1:]))
        self._y = data.y.new_empty((n_samples, *data.y.shape[1:]))

    def __call__(self, index: Indices, count: Indices) -> Batch:
        """The batches of rows [A, B], of which the first `count` [A] are true samples."""
        rows = torch.from_numpy(index.reshape(-1)).to(self._x.device)
        x = torch.index_select(self._data.x, 0, rows, out=self._x[: len(rows)])
        y = torch.index_select(self._data.y, 0, rows, out=self._y[: len(rows)])
        weight = None
        if count.min() < index.shape[1]:
            weight = torch.from_numpy(np.arange(index.shape[1]) < count[:, None]).to(self._x)
        return Batch(x.view(*index.shape, *x.shape[1:]), y.view(*index.shape, *y.shape[1:]), weight)


def _full_batches(data: TrainData, jobs: list[ResolvedJob], steps: Indices) -> Iterator[Batch]:
    """All samples of each job, looked up once for all its steps."""
    rows = [resolved.job.rows() for resolved in jobs]
    count = np.array([len(own) for own in rows])
    index = np.stack([np.resize(own, count.max()) for own in rows])
    x, y, weight = _Lookup(data, index.size)(index, count)
    for step in range(steps[0]):
        active = np.count_nonzero(steps > step)
        yield Batch(x[:active], y[:active], None if weight is None else weight[:active])


def _mini_batches(data: TrainData, jobs: list[ResolvedJob], steps: Indices) -> Iterator[Batch]:
    """The batches that each job draws, filled up to one width."""
    drawn = [resolved.job.batches() for resolved in jobs]
    width = max(batches.index.shape[1] for batches in drawn)
    index = np.zeros((int(steps[0]), len(jobs), width), dtype=np.int64)
    count = np.zeros((int(steps[0]), len(jobs)), dtype=np.int64)
    for place, (batches, own_steps) in enumerate(zip(drawn, steps, strict=True)):
        own_width = batches.index.shape[1]
        index[:own_steps, place, :own_width] = batches.index
        index[:own_steps, place, own_width:] = batches.index[:, :1]
        count[:own_steps, place] = batches.count
    lookup = _Lookup(data, len(jobs) * width)
    for step in range(steps[0]):
        active = np.count_nonzero(steps > step)
        yield lookup(index[step, :active], count[step, :active])


def _results(jobs: list[ResolvedJob], steps: Indices, losses: Tensor, w: Tensor) -> list[TrainResult]:
    """The results of a stack, given the losses [S, J] (zero where a job has ended) and the parameters [J, P]."""
    total = losses.sum(0, dtype=torch.float64)
    if not torch.isfinite(total.sum() + w.sum()):
        for place, resolved in enumerate(jobs):
            checked_result(resolved.job, losses[: steps[place], place], w[place])
    means = total.cpu().numpy() / steps
    return [TrainResult(own.clone(), float(mean)) for own, mean in zip(w, means, strict=True)]

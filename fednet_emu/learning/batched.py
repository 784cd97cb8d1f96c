"""The engine that trains many devices in one vectorised call: parameters stacked to [J, P], one `vmap(grad)` per step."""

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
from fednet_emu.learning.jobs import ResolvedJob, TrainData
from fednet_emu.learning.serial import SerialEngine

Gradient = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""Parameters [J, P], x [J, B, ...], y [J, B, ...] and weights [J, B] to gradients [J, P] and losses [J]."""


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
                stackable = shape.model.batchable and len(part) > 1
                done = _run_stack(shape, members) if stackable else self._serial.run(members)
                results.update(zip(part, done, strict=True))
        return [results[place] for place in range(len(jobs))]

    def _cut(self, shape: JobShape, places: list[int], jobs: Sequence[ResolvedJob]) -> Iterator[list[int]]:
        """Cuts a group into parts that fit in memory, the jobs with most steps first."""
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


def _run_stack(shape: JobShape, jobs: list[ResolvedJob]) -> list[TrainResult]:
    """Trains jobs of one shape, ordered by falling number of steps, as one stack."""
    w = torch.stack([resolved.params for resolved in jobs])
    terms = _Terms.stack(jobs, w)
    steps = np.array([_n_steps(resolved) for resolved in jobs])
    losses = torch.zeros((int(steps[0]), len(jobs)), dtype=w.dtype, device=w.device)
    gradient = _gradient(shape.model)
    batches = _full_batches(shape.data, jobs) if shape.full_batch else _mini_batches(shape.data, jobs, steps)
    for step, (x, y, weight) in enumerate(batches):
        active = len(x)
        g, losses[step, :active] = gradient(w[:active], x, y, weight)
        terms.descend(w[:active], g)
    return _results(jobs, steps, losses, w)


class _Terms(NamedTuple):
    """The step sizes [J, 1] and the terms that jobs add to the loss gradient."""

    lr: Tensor
    scale: Tensor | None
    prox: Tensor
    linear: Tensor | None
    anchor: Tensor | None

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
        w.sub_(g.mul_(self.lr[:active]))


def _gradient(model: FlatModel) -> Gradient:
    weighted = vmap(grad_and_value(model.loss))
    plain = vmap(grad_and_value(model.loss), in_dims=(0, 0, 0, None))

    def gradient(w: Tensor, x: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        g, loss = plain(w, x, y, None) if weight is None else weighted(w, x, y, weight)
        return g, loss

    return gradient


Batch = tuple[Tensor, Tensor, Tensor | None]
"""x [A, B, ...], y [A, B, ...] and weights [A, B] of one step of the first A jobs; no weights when no batch is ragged."""


def _full_batches(data: TrainData, jobs: list[ResolvedJob]) -> Iterator[Batch]:
    """The samples of each job, looked up once for all its steps."""
    rows = [resolved.job.rows() for resolved in jobs]
    count = np.array([len(own) for own in rows])
    index = np.stack([np.resize(own, count.max()) for own in rows])
    x, y, weight = _Lookup(data, index.shape).fetch(index), data.y[torch.from_numpy(index).to(data.y.device)], None
    yield x, y, weight



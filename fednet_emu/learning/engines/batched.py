"""The engine that stacks the models of many devices and trains all of them with one call per step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.stacks.batches import Scratch, batches_of
from fednet_emu.learning.engines.stacks.chain import chain_form
from fednet_emu.learning.engines.stacks.form import Batch, Form, VmapForm
from fednet_emu.learning.graph.cohort import Columns
from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.graph.engine import Ended, Engine, Results, TrainResult, checked_result, mean_square
from fednet_emu.learning.graph.grouping import JobShape, Rule, group_by_shape, shape_of
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.learning.graph.optimizers import STACKED, clip
from fednet_emu.learning.models.flat import FlatModel

_ROW_ALIGNMENT = 16

_CACHE_BYTE = 2**23
"""Maximum memory of a stack on a CPU in bytes, chosen as one core's share of the caches. Larger stacks are slowed down
by memory access, and smaller ones by Python's overhead per call."""

STACK_PAYS = 10
"""Minimum number of jobs in a stack at which PyTorch's `vmap` is faster on a CPU than training one job at a time."""

WORTH_FLOP = 1e8
"""Minimum number of floating-point operations that are worth dividing among cores. One core takes some milliseconds for
them."""

_FEW = 4
"""Minimum number of jobs per stack at which two cores are faster than one, for models with hand-written gradients."""

_MANY = 25
"""Maximum number of jobs in a stack on a CPU. Larger stacks are not faster, and leave less work for other cores."""


def best_form(model: FlatModel) -> Form:
    """Return the fastest implementation of a training step for a model.

    Sequences of dense layers use hand-written gradients. On a GPU, all supported sequences of layers use them. For
    other models, PyTorch's `vmap` is used.
    """
    chain = chain_form(model)
    return chain if chain is not None and (chain.is_dense or model.device.type == "cuda") else VmapForm(model)


@final
class BatchedEngine(Engine):
    """Engine that trains jobs of the same shape (with the same model and batch width) together, in stacks.

    Jobs of models that cannot share a vectorised call are trained one by one. Batches with fewer samples are padded
    with samples of weight zero. Jobs with fewer steps leave the stack early. The size of a stack is limited so that
    parameters, batches and activations need about `memory_limit_byte`. If this is None, the limit fits into a CPU's
    caches, or is an eighth of a GPU's memory. `form` returns a model's implementation of a training step.
    """

    def __init__(
        self, memory_limit_byte: int | None = None, form: Callable[[FlatModel], Form | None] = best_form
    ) -> None:
        self._memory_limit_byte = memory_limit_byte
        self._form = form
        self._forms: dict[tuple[FlatModel, PrivateSgd | None], Form] = {}
        self._serial = SerialEngine()
        self._scratch = Scratch()

    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        for stack in self.cut(jobs):
            yield from self.run_stack(stack)

    def cut(self, jobs: Sequence[ResolvedJob]) -> list[list[ResolvedJob]]:
        return [stack for shape, group in group_by_shape(jobs).items() for stack in self.stacks(shape, group)]

    def stacks(self, shape: JobShape, jobs: Sequence[ResolvedJob]) -> list[list[ResolvedJob]]:
        """Sort jobs of one shape by descending steps and first row, and divide them into stacks that fit in memory."""
        form = self.form_of(shape) if shape.batchable else None
        if form is None or (isinstance(form, VmapForm) and len(jobs) > 1 and not form.works):
            return [[resolved] for resolved in jobs]
        ordered = sorted(jobs, key=lambda resolved: (-_n_steps(resolved), resolved.job.first_row))
        bounds = self._bounds(form, shape, len(jobs), sum(resolved.job.flop for resolved in jobs))
        return [ordered[a:b] for a, b in pairwise(bounds)]

    def _bounds(self, form: Form, shape: JobShape, n: int, flop: float) -> list[int]:
        """Return the indices at which n jobs of one shape, of `flop` operations in all, are divided into stacks."""
        count = -(-n // jobs_per_stack(form, shape, self._memory_limit_byte))
        if shape.data.x.device.type == "cpu" and is_worth_dividing(flop):
            least = STACK_PAYS if isinstance(form, VmapForm) else _FEW
            count = max(count, -(-n // _MANY), 1 + (n >= 2 * least))
        return [n * place // count for place in range(count + 1)]

    def takes(self, columns: Columns) -> bool:
        plan = columns.plan
        if not (columns.model.batchable and type(plan.optimizer) in STACKED and plan.private is None):
            return False
        return not isinstance(self.form_for(columns.model, None), VmapForm)

    def cut_cohort(self, columns: Columns) -> list[list[int]]:
        return [stack for shape, group in shapes_of(columns) for stack in self.stacks_of(columns, shape, group)]

    def stacks_of(self, columns: Columns, shape: JobShape, group: IntArray) -> list[list[int]]:
        """Return the job indices of each stack into which `stacks` would divide the jobs `group` of one shape."""
        own = columns.part(group)
        ordered: list[int] = group[np.lexsort((own.first, -own.steps))].tolist()
        bounds = self._bounds(self.form_of(shape), shape, len(group), sum(own.flop.tolist()))
        return [ordered[a:b] for a, b in pairwise(bounds)]

    def is_alone(self, resolved: ResolvedJob) -> bool:
        return not resolved.job.batchable

    def run_stack(self, jobs: Sequence[ResolvedJob]) -> Results:
        trained = self._trained(jobs)
        if trained is None:
            yield from self._serial.run(jobs)
            return
        for resolved, own, loss, square in zip(jobs, *trained, strict=True):
            yield resolved, TrainResult(own.clone(), loss, square)

    def train_into(self, jobs: Sequence[ResolvedJob], out: Tensor) -> Ended:
        trained = self._trained(jobs, out)
        if trained is None:
            return super().train_into(jobs, out)
        return zip(range(len(jobs)), *trained[1:], strict=True)

    def form_of(self, shape: JobShape) -> Form:
        """Return the implementation of a training step for jobs of one shape; DP-SGD uses PyTorch's `vmap`."""
        return self.form_for(shape.model, shape.private)

    def form_for(self, model: FlatModel, private: PrivateSgd | None) -> Form:
        """Return the implementation of a training step for a model. `private` has the settings of DP-SGD or is None."""
        key = model, private
        if key not in self._forms:
            own = self._form(model) if private is None else None
            self._forms[key] = own or VmapForm(model, private)
        return self._forms[key]

    def _trained(
        self, jobs: Sequence[ResolvedJob], out: Tensor | None = None
    ) -> tuple[Tensor, list[float], list[float]] | None:
        """Train jobs of one shape as one stack, as `_trained_stack` does; None if they must be trained one by one."""
        shape = shape_of(jobs[0])
        form = self.form_of(shape) if shape.batchable else None
        if form is None or (isinstance(form, VmapForm) and len(jobs) == 1):
            return None
        try:
            return _trained_stack(form, shape, jobs, self._scratch, out)
        except Exception as error:
            error.add_note(f"in {len(jobs)} training jobs run together, the first of them {jobs[0].job.label}")
            raise


def is_worth_dividing(flop: float) -> bool:
    """Return True if several cores perform `flop` operations of training faster than one core does."""
    return flop >= WORTH_FLOP


def shapes_of(columns: Columns) -> list[tuple[JobShape, IntArray]]:
    """Return the shapes of a cohort's jobs in order of first appearance, with the job indices of each shape."""

    def kind(n_samples: int) -> int:
        width = columns.plan.batch_width(n_samples)
        return 2 * (width - 1).bit_length() + (width == n_samples)

    kinds = columns.by_n_samples(kind)
    firsts = np.sort(np.unique(kinds, return_index=True)[1])
    return [
        (shape_of(columns.part([first]).jobs()[0]), np.flatnonzero(kinds == kinds[first])) for first in firsts.tolist()
    ]


def jobs_per_stack(form: Form, shape: JobShape, limit_byte: int | None = None) -> int:
    """Return the number of jobs of one shape that fit into the memory limit together; at least one."""
    return max(1, (limit_byte or _memory_limit_byte(shape.data.x.device)) // _byte_per_job(form, shape))


def _memory_limit_byte(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[1] // 8 if device.type == "cuda" else _CACHE_BYTE


def _n_steps(resolved: ResolvedJob) -> int:
    return resolved.job.plan.n_steps(resolved.job.n_samples)


def _byte_per_job(form: Form, shape: JobShape) -> int:
    """Return the memory of a job in bytes, for its parameters, additional terms, a batch and the training step."""
    terms = shape.linear + shape.drift + 2 * shape.anchor
    vectors = 1 + terms + (shape.mask is not None) + 2 * (shape.rule is not None)
    batch = shape.width * shape.data.x[0].numel() * shape.data.x.element_size()
    return vectors * shape.model.size * shape.model.dtype.itemsize + batch + form.byte_per_job(shape.width)


def _trained_stack(
    form: Form, shape: JobShape, jobs: Sequence[ResolvedJob], scratch: Scratch, out: Tensor | None = None
) -> tuple[Tensor, list[float], list[float]]:
    """Train jobs of one shape as one stack. The jobs must be sorted by descending number of steps.

    The function returns the parameters [J, P] of J jobs, in `out` or else in scratch memory, the mean losses, and the
    mean squared losses (nan if not requested). Plain gradient steps are added to the parameters directly. Other
    optimizers need the gradients to be stored first.
    """
    w = _stack([resolved.params for resolved in jobs], scratch, out)
    terms = _Terms.stack(jobs, w, scratch, plain=shape.rule is None)
    total = w if shape.rule is None else _rows("gradient", len(jobs), w[0], scratch).zero_()
    advance = None if shape.rule is None else _advance(shape.rule, w)
    steps = np.array([_n_steps(resolved) for resolved in jobs])
    told = w.new_zeros((int(steps[0]), 1 + shape.squares, len(jobs)))
    losses = told if shape.squares else told[:, 0]
    noise = _noise(shape, jobs, w)
    active, own = 0, w
    for place, batch in enumerate(batches_of(shape, jobs, steps, scratch)):
        if active != len(batch.x):
            active = len(batch.x)
            own, into, factor = w[:active], total[:active], terms.factor[:active]
            mask = None if terms.mask is None else terms.mask[:active]
            step = form.on(own, into, squares=shape.squares, base=shape.base)
        pull, before = terms.pull(own), None if mask is None else own.clone()
        losses[place, ..., :active] = step(batch, factor)
        if noise is not None:
            into.addcmul_(noise(active), (factor / _counts(batch))[:, None])
        if pull is not None:
            into.sub_(pull)
        if advance is not None:
            advance(into, mask)
        if terms.drift is not None:
            own.sub_(terms.drift[:active])
        if before is not None and mask is not None:
            own.copy_(before.lerp_(own, mask))
    return w, _mean_losses(jobs, steps, told[:, 0], w), _mean_squares(jobs, told[:, 1:])


def _noise(shape: JobShape, jobs: Sequence[ResolvedJob], w: Tensor) -> Callable[[int], Tensor] | None:
    """Return a function that draws the noise [A, P] on the gradient sums of A jobs in a step, or None for no noise."""
    private = shape.private
    if private is None:
        return None
    sources = [resolved.job.noise_source() for resolved in jobs]
    return lambda active: torch.stack([private.noise(rng, w) for rng in sources[:active]])


def _counts(batch: Batch) -> Tensor:
    return batch.x.new_full((len(batch.x),), batch.x.shape[1]) if batch.weight is None else batch.weight.sum(1)


def _advance(rule: Rule, w: Tensor) -> Callable[[Tensor, Tensor | None], None]:
    """Return the function that moves `w` [J, P] by the gradients [A, P] of the first A jobs, and then zeroes these."""
    move = rule.optimizer.start(w, rule.lr)

    def advance(gradient: Tensor, mask: Tensor | None) -> None:
        if rule.clip_norm is not None:
            clip(gradient, rule.clip_norm, mask)
        move(gradient)
        gradient.zero_()

    return advance


def _stack(vectors: list[Tensor], scratch: Scratch, out: Tensor | None = None) -> Tensor:
    """Copy J vectors [P] to cache-aligned rows of a matrix [J, P], which is `out` or else scratch memory."""
    w = _rows("parameters", len(vectors), vectors[0], scratch) if out is None else out
    if all(vector is vectors[0] for vector in vectors):
        return w.copy_(vectors[0])
    return torch.stack(vectors, out=w)


def _rows(role: str, count: int, like: Tensor, scratch: Scratch) -> Tensor:
    return scratch.take(role, (count, aligned(len(like))), like)[:, : len(like)]


def aligned(size: int) -> int:
    """Return the padded length of rows for vectors [size], so that every row begins at a cache line."""
    return -(-size // _ROW_ALIGNMENT) * _ROW_ALIGNMENT


class _Terms(NamedTuple):
    """The terms of a step for J jobs: factors [J] of the loss gradients, and additional gradient terms.

    `prox` [J, 1] and `linear` [J, P] are subtracted. For plain gradient steps, they are multiplied by the step size,
    and `factor` by minus the step size. For other optimizers, which receive the gradient, `factor` is not scaled, and
    `prox` and `linear` have a minus sign. `drift` [J, P] is always multiplied by the step size. `taken` [J, P] is the
    buffer for the result of `pull`.
    """

    factor: Tensor
    prox: Tensor
    linear: Tensor | None
    drift: Tensor | None
    anchor: Tensor | None
    mask: Tensor | None
    taken: Tensor

    @classmethod
    def stack(cls, jobs: Sequence[ResolvedJob], like: Tensor, scratch: Scratch, *, plain: bool) -> _Terms:
        lr = [resolved.job.plan.lr if plain else -1.0 for resolved in jobs]

        def column(values: list[float]) -> Tensor:
            return like.new_tensor(values)[:, None]

        def rows(role: str, values: list[Tensor | None]) -> Tensor | None:
            known = [value for value in values if value is not None]
            return torch.stack(known, out=scratch.take(role, tuple(like.shape), like)) if known else None

        linear = rows("linear", [resolved.linear for resolved in jobs])
        drift = rows("drift", [resolved.drift for resolved in jobs])
        anchor = rows("anchor", [resolved.anchor for resolved in jobs])
        return cls(
            factor=like.new_tensor([-own * resolved.scale for own, resolved in zip(lr, jobs, strict=True)]),
            prox=column([own * resolved.prox for own, resolved in zip(lr, jobs, strict=True)]),
            linear=None if linear is None else linear.mul_(column(lr)),
            drift=None if drift is None else drift.mul_(column([resolved.job.plan.lr for resolved in jobs])),
            anchor=anchor,
            mask=None if jobs[0].job.mask is None else jobs[0].job.mask.to(like).expand(len(jobs), -1),
            taken=like[:0] if anchor is None else scratch.take("taken", tuple(like.shape), like),
        )

    def pull(self, w: Tensor) -> Tensor | None:
        """Return the part of a step due to the additional terms, for the parameters `w` [A, P] of the first A jobs."""
        active = len(w)
        linear = None if self.linear is None else self.linear[:active]
        if self.anchor is None:
            return linear
        pull = torch.sub(w, self.anchor[:active], out=self.taken[:active]).mul_(self.prox[:active])
        return pull if linear is None else pull.add_(linear)


def _mean_losses(jobs: Sequence[ResolvedJob], steps: np.ndarray, losses: Tensor, w: Tensor) -> list[float]:
    """Return the mean loss of each job from the losses [S, J] of S steps. Raise an error if one is not finite.

    Losses after the last step of a job are zero.
    """
    total = losses.sum(0, dtype=torch.float64)
    *totals, finite = torch.cat([total, (total.sum() + w.sum())[None]]).tolist()
    if not np.isfinite(finite):
        for place, resolved in enumerate(jobs):
            checked_result(resolved.job, losses[: steps[place], place], w[place])
    return [float(mean) for mean in totals / steps]


def _mean_squares(jobs: Sequence[ResolvedJob], squares: Tensor) -> list[float]:
    """Return the mean squared loss of each job, from sums [S, 1, J] of squared losses in S steps.

    If no sums were requested, their shape is [S, 0, J], and the result is nan.
    """
    if not squares.shape[1]:
        return [math.nan] * len(jobs)
    totals = squares.sum((0, 1), dtype=torch.float64).tolist()
    return [mean_square(resolved.job, total) for resolved, total in zip(jobs, totals, strict=True)]

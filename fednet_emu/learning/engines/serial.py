"""The reference engine, which trains one job after the other with PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.graph.engine import Engine, Results, TrainResult, checked_result
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainJob
from fednet_emu.learning.graph.optimizers import clip
from fednet_emu.learning.models.base import torch_seed
from fednet_emu.learning.models.flat import FlatModel, Live

Gradient = Callable[[Tensor, Sequence[Tensor]], tuple[tuple[Tensor, ...], Tensor]]
"""Function that takes the losses [B] of a batch and the parameters. It returns the gradient, with one tensor per
parameter, and the mean loss."""


@final
class SerialEngine(Engine):
    """Engine that trains one job after the other, in a single working copy of each model.

    A full batch that is a slice of the data is not copied. The caller sets the number of intra-op threads. Small jobs
    are fastest with `torch.set_num_threads(1)`.
    """

    def __init__(self) -> None:
        self._live: dict[FlatModel, Live] = {}

    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        for resolved in jobs:
            yield resolved, self._run_one(resolved)

    def _run_one(self, resolved: ResolvedJob) -> TrainResult:
        try:
            return self._trained(resolved)
        except Exception as error:
            error.add_note(f"in training job {resolved.job.label}")
            raise

    def _trained(self, resolved: ResolvedJob) -> TrainResult:
        model = resolved.job.model
        live = self._live.get(model)
        if live is None:
            live = self._live[model] = model.live()
        live.start(resolved.params, resolved.base)
        seed = resolved.job.streams(*resolved.job.rng_key, "torch").integers(2**63) if model.draws else None
        with nullcontext() if seed is None else torch_seed(int(seed)):
            told = torch.stack(_descend(live, resolved))
        trained = live.let_go()
        if not resolved.job.squares:
            return checked_result(resolved.job, told, trained)
        return checked_result(resolved.job, told[:, 0], trained, told[:, 1])


def _descend(live: Live, resolved: ResolvedJob) -> list[Tensor]:
    """Perform all steps of a job in place, and return the result of `_step` for each step."""
    job = resolved.job
    move = job.plan.optimizer.start(live.weights, job.plan.lr)
    gradient_of = (
        _gradient if job.plan.private is None else partial(_private_gradient, job.plan.private, job.noise_source())
    )
    mask = None if job.mask is None else job.mask[: len(live.weights)].to(live.weights)
    return [_step(live, resolved, gradient_of, move, mask, x, y) for x, y in _augmented(resolved)]


def _step(
    live: Live,
    resolved: ResolvedJob,
    gradient_of: Gradient,
    move: Callable[[Tensor], None],
    mask: Tensor | None,
    x: Tensor,
    y: Tensor,
) -> Tensor:
    """Perform one training step in place, and return the loss before the step. The gradient is not kept.

    If the job requests squares, the result [2] is the loss and the sum of the squared losses of the samples.
    """
    job = resolved.job
    losses = (job.loss or job.model.sample_losses)(live.module(live.model.laid_out(x)), y)
    gradient, loss = gradient_of(losses, live.parameters)
    told = torch.stack((loss, losses.square().sum())).detach() if job.squares else loss.detach()
    with torch.no_grad():
        if resolved.is_plain:  # needs no copy of the gradient into one vector
            torch._foreach_add_(live.parameters, gradient, alpha=-job.plan.lr)
            return told
        before = None if mask is None else live.weights.clone()
        direction = _direction(live.weights, torch.cat([g.reshape(-1) for g in gradient]), resolved)
        if job.plan.clip_norm is not None:
            clip(direction, job.plan.clip_norm, mask)
        move(direction)
        if resolved.drift is not None:
            live.weights.sub_(resolved.drift[: len(live.weights)], alpha=job.plan.lr)
        if before is not None and mask is not None:  # mask the step: with Adam, masking the gradient would differ
            live.weights.copy_(before.lerp_(live.weights, mask))
    return told


def _gradient(losses: Tensor, parameters: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
    loss = losses.mean()
    return torch.autograd.grad(loss, parameters, materialize_grads=True), loss


def _private_gradient(
    rule: PrivateSgd, rng: np.random.Generator, losses: Tensor, parameters: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return DP-SGD's gradient as one tensor: (sum of the samples' clipped gradients + noise) / batch size."""
    total = torch.zeros_like(torch.cat([p.detach().reshape(-1) for p in parameters]))
    for loss in losses:
        own = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        gradient = torch.cat([part.reshape(-1) for part in own])
        total += gradient * rule.factors(gradient)
    return ((total + rule.noise(rng, total)) / len(losses),), losses.mean()


def _direction(w: Tensor, gradient: Tensor, resolved: ResolvedJob) -> Tensor:
    """Return the gradient [n_trainable] of the loss and the additional terms, at the weights `w` [n_trainable]."""
    if resolved.scale != 1.0:
        gradient = gradient * resolved.scale
    if resolved.linear is not None:
        gradient = gradient + resolved.linear[: len(w)]
    if resolved.anchor is not None:
        gradient = gradient + resolved.prox * (w - resolved.anchor[: len(w)])
    if resolved.job.l1:
        gradient = gradient.add(w.sign(), alpha=resolved.job.l1)
    return gradient


def _augmented(resolved: ResolvedJob) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the augmented inputs and the targets of each step; one copy moves all random numbers to the device."""
    job = resolved.job
    if job.augment is None:
        yield from _batches(job, resolved.targets)
        return
    shape = (job.plan.n_steps(job.n_samples), job.plan.batch_width(job.n_samples))
    drawn = job.augment.draw(job.streams(*job.rng_key, "augment"), shape).to(job.data.x)
    for (x, y), own in zip(_batches(job, resolved.targets), drawn, strict=True):
        yield job.augment.apply(x, own[: len(x)]), y


def _batches(job: TrainJob, targets: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and targets of each step. A full batch is gathered once, or is a view if its rows are a slice."""
    x, y, own, first = job.data.x, job.data.y, job.indices, 0
    if targets is not None:
        x, y, own, first = x[own], targets, slice(None), job.first_row
    if job.is_full_batch:
        rows = own if isinstance(own, slice) else torch.tensor(job.rows(), device=y.device)
        batch = x[rows], y[rows]
        for _ in range(job.plan.n_steps(job.n_samples)):
            yield batch
        return
    batches = job.batches()
    index = torch.as_tensor(batches.index - first, device=y.device)
    for rows, count in zip(index, batches.count.tolist(), strict=True):
        yield x.index_select(0, rows[:count]), y.index_select(0, rows[:count])

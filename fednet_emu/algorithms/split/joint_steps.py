"""Steps in which devices share a part of the model: they depend on the order of service and on lost messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from fednet_emu.errors import Diverged
from fednet_emu.federation import SgdPlan, Streams, TrainData, TrainJob, accumulated, average
from fednet_emu.learning.models.base import torch_seed
from fednet_emu.learning.models.flat import FlatModel, Live


@final
class DeviceBatches:
    """The batches of a device in a round, as in its ordinary local training; drawn when they are first needed."""

    def __init__(self, job: TrainJob) -> None:
        self._job = job

    @cached_property
    def _rows(self) -> list[Tensor]:
        batches = self._job.batches()
        index = torch.tensor(batches.index, device=self._job.data.y.device)
        return [rows[:count] for rows, count in zip(index, batches.count.tolist(), strict=True)]

    def __getitem__(self, step: int) -> Tensor:
        """The rows [B] of the data in a step."""
        return self._rows[step]


class Served(NamedTuple):
    """Progress of a round in which the server works through the batches of all devices; `order` is device and step."""

    order: Sequence[tuple[int, int]]
    batches: Mapping[int, DeviceBatches]  # the batches of each device
    arrived: Sequence[int]  # devices whose parts of the model have arrived in the end
    weights: Sequence[float]  # the weight of each of these in their mean


@final
class JointSteps:
    """Makes the steps of a model without running statistics, whose first `n_device` parameters are the devices'."""

    def __init__(self, model: FlatModel, data: TrainData, n_device: int, streams: Streams) -> None:
        self._model, self._data, self._cut, self._streams = model, data, n_device, streams

    @cached_property
    def _live(self) -> Live:
        return self._model.live()

    def as_served(self, w: Tensor, plan: SgdPlan, served: Served, key: tuple[int, ...]) -> Tensor:
        """The model [P] after a round in which the one part of the server makes a step for each batch, from w [P].

        Each device makes the steps of its own batches on a part of its own, and the parts that arrive are averaged.

        Raises:
            Diverged: a parameter is not finite.
        """
        live, cut = self._live, self._cut
        live.start(w)
        front, back = live.weights[:cut], live.weights[cut:]
        own = {k: w[:cut].clone() for k in dict.fromkeys(k for k, _ in served.order)}
        move_server = plan.optimizer.start(back, plan.lr)
        move = {k: plan.optimizer.start(part, plan.lr) for k, part in own.items()}
        with self._drawing(key):
            for k, step in served.order:
                front.copy_(own[k])
                gradient = _gradient(live, self._losses(live, served.batches[k][step]).mean())
                move_server(gradient[cut:])
                move[k](gradient[:cut])
        front.copy_(accumulated(average(w[:cut], served.weights), [own[k] for k in served.arrived]))
        return _finite(live.let_go(), plan.lr, key)

    def together(
        self,
        w: Tensor,
        lr: float,
        forward: Sequence[DeviceBatches],
        backward: Sequence[int],
        step: int,
        key: tuple[int, ...],
    ) -> Tensor:
        """The model [P] after one plain step from w [P] on the batches of several devices as one.

        Args:
            w: the model before.
            lr: step size.
            forward: devices whose activations have arrived: the server steps along the mean gradient of their batches.
            backward: places in `forward` of those whose parts of the model have arrived, which are averaged; they come
                from the same forward pass, with its random draws.
            step: index of the batch of each device.
            key: round and step, the key of the model's random draws.

        Raises:
            Diverged: a parameter is not finite.
        """
        live, cut = self._live, self._cut
        live.start(w)
        with self._drawing(key):
            rows = [own[step] for own in forward]
            losses = self._losses(live, torch.cat(rows))
            some = 0 < len(backward) < len(forward)
            gradient = _gradient(live, losses.mean(), again=some)
            if some:
                of = torch.split(losses, [len(own) for own in rows])
                gradient[:cut] = _gradient(live, torch.cat([of[place] for place in backward]).mean())[:cut]
            elif not backward:
                gradient[:cut] = 0.0
        live.weights.sub_(gradient, alpha=lr)
        return _finite(live.let_go(), lr, key)

    def _drawing(self, key: tuple[int, ...]) -> AbstractContextManager[None]:
        """Random draws of the model in the block are from the stream of this key."""
        if not self._model.draws:
            return nullcontext()
        return torch_seed(int(self._streams("split", *key).integers(2**63)))

    def _losses(self, live: Live, rows: Tensor) -> Tensor:
        """The losses [B] of rows of the data, in one forward pass."""
        x, y = self._data.x.index_select(0, rows), self._data.y.index_select(0, rows)
        return self._model.sample_losses(live.module(self._model.laid_out(x)), y)


def _gradient(live: Live, loss: Tensor, *, again: bool = False) -> Tensor:
    """The gradient [P] of a loss, whose graph is kept if there is one of it `again`."""
    gradient = torch.autograd.grad(loss, live.parameters, materialize_grads=True, retain_graph=again)
    return torch.cat([part.reshape(-1) for part in gradient])


def _finite(w: Tensor, lr: float, key: tuple[int, ...]) -> Tensor:
    if not torch.isfinite(w).all():
        when = ", ".join(f"{name} {number + 1}" for name, number in zip(("round", "step"), key, strict=False))
        raise Diverged(
            f"splitfed, {when}: training diverges, got parameters that are not finite with lr={lr:g}; lower the "
            "learning rate or look for extreme values in the data"
        )
    return w

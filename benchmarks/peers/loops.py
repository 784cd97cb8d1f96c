"""Hand-written PyTorch for one round of federated averaging: what a simulator's training is measured against.

Every function trains the cohort from w [P] with the batches given and returns the mean [P] of the trained models. They
differ in how they do it, not in what they do: for the same batches they agree to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from reference_loops import mlp_round, softmax_round
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import conv2d, cross_entropy, max_pool2d, relu
from torch.utils.data import DataLoader, TensorDataset

from peers.workloads import Workload


def draw_batches(workload: Workload, rng: np.random.Generator) -> tuple[NDArray[np.int64], Tensor]:
    """The cohort [C] of a round, and its batches [C, steps, batch] as rows of all samples."""
    cohort = rng.choice(workload.clients, workload.cohort, replace=False)
    own = np.tile(np.arange(workload.samples), (workload.cohort, 1))
    picked = rng.permuted(own, axis=1)[:, : workload.steps * workload.batch]
    rows = picked.reshape(workload.cohort, workload.steps, workload.batch) + workload.samples * cohort[:, None, None]
    return cohort, torch.from_numpy(rows)


class Lean:
    """One client after the other, in place, on a module whose parameters are views into one flat vector."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, lr: float) -> None:
        self.model, self.x, self.y, self.lr = copy.deepcopy(model), x, y, lr
        self.parameters = tuple(self.model.parameters())
        self.vector = flat(self.model)
        for parameter, piece in zip(self.parameters, pieces(self.vector, self.parameters), strict=True):
            parameter.data = piece

    def train(self, w: Tensor, rows: Tensor) -> Tensor:
        """The parameters [P], which the next call overwrites, after the steps [S, B] of one client."""
        with torch.no_grad():
            self.vector.copy_(w)
        for batch in rows:
            self.step(self.x.index_select(0, batch), self.y.index_select(0, batch))
        return self.vector

    def step(self, x: Tensor, y: Tensor) -> None:
        """One step on x [B, ...] and y [B]."""
        gradient = torch.autograd.grad(cross_entropy(self.model(x), y), self.parameters)
        with torch.no_grad():
            for parameter, slope in zip(self.parameters, gradient, strict=True):
                parameter.sub_(slope, alpha=self.lr)

    def round(self, w: Tensor, rows: Tensor) -> Tensor:
        """The mean [P] of the models that the clients' batches [C, S, B] make of w."""
        total = torch.zeros_like(w)
        for own in rows:
            total += self.train(w, own)
        return total / len(rows)


class Naive:
    """One client after the other with DataLoader, deepcopy, optimiser and state dictionaries: what people write."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, lr: float) -> None:
        self.model, self.x, self.y, self.lr = copy.deepcopy(model), x, y, lr

    def round(self, w: Tensor, rows: Tensor) -> Tensor:
        """The mean [P] of the models that the clients' batches [C, S, B] make of w."""
        load(self.model, w)
        trained = [self._client(own) for own in rows]
        mean = {name: torch.stack([state[name] for state in trained]).mean(0) for name in trained[0]}
        self.model.load_state_dict(mean)
        return flat(self.model)

    def _client(self, rows: Tensor) -> dict[str, Tensor]:
        local = copy.deepcopy(self.model).train()
        optimiser = torch.optim.SGD(local.parameters(), lr=self.lr)
        mine = rows.reshape(-1)
        samples = TensorDataset(self.x[mine], self.y[mine])  # the batches are drawn already: no shuffling here
        for x, y in DataLoader(samples, batch_size=rows.shape[1]):
            optimiser.zero_grad()
            cross_entropy(local(x), y).backward()
            optimiser.step()
        return local.state_dict()


class Stacked:
    """Many clients at once: stacked parameters [C, P], and one call of `gradient` per step.

    Args:
        gradient: from parameters [C, P], x [C, B, ...] and y [C, B] to gradients [C, P].
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        lr: float,
        gradient: Callable[[nn.Module], Callable[[Tensor, Tensor, Tensor], Tensor]],
    ) -> None:
        self.x, self.y, self.lr, self.gradient = x, y, lr, gradient(model)

    def round(self, w: Tensor, rows: Tensor) -> Tensor:
        """The mean [P] of the models that the clients' batches [C, S, B] make of w."""
        stack = w.expand(len(rows), -1).clone()
        batch = self.x.new_empty((rows.shape[0] * rows.shape[2], *self.x.shape[1:]))
        for step in rows.unbind(1):
            index = step.reshape(-1)
            torch.index_select(self.x, 0, index, out=batch)
            gradient = self.gradient(stack, batch.view(*step.shape, *self.x.shape[1:]), self.y[index].view(step.shape))
            stack.sub_(gradient, alpha=self.lr)
        return stack.mean(0)


def by_vmap(model: nn.Module) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Gradients by `vmap(grad)`, torch's own way."""
    like = tuple(model.parameters())
    names = [name for name, _ in model.named_parameters()]

    def loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, dict(zip(names, pieces(w, like), strict=True)), (x,)), y)

    return vmap(grad(loss))


def by_autograd(model: nn.Module) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Gradients by autograd through batched products and grouped convolutions."""
    like = tuple(model.parameters())
    convolutional = like[0].ndim == 4

    def gradient(stack: Tensor, x: Tensor, y: Tensor) -> Tensor:
        w = stack.detach().requires_grad_()
        layers = list(paired(pieces(w, like)))
        if convolutional:
            x = _convolve(layers[:2], x)
            layers = layers[2:]
        scores = _dense(layers, x.flatten(2))
        loss = cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]
        return torch.autograd.grad(loss, w)[0]

    return gradient


def _convolve(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """Convolutions of 5x5, ReLU and pooling of x [C, B, 1, 28, 28], one group of channels per client."""
    clients, batch = x.shape[:2]
    channels = x.transpose(0, 1).flatten(1, 2)
    for kernel, bias in layers:
        channels = max_pool2d(
            relu(conv2d(channels, kernel.flatten(0, 1), bias.flatten(), padding=2, groups=clients)), 2
        )
    return channels.view(batch, clients, -1).transpose(0, 1)


def _dense(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """Scores [C, B, classes] of x [C, B, n] after layers with ReLU between them."""
    for place, (weight, bias) in enumerate(layers):
        x = torch.baddbmm(bias[:, None], x if place == 0 else relu(x), weight.transpose(1, 2))
    return x


class Analytic:
    """A few clients at once, dense models only, with the gradient written out: the loops of the engine's benchmark."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, lr: float) -> None:
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        self.loop = {1: softmax_round, 2: mlp_round}[len(layers)]
        self.x, self.y, self.lr = x.flatten(1), y, lr

    def round(self, w: Tensor, rows: Tensor) -> Tensor:
        """The mean [P] of the models that the clients' batches [C, S, B] make of w."""
        return self.loop(w, self.x, self.y, rows, self.lr)


# ---- flat vectors ----------------------------------------------------------------------------------------------------


def flat(model: nn.Module) -> Tensor:
    """A copy [P] of the parameters."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def load(model: nn.Module, w: Tensor) -> None:
    """Copy w [P] into the parameters."""
    like = tuple(model.parameters())
    with torch.no_grad():
        for parameter, piece in zip(like, pieces(w, like), strict=True):
            parameter.copy_(piece)


def pieces(w: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views into w [..., P] with the shapes of the parameters, after the leading dimensions of w."""
    parts = w.split([parameter.numel() for parameter in like], dim=-1)
    return [part.view(*w.shape[:-1], *parameter.shape) for part, parameter in zip(parts, like, strict=True)]


def paired(parameters: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Weights with their biases."""
    return zip(parameters[::2], parameters[1::2], strict=True)

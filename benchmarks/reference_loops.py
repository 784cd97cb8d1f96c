"""The best loops we could write by hand for the arithmetic of some workloads: nothing but PyTorch, one file, no engine.

Data have the shape of MNIST: clients of equally many samples in one tensor. Each function plays one round: all clients
start from `w`, and the mean of their models comes back. Gradients are analytic, a few clients at a time, so that what
a step touches stays in the cache; updates happen in place.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

FEATURES, CLASSES, SAMPLES = 784, 10, 600


def draw(rng: np.random.Generator, clients: np.ndarray, n_steps: int, width: int) -> Tensor:
    """Rows [clients, steps, width] of the data: batches without replacement out of each client's own samples."""
    order = rng.permuted(np.tile(np.arange(SAMPLES), (len(clients), 1)), axis=1)[:, : n_steps * width]
    return torch.from_numpy(order.reshape(len(clients), n_steps, width) + clients[:, None, None] * SAMPLES)


def softmax_round(w: Tensor, x: Tensor, y: Tensor, rows: Tensor, lr: float, chunk: int = 25) -> Tensor:
    """Softmax regression: w [7850] after one round over the batches rows [clients, steps, width]."""
    n_clients, n_steps, width = rows.shape
    total, gathered = torch.zeros_like(w), torch.empty(chunk * width, FEATURES)
    one = torch.full((1, 1, 1), -1.0).expand(chunk, 1, width)
    for part in torch.split(rows, chunk):
        own = w.repeat(len(part), 1)
        weight, bias = own[:, : CLASSES * FEATURES].view(-1, CLASSES, FEATURES), own[:, CLASSES * FEATURES :]
        for step in range(n_steps):
            flat = part[:, step].reshape(-1)
            batch = torch.index_select(x, 0, flat, out=gathered[: len(flat)]).view(len(part), width, FEATURES)
            chosen = y[flat].view(len(part), 1, width)
            z = torch.bmm(weight, batch.transpose(1, 2)).add_(bias[:, :, None])
            slope = torch.softmax(z, 1).scatter_add_(1, chosen, one[: len(part)]).mul_(-lr / width)
            weight.baddbmm_(slope, batch)
            bias.add_(slope.sum(2))
        total += own.sum(0)
    return total / n_clients


def mlp_round(w: Tensor, x: Tensor, y: Tensor, rows: Tensor, lr: float, hidden: int = 200, chunk: int = 5) -> Tensor:
    """One hidden layer: w [159010] after one round over the batches rows [clients, steps, width]."""
    n_clients, n_steps, width = rows.shape
    sizes = [hidden * FEATURES, hidden, CLASSES * hidden, CLASSES]
    total, gathered = torch.zeros_like(w), torch.empty(chunk * width, FEATURES)
    one = torch.full((1, 1, 1), -1.0).expand(chunk, 1, width)
    for part in torch.split(rows, chunk):
        own = w.repeat(len(part), 1)
        first, first_bias, second, second_bias = torch.split(own, sizes, 1)
        first, second = first.view(-1, hidden, FEATURES), second.view(-1, CLASSES, hidden)
        for step in range(n_steps):
            flat = part[:, step].reshape(-1)
            batch = torch.index_select(x, 0, flat, out=gathered[: len(flat)]).view(len(part), width, FEATURES)
            chosen = y[flat].view(len(part), 1, width)
            inside = torch.bmm(batch, first.transpose(1, 2)).add_(first_bias[:, None]).relu_()
            z = torch.bmm(second, inside.transpose(1, 2)).add_(second_bias[:, :, None])
            slope = torch.softmax(z, 1).scatter_add_(1, chosen, one[: len(part)]).mul_(-lr / width)
            below = torch.bmm(slope.transpose(1, 2), second).mul_(inside > 0)
            second.baddbmm_(slope, inside)
            second_bias.add_(slope.sum(2))
            first.baddbmm_(below.transpose(1, 2), batch)
            first_bias.add_(below.sum(1))
        total += own.sum(0)
    return total / n_clients


def serial_round(
    w: Tensor, x: Tensor, y: Tensor, rows: Tensor, lr: float, module: torch.nn.Module, vector: Tensor
) -> Tensor:
    """Any module whose parameters are views into `vector`: one client after the other, plain autograd."""
    total, parameters = torch.zeros_like(w), tuple(module.parameters())
    for client in rows:
        vector.copy_(w)
        for batch in client:
            loss = torch.nn.functional.cross_entropy(module(x[batch]), y[batch])
            gradient = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, g in zip(parameters, gradient, strict=True):
                    parameter.sub_(g, alpha=lr)
        total += vector
    return total / len(rows)

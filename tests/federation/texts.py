"""A text of two owners, a scenario in which they learn it, and the same learning as a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.datasets.text import LETTERS, Predict, characters, windows

TEXT = "she sells sea shells on the sea shore. the shells she sells are sea shells for sure.\n" * 6
TWO_DEVICES: dict[str, Any] = {
    "seed": 3,
    "devices": {
        "count": 2,
        "placement": {"kind": "disc", "radius_m": 50},
        "speed": {"kind": "fixed", "flop_per_s": 1e9},
    },
    "channel": {"include": "ideal"},
}


def two_owners(begin: int = 200, predict: Predict = "every") -> Samples:
    """Windows of the text up to `begin` and of the rest, of every fifty the last nine for testing."""
    x, y, group = windows([characters(TEXT[:begin]), characters(TEXT[begin:])], [0, 1], 5, predict=predict)
    test = np.arange(len(y)) % 50 > 40
    pick = [torch.from_numpy(part) for part in (x[~test], y[~test], x[test], y[test])]
    classes = len(LETTERS) if y.ndim == 1 else None
    return Samples(*pick, classes, group[~test], group[test], vocabulary=len(LETTERS))


def loss_of(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean loss over all tokens that are to be predicted."""
    return cross_entropy(network(x).flatten(0, -2), y.flatten())


def plain_loop(network: Callable[[], nn.Module], samples: Samples, lr: float, learnt: Sequence[str] = ()) -> nn.Module:
    """Two rounds of FedAvg with two full-batch steps of each owner on the parameters `learnt`, or on all."""
    whole = network()
    names = learnt or [name for name, _ in whole.named_parameters()]
    for _ in range(2):
        ends, sizes = [], []
        for owner in (0, 1):
            own = network()
            own.load_state_dict(whole.state_dict())
            rows = torch.from_numpy(samples.train_group == owner)
            parts = [own.get_parameter(name) for name in names]
            for _ in range(2):
                loss = loss_of(own, samples.train_x[rows], samples.train_y[rows])
                for part, slope in zip(parts, torch.autograd.grad(loss, parts), strict=True):
                    part.data -= lr * slope
            ends.append(own.state_dict())
            sizes.append(int(rows.sum()))
        for name in names:
            mean = sum(n * its[name] for n, its in zip(sizes, ends, strict=True)) / sum(sizes)
            whole.get_parameter(name).data = mean
    return whole

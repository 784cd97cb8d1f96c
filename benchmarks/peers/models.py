"""The models of the workloads in PyTorch, from one initialisation, and the loss that results are compared by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from peers.workloads import CLASSES, PIXELS, Data

Arrays = Sequence[NDArray[np.float32]]
_INPUTS = PIXELS[0] * PIXELS[1]


def build_model(name: str) -> nn.Module:
    """The model of this name, with the same parameters at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _layers(name)


def _layers(name: str) -> nn.Module:
    if name == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(_INPUTS, CLASSES))
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(_INPUTS, 200), nn.ReLU(), nn.Linear(200, CLASSES))
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, CLASSES),
    )


def parameters_of(model: nn.Module) -> list[NDArray[np.float32]]:
    """Copies of the parameters, in the order of the module."""
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def training_loss(name: str, parameters: Arrays, data: Data) -> float:
    """The mean loss over every sixth sample of all clients' data (10,000), in evaluation mode."""
    model = build_model(name).eval()
    with torch.no_grad():
        for own, given in zip(model.parameters(), parameters, strict=True):
            own.copy_(torch.from_numpy(given))
        x = torch.from_numpy(data.x.reshape(-1, 1, *PIXELS)[::6])
        y = torch.from_numpy(data.y.reshape(-1)[::6])
        parts = zip(x.split(1000), y.split(1000), strict=True)
        return float(torch.stack([cross_entropy(model(a), b) for a, b in parts]).double().mean())


def write_initial(folder: Path) -> None:
    """Leave the initial parameters in a folder, for the contestants without PyTorch."""
    for name in ("softmax", "mlp", "cnn"):
        np.savez(folder / f"{name}.npz", *parameters_of(build_model(name)))

"""The task in the form that FLGo asks for: a module with the clients' samples, the model and the loss."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from peers.batching import Batches
from peers.models import build_model
from peers.stopwatch import Task
from peers.workloads import load_data

TASK = Task.from_command_line(("serial", "threads"))
STEPS = count()  # its next value is how many were taken; two threads may ask for it at once
_DATA = load_data(TASK.workload, TASK.folder)

train_data = [TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for x, y in zip(_DATA.x, _DATA.y, strict=True)]


def DataLoader(dataset: TensorDataset, **_: Any) -> Batches:  # noqa: N802
    """The batches of one client, in the place of torch's loader."""
    return Batches(*dataset.tensors, TASK.workload)


def data_to_device(batch_data: tuple[Tensor, Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """The batch where it is to be."""
    return batch_data[0].to(device), batch_data[1].to(device)


def compute_loss(model: nn.Module, batch_data: tuple[Tensor, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The mean loss of a batch, counted."""
    x, y = data_to_device(batch_data, device)
    next(STEPS)
    return {"loss": cross_entropy(model(x), y)}


def eval(model: nn.Module, data_loader: Any, device: torch.device) -> dict[str, float]:
    """Nothing: evaluation is off."""
    return {}


def get_model() -> nn.Module:
    """The model that everybody starts from."""
    return build_model(TASK.workload.model)

"""Local batches for the peers whose users write the loading of data themselves."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from peers.workloads import Workload


class Batches:
    """The batches of one client's round, freshly shuffled at each iteration: what the round's steps need, and no more.

    Slices of shuffled tensors, not torch's DataLoader, which would take longer than the training.
    """

    def __init__(self, x: Tensor, y: Tensor, workload: Workload) -> None:
        self.x, self.y, self.workload = x, y, workload

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        batch = self.workload.batch
        order = torch.randperm(len(self.y))[: self.workload.steps * batch]
        for rows in order.split(batch):
            yield self.x[rows], self.y[rows]

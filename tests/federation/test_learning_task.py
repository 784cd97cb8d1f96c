"""The learning task: how samples lie in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Partitioned
from fednet_emu.learning.models.flat import FlatModel

OWNERS = {"in order": [0, 0, 1, 1], "mixed": [1, 0, 1, 0], "one is nobody's": [0, 0, 1, -1]}


@pytest.mark.parametrize("owners", OWNERS.values(), ids=OWNERS)
def test_samples_are_copied_only_to_put_them_in_order(owners: list[int]) -> None:
    """Every device's slice holds its own samples; where all lie device by device already, they are used in place."""
    x, y = torch.arange(8.0).reshape(4, 2), torch.arange(4.0)
    split = Partitioned.from_owners(np.array(owners), 2)
    model = FlatModel(torch.nn.Linear(2, 1), "squared-error", (2,))

    task = LearningTask(model, Samples(x, y, x, y, None), (split, split), torch.device("cpu"), timing_only=False)

    for device in (0, 1):
        mine = [sample for sample, owner in enumerate(owners) if owner == device]
        assert task.data.y[task.slice_of(device)].tolist() == mine
        assert task.data.x[task.slice_of(device)].tolist() == x[mine].tolist()
    assert (task.data.x.data_ptr() == x.data_ptr()) == (owners == [0, 0, 1, 1])

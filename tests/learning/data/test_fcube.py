"""Claims about the points in a cube that NIID-Bench calls FCUBE."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednet_emu.learning.data.datasets import Fcube
from fednet_emu.learning.data.partitions import Group

DATA = Fcube().load(None, np.random.default_rng(0))


def test_points_fill_the_cube_and_one_plane_divides_the_classes() -> None:
    """Uniform on [-1, 1]^3: variance 1/3 of each coordinate; class 0 is where the first one is positive."""
    for x, y in ((DATA.train_x, DATA.train_y), (DATA.test_x, DATA.test_y)):
        assert x.abs().max() <= 1.0
        assert x.mean(0).tolist() == pytest.approx([0, 0, 0], abs=5 * np.sqrt(1 / 3 / len(x)))
        assert x.var(0).tolist() == pytest.approx([1 / 3] * 3, abs=5 * np.sqrt(4 / 45 / len(x)))
        assert torch.equal(y, torch.where(x[:, 0] > 0, 0, 1))


def test_each_of_four_devices_has_two_opposite_octants() -> None:
    """500 points in each, of different classes, and the test points of the same octants."""
    train, test = Group().split(DATA, 4, np.random.default_rng(0))
    seen = set()
    for device in range(4):
        corners = DATA.train_x[torch.from_numpy(train.of(device))].sign()
        octants, counts = corners.unique(dim=0, return_counts=True)
        seen |= {tuple(corner) for corner in octants.tolist()}
        assert counts.tolist() == [500, 500]
        assert torch.equal(octants[0], -octants[1])
        tested = DATA.test_x[torch.from_numpy(test.of(device))].sign()
        assert {tuple(corner) for corner in tested.tolist()} == {tuple(corner) for corner in octants.tolist()}
    assert len(seen) == 8
    assert test.sizes().sum() == 1000

"""Claims about what happens to images before a training step."""

import numpy as np
import pytest
import torch

from fednet_emu.learning.graph.augment import Rotation


def turned(x, degree):
    angle = np.radians(degree)
    matrix = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], dtype=x.dtype)
    return Rotation().apply(x, matrix.expand(len(x), 2, 2))


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_a_quarter_turn_moves_every_pixel_to_its_place(quarters):
    """Turning by 90 degrees is torch.rot90, exactly to rounding, on both channels."""
    x = torch.rand(3, 2, 6, 6, dtype=torch.float64)

    assert torch.allclose(turned(x, 90 * quarters), torch.rot90(x, quarters, (2, 3)), atol=1e-12)


def test_an_oblong_image_turns_as_a_rigid_one():
    """Half a turn of a 4x7 image flips it both ways: the axes keep their scales."""
    x = torch.rand(2, 1, 4, 7, dtype=torch.float64)

    assert torch.allclose(turned(x, 180), x.flip(2, 3), atol=1e-12)


def test_what_comes_in_from_outside_continues_the_border():
    """A constant image stays constant under any angle."""
    x = torch.full((1, 1, 9, 9), -0.42, dtype=torch.float64)

    assert torch.allclose(turned(x, 33.0), x, atol=1e-12)


def test_angles_are_within_the_bound_and_follow_the_stream():
    """Every sample of every step has its own rotation by at most 20 degrees; the same stream draws the same."""
    drawn, again = (Rotation(max_degree=20).draw(np.random.default_rng(4), (50, 8)) for _ in range(2))
    angle = torch.atan2(drawn[..., 1, 0], drawn[..., 0, 0]).rad2deg()

    assert drawn.shape == (50, 8, 2, 2)
    assert torch.equal(drawn, again)
    assert 19 < angle.abs().max() <= 20
    assert len(angle.unique()) == 400
    assert torch.allclose(torch.linalg.det(drawn), torch.ones(50, 8, dtype=torch.float64))

"""Claims about shared and private layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.layers import LayerName, Layers

MODEL = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 4)), "cross-entropy", (3,))
"""Parameters 0.weight [6], 0.bias [2], 2.weight [8], 2.bias [4]: twenty scalars in this order."""


@pytest.mark.parametrize(
    ("private", "places"),
    [
        ([], []),
        (["2.*"], range(8, 20)),
        ([-1], range(8, 20)),
        ([0], range(8)),
        (["*.bias"], [6, 7, 16, 17, 18, 19]),
        (["0.weight", 1], [*range(6), *range(8, 20)]),
    ],
)
def test_names_patterns_and_places(private: list[LayerName], places: list[int]) -> None:
    """Parameters are meant by name, by pattern, or by the place of their layer; the rest is shared."""
    layers = Layers(MODEL, private)

    assert layers.private.nonzero().squeeze(1).tolist() == list(places)
    assert torch.equal(layers.shared + layers.private, torch.ones(20))
    assert layers.n_shared == 20 - len(places)


def test_parts_are_taken_and_put_back() -> None:
    """What is taken is the shared part in order; putting it under another vector leaves that one's private part."""
    layers, a, b = Layers(MODEL, ["2.*"]), torch.arange(20.0), torch.arange(100.0, 120.0)
    both = layers.put(b, layers.take(a))

    assert layers.take(a).tolist() == list(range(8))
    assert both.tolist() == [*range(8), *range(108, 120)]
    assert layers.pad(layers.take(a)).tolist() == [*range(8), *[0] * 12]
    assert b.tolist() == list(range(100, 120))

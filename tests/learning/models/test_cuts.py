"""Cuts of a model: sizes printed for McMahan's CNN, operations that add up, and which numbers are whose."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models import MODELS
from fednet_emu.learning.models.base import Model
from fednet_emu.learning.models.cuts import cuts_of
from fednet_emu.learning.models.flat import FlatModel

IMAGE = (1, 28, 28)
WHOLE = {
    "mcmahan-cnn": {},
    "lenet": {},
    "mlp": {"hidden": (30, 20, 10), "dropout": (0.1, 0.2, 0.2, 0.3)},
    "digit-model": {"channels": (4, 4, 8), "units": (16, 8)},
    "resnet-20": {},
}


def flat(kind: str, **settings: object) -> FlatModel:
    """A model for grey images of ten classes."""
    made: Model = MODELS[kind](**settings)
    return FlatModel(made.build(IMAGE, 10), "cross-entropy", IMAGE)


def test_mcmahan_s_network_is_cut_in_three_places() -> None:
    """Numbers at the cut 6,272, 3,136 and 512; 1,662,538, 1,611,274 and 5,130 of 1,663,370 parameters on the server."""
    cuts = cuts_of(flat("mcmahan-cnn"))

    assert [cut.width for cut in cuts] == [6272, 3136, 512]
    assert [1_663_370 - cut.device.n_shared for cut in cuts] == [1_662_538, 1_611_274, 5_130]


def test_operations_of_its_parts_by_hand() -> None:
    """Products of the convolutions and layers; the device's first layer has no gradient of its input to compute."""
    first, second = 2 * 25 * 32 * 28 * 28, 2 * 25 * 32 * 64 * 14 * 14
    dense, last = 2 * 3136 * 512, 2 * 512 * 10
    found = [(cut.forward_flop, cut.server_flop, cut.backward_flop) for cut in cuts_of(flat("mcmahan-cnn"))]

    assert found == [
        (first, 3 * (second + dense + last), first),
        (first + second, 3 * (dense + last), first + 2 * second),
        (first + second + dense, 3 * last, first + 2 * (second + dense)),
    ]


@pytest.mark.parametrize("kind", WHOLE)
def test_parts_add_up_to_the_model(kind: str) -> None:
    """Whatever the cut, device and server do what the whole model costs, and each number belongs to one of them."""
    model = flat(kind, **WHOLE[kind])
    cuts, numbers = cuts_of(model), torch.arange(model.size)

    assert len(cuts) >= 2
    for cut in cuts:
        assert cut.forward_flop + cut.server_flop + cut.backward_flop == model.flop_per_sample
        assert 0 < cut.device.n_shared < model.size
    sizes = [cut.device.n_shared for cut in cuts]
    assert sizes == sorted(set(sizes))
    for cut, deeper in pairwise(cuts):
        assert set(cut.device.take(numbers).tolist()) < set(deeper.device.take(numbers).tolist())


def test_running_statistics_go_with_their_layer() -> None:
    """Behind the first batch norm the device has what is named 1 and 2, parameters and statistics, and nothing else."""
    model = flat("digit-model", **WHOLE["digit-model"])
    places = model.unflatten(torch.arange(model.size))
    device = set(cuts_of(model)[1].device.take(torch.arange(model.size)).tolist())

    assert {"2.running_mean", "2.running_var"} < places.keys()
    for name, numbers in places.items():
        assert (
            set(numbers.reshape(-1).tolist()) <= device
            if name[:2] in ("1.", "2.")
            else device.isdisjoint(numbers.reshape(-1).tolist())
        )


def test_the_front_makes_what_the_back_takes() -> None:
    """The numbers at the cut are those that a real network passes on there, flattening and pooling included."""
    model = flat("lenet")
    x = torch.randn(3, *IMAGE)
    layers = nn.Sequential(*model.layers)

    for cut, end in zip(cuts_of(model), (3, 7, 9, 11), strict=False):
        assert layers[:end](x).numel() == 3 * cut.width


def test_trying_it_draws_nothing() -> None:
    """Random numbers of the program are what they were, though dropout draws some."""
    model = flat("mlp", hidden=(8,), dropout=(0.1, 0.1))
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    cuts_of(model)

    assert torch.equal(torch.rand(3), expected)


def test_layers_that_share_parameters_are_refused() -> None:
    """Two layers with one weight: it is counted twice, and sent once."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    tied = FlatModel(nn.Sequential(first, nn.ReLU(), second), "cross-entropy", (4,))
    said = "layers share parameters, got 40 of them in its layers for 24 that are sent; choose a model without tied"
    with pytest.raises(ScenarioError, match=f"model: {said}"):
        cuts_of(tied)


class Scaled(nn.Linear):
    """A layer with a buffer that training does not change."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.register_buffer("scale", torch.ones(4))


def test_buffers_that_stay_are_refused() -> None:
    """They are no part of the vector."""
    said = "model: cannot be cut, got 5 parameters and buffers in its layers for 4 that are sent; leave out buffers"
    with pytest.raises(ScenarioError, match=said):
        cuts_of(FlatModel(nn.Sequential(Scaled(), nn.ReLU(), nn.Linear(4, 4)), "cross-entropy", (4,)))

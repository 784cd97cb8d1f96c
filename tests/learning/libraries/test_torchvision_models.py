"""Architectures of torchvision as models: their published sizes, any number of channels, and runs."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from fednet_emu.cli.app import app
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models import TorchvisionModel
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.torch_vision import torch_vision

if find_spec("torchvision") is None:
    pytest.skip("needs torchvision: pip install 'fednet-emu[torchvision]'", allow_module_level=True)


def n_parameters(module: nn.Module) -> int:
    """Number of trainable scalars."""
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "published", "last_inputs"),
    [
        ("resnet18", 11_689_512, 512),
        ("mobilenet_v3_small", 2_542_856, 1024),
        ("squeezenet1_1", 1_235_496, 512),
        ("shufflenet_v2_x0_5", 1_366_792, 1024),
    ],
)
def test_only_the_last_layer_depends_on_the_classes(name, published, last_inputs):
    """With 1000 classes the sizes are those that torchvision publishes; each class less is one row less."""
    whole = TorchvisionModel(name=name).build((3, 64, 64), 1000)
    assert n_parameters(whole) == published

    small = TorchvisionModel(name=name).build((3, 64, 64), 10)
    assert n_parameters(small) == published - 990 * (last_inputs + 1)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_the_first_layer_takes_any_number_of_channels(channels):
    """Only its kernel changes: 7 x 7 weights for each of 64 outputs and each channel."""
    colour, other = (TorchvisionModel(name="resnet18").build((c, 32, 32), 10) for c in (3, channels))

    assert n_parameters(other) - n_parameters(colour) == (channels - 3) * 64 * 49
    assert other(torch.zeros(2, channels, 32, 32)).shape == (2, 10)


def test_group_norm_takes_the_place_of_every_batch_norm():
    """It has as many parameters, no statistics, and one sample does not change what another gets."""
    batch, group = (
        FlatModel(seeded_module(lambda n=n: TorchvisionModel(name="resnet18", norm=n).build((3, 32, 32), 10), 0),
                  "cross-entropy", (3, 32, 32))
        for n in ("batch", "group")
    )  # fmt: skip

    assert batch.size - batch.n_trainable == 2 * 4800
    assert (group.size, group.n_trainable) == (batch.n_trainable, batch.n_trainable)
    assert (batch.batchable, group.batchable) == (False, True)


def test_weights_follow_the_seed():
    """Nothing is downloaded, and the same seed makes the same weights."""
    build = lambda: TorchvisionModel(name="mobilenet_v3_small").build((3, 32, 32), 10)  # noqa: E731
    first, second, other = (seeded_module(build, seed) for seed in (0, 0, 1))

    same = [torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


@pytest.mark.parametrize("name", ["googlenet", "regnet_y_400mf"])
def test_architectures_of_their_own_kind_are_built_without_memory_too(name):
    """One has further outputs in training, of the other the widths are computed as tensors."""
    with torch.device("meta"):
        module = TorchvisionModel(name=name).build((3, 64, 64), 10)

    assert n_parameters(module) > 1e6
    assert module.training


@pytest.mark.parametrize(
    ("settings", "shape", "problem"),
    [
        (
            {"name": "resnet19"},
            (3, 32, 32),
            r"model.name: unknown architecture .*, got 'resnet19'; .*resnet1",
        ),
        ({"name": "resnet18"}, (64,), r"samples must be images .* got shape \[64\]"),
        ({"name": "squeezenet1_1"}, (3, 16, 16), r"squeezenet1_1 cannot take images of shape \[3, 16, 16\].*too small"),
        ({"name": "vit_b_16"}, (3, 32, 32), "vit_b_16 cannot take images .*; use larger images"),
        ({"name": "resnet18", "args": {"width": 3}}, (3, 32, 32), r"model.args: resnet18 rejects .*got width=3"),
        ({"name": "resnet18", "args": {"weights": "DEFAULT"}}, (3, 32, 32), "model.args: weights are random"),
        ({"name": "resnet18", "norm": "group", "groups": 5}, (3, 32, 32), "model.groups: must divide all widths"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(settings, shape, problem):
    """It says which setting, and what would be right."""
    with pytest.raises(ScenarioError, match=problem) as caught:
        TorchvisionModel(**settings).build(shape, 10)
    assert "\n" not in str(caught.value)


def test_arguments_reach_the_architecture():
    """A vision transformer for images of 32 x 32."""
    module = TorchvisionModel(name="vit_b_32", args={"image_size": 32}).build((1, 32, 32), 10)

    assert module.image_size == 32


def test_every_architecture_is_built_for_grey_images():
    """All image classifiers that torchvision lists, at the size that they are made for, without memory for weights."""
    models = torch_vision("model").models
    names = [name for name in models.list_models(module=models) if "_h_" not in name and not name.startswith("regnet")]
    assert len(names) > 50
    for name in names[::8]:
        with torch.device("meta"):
            module = TorchvisionModel(name=name).build((1, 224, 224), 7)
        assert next(module.parameters()).is_meta, name


@pytest.mark.parametrize("name", ["squeezenet1_1", "shufflenet_v2_x0_5"])
def test_a_scenario_runs_from_the_command_line(name, tmp_path: Path):
    """Two rounds on colour images; batch norm's statistics travel with the parameters."""
    data = "{kind: synthetic, features: [3, 32, 32], n_samples: 60, n_test: 20}"
    settings = [
        f"data={data}",
        f"model={{kind: torchvision, name: {name}}}",
        "devices.count=4",
        "partition=iid",
        "algorithm.cohort=2",
    ]
    settings += ["algorithm.local_epochs=1", "stop={rounds: 2}"]
    arguments = [part for setting in settings for part in ("--set", setting)]

    result = CliRunner().invoke(app, ["run", "quickstart", "--out", str(tmp_path / "run"), "--no-plots", *arguments])

    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["rounds"], summary["verified"]) == (2, True)

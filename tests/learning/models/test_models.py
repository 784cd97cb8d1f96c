"""Claims about the networks that devices train."""

import pytest
import torch
from pydantic import BaseModel, ValidationError
from torch import nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models import (
    MODELS,
    AnyModel,
    CharLstm,
    DigitModel,
    LeNet,
    Linear,
    McMahanCnn,
    Mlp,
    Model,
    NiidBenchCnn,
    ResNet18,
    ResNet20,
    Softmax,
    TorchvisionModel,
    TransformersModel,
    UserModule,
    WordLstm,
)
from fednet_emu.learning.models.adapters import Lora
from fednet_emu.learning.models.flat import FlatModel

USER_CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width, outputs=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(12, width), nn.BatchNorm1d(width))
        self.head = nn.Linear(width, outputs)
        self.stem[2].eval()

    def forward(self, x):
        return self.head(self.stem(x))

def helper(): ...
"""


class Holder(BaseModel):
    """A scenario with one slot."""

    model: AnyModel


def n_parameters(module: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


@pytest.fixture
def user_code(tmp_path, monkeypatch):
    """The importable module `own_nets`, and `own_broken` that fails on import."""
    (tmp_path / "own_nets.py").write_text(USER_CODE, encoding="utf-8")
    (tmp_path / "own_broken.py").write_text("import own_missing_dependency\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


OWN = UserModule(path="own_nets:Net", args={"width": 5})
IMAGES = [DigitModel(), McMahanCnn(), ResNet18(), ResNet20(norm="batch")]
TOKENS = [CharLstm(), WordLstm()]
OF_A_LIBRARY = TorchvisionModel(name="resnet18")
OF_TRANSFORMERS = TransformersModel(config={"model_type": "gpt2"}, adapters=Lora(targets=("c_attn",)))
ALL = [*IMAGES, *TOKENS, LeNet(), Linear(), Mlp(), NiidBenchCnn(), Softmax(), OWN, OF_A_LIBRARY, OF_TRANSFORMERS]


def test_every_kind_is_in_the_list_of_these_tests():
    """The table has no untested entry, and each class carries its name as default."""
    assert {model.kind: type(model) for model in ALL} == MODELS
    for model in ALL:
        assert Holder.model_validate(Holder(model=model).model_dump()).model == model


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (1, 5, 7)], ids=str)
@pytest.mark.parametrize("model", [*IMAGES, Linear(), Mlp(), Softmax()], ids=lambda model: model.kind)
def test_every_network_maps_a_batch_to_its_outputs(model: Model, shape):
    """Images of any size become [n, outputs], also as a single sample."""
    module = model.build(shape, 7).eval()

    assert module(torch.zeros(3, *shape)).shape == (3, 7)
    assert module(torch.zeros(1, *shape)).shape == (1, 7)


@pytest.mark.parametrize(
    ("model", "shape", "outputs", "expected"),
    [
        (DigitModel(), (1, 28, 28), 10, 14_219_210),  # the network of FedUL's public code
        (DigitModel(), (3, 28, 28), 10, 14_219_210),  # grey images are repeated in three channels
        (McMahanCnn(), (1, 28, 28), 10, 1_663_370),  # McMahan et al. 2017, section 3
        (LeNet(), (1, 28, 28), 10, 61_706),  # LeNet-5, with all connections
        (NiidBenchCnn(), (1, 28, 28), 10, 44_426),
        (NiidBenchCnn(), (3, 32, 32), 10, 62_006),
        (ResNet18(), (3, 32, 32), 10, 11_173_962),
        (ResNet20(), (3, 32, 32), 10, 272_474),
        (ResNet20(norm="batch"), (3, 32, 32), 10, 272_474),
        (Mlp(hidden=(200, 200)), (1, 28, 28), 10, 199_210),  # the "2NN" of the same paper
        (Mlp(hidden=()), (20,), 10, 210),
        (Softmax(), (1, 28, 28), 10, 7_850),
        (Linear(), (10,), 1, 11),
        (CharLstm(), (80,), 80, 817_872),  # 80 x 8 + 4 x 256 x (265 + 513) + 257 x 80
        (
            CharLstm(),
            (80,),
            82,
            818_402,
        ),  # the number often quoted for Shakespeare
        (CharLstm(), (80,), 90, 820_522),  # Reddi et al. 2021, table 2
        (WordLstm(), (20,), 10_004, 4_050_748),  # the same
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_networks_have_the_published_number_of_parameters(model, shape, outputs, expected):
    """The counts are those of the papers, or inputs x outputs + outputs."""
    assert n_parameters(model.build(shape, outputs)) == expected


@pytest.mark.parametrize("model", TOKENS, ids=lambda model: model.kind)
def test_token_models_map_windows_to_the_outputs(model: Model):
    """Windows of any length become one score for each token, and the order of the tokens matters."""
    module = model.build((9,), 7)
    x = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0, 1], [1, 0, 6, 5, 4, 3, 2, 1, 0]])

    assert module(x).shape == (2, 7)
    assert not torch.allclose(module(x[:1]), module(x[:1].sort().values))


def test_lstm_layers_have_one_bias_for_each_gate():
    """The second one of PyTorch is zero and is not sent."""
    model = FlatModel(CharLstm(units=3, layers=1).build((4,), 5), "cross-entropy", (4,), 5)
    gates = 4 * 3 * (8 + 3 + 1)

    assert model.size == 5 * 8 + gates + 4 * 5
    assert not model.batchable
    assert model.forward_flop_per_sample == 2 * (4 * 4 * 3 * (8 + 3) + 3 * 5)
    assert model.flop_per_sample == 3 * model.forward_flop_per_sample


@pytest.mark.parametrize("model", [LeNet(), NiidBenchCnn()], ids=lambda model: model.kind)
def test_small_networks_take_the_smallest_image_they_name(model: Model):
    """One pixel less is refused, with the shape."""
    side = 12 if model.kind == "lenet" else 16

    assert model.build((1, side, side + 3), 7)(torch.zeros(2, 1, side, side + 3)).shape == (2, 7)
    with pytest.raises(ScenarioError, match=rf"at least {side}x{side} pixels for {model.kind}, got shape"):
        model.build((1, side - 1, side), 7)


def test_a_residual_network_halves_the_image_and_keeps_what_it_adds_to():
    """With the last normalisation of every path at zero, blocks pass on their shortcuts alone."""
    network = ResNet20().build((3, 32, 32), 10)
    x = torch.randn(2, 3, 32, 32)
    for block in network[3:12]:
        nn.init.zeros_(block.path[4].weight)
        nn.init.zeros_(block.path[4].bias)
    stem, seen = network[:3](x), []
    for block in network[3:12]:
        before, stem = stem, block(stem)
        assert torch.equal(stem, torch.relu(block.shortcut(before)))
        seen.append(tuple(stem.shape[1:]))

    assert seen == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


def test_group_norm_takes_each_sample_by_itself():
    """What a sample gives does not depend on the others of its batch; with batch norm it does."""
    x = torch.randn(4, 3, 16, 16)
    for norm, alone in (("group", True), ("batch", False)):
        network = ResNet20(norm=norm).build((3, 16, 16), 5)
        assert torch.allclose(network(x)[:2], network(x[:2]), atol=1e-5) is alone


def test_linear_model_without_bias():
    """Without a bias there are the weights only, and zeros give zero."""
    module = Linear(bias=False).build((3,), 1)

    assert [tuple(p.shape) for p in module.parameters()] == [(1, 3)]
    assert module(torch.zeros(2, 3)).tolist() == [[0.0], [0.0]]


def test_linear_model_takes_weights_then_bias():
    """The flat order of its parameters is that of a known optimum: weights, then bias."""
    module = Linear().build((2,), 1)
    nn.utils.vector_to_parameters(torch.tensor([2.0, 3.0, 5.0]), module.parameters())

    assert module(torch.tensor([[10.0, 100.0]])).item() == 325


def test_the_seed_of_the_caller_decides_the_initial_parameters():
    """Building draws from PyTorch's random state and never seeds it."""
    vectors = []
    with torch.random.fork_rng():
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            vectors.append(nn.utils.parameters_to_vector(Mlp().build((4,), 2).parameters()))

    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


def test_the_digit_model_travels_with_its_running_statistics():
    """Beside its parameters it sends a mean and a variance for each of 64 + 64 + 128 + 2048 + 512 channels."""
    model = FlatModel(DigitModel().build((1, 28, 28), 10), "cross-entropy", (1, 28, 28))

    assert model.size - model.n_trainable == 2 * (64 + 64 + 128 + 2048 + 512) == 5632


def test_the_digit_model_costs_what_its_layers_cost():
    """47.9 million multiply-adds forward, the sum over its convolutions and dense layers."""
    model = FlatModel(DigitModel().build((1, 28, 28), 10), "cross-entropy", (1, 28, 28))
    convolutions = 784 * 25 * 3 * 64 + 196 * 25 * 64 * 64 + 49 * 25 * 64 * 128

    assert model.forward_flop_per_sample == 2 * (convolutions + 6272 * 2048 + 2048 * 512 + 512 * 10)


@pytest.mark.usefixtures("user_code")
def test_the_users_network_is_built_with_its_arguments_and_left_as_it_was():
    """Arguments reach the constructor; the trial run changes neither buffers nor the mode of any layer."""
    module = UserModule(path="own_nets:Net", args={"width": 5}).build((3, 4), 3)

    assert type(module).__name__ == "Net"
    assert n_parameters(module) == 12 * 5 + 5 + 2 * 5 + 5 * 3 + 3
    assert module.training
    assert not module.stem[2].training
    assert module.stem[2].num_batches_tracked.item() == 0


@pytest.mark.usefixtures("user_code")
@pytest.mark.parametrize(
    ("path", "args", "problem"),
    [
        (
            "own_absent:Net",
            {},
            r"model.path: importing own_absent failed \(ModuleNotFoundError: .*; the module must be",
        ),
        ("own_broken:Net", {}, "importing own_broken failed .*'own_missing_dependency'"),
        ("own_nets:Nett", {}, "model.path: own_nets has no such name, got 'Nett'; did you mean 'Net'?"),
        ("own_nets:Resnet50", {}, "got 'Resnet50'; its classes are: Net"),
        ("own_nets:helper", {}, "own_nets:helper must name a subclass of torch.nn.Module, got <function helper"),
        ("own_nets:Net", {}, "model.args: own_nets:Net rejects its arguments .*'width'.*, got no arguments; give"),
        ("own_nets:Net", {"width": 5, "depth": 2}, "rejects its arguments .*'depth'.*, got width=5, depth=2; give"),
        ("own_nets:Net", {"width": -1}, r"model.args: own_nets:Net rejects its arguments \(RuntimeError: .*width=-1"),
        ("own_nets:Net", {"width": 5, "outputs": 4}, r"to \[2, 3\], got \[2, 4\]; give it 3 outputs"),
    ],
)
def test_every_problem_of_the_users_network_is_explained(path, args, problem):
    """A missing module or class, something else than a network, bad arguments and wrong outputs are told apart."""
    with pytest.raises(ScenarioError, match=problem):
        UserModule(path=path, args=args).build((3, 4), 3)


@pytest.mark.usefixtures("user_code")
def test_a_network_that_cannot_take_the_samples_is_explained():
    """A failing trial run tells the shape of the batch and the network's own complaint."""
    with pytest.raises(ScenarioError, match=r"fails on a batch of shape \[2, 5\], got RuntimeError: .*; make it take"):
        UserModule(path="own_nets:Net", args={"width": 5}).build((5,), 3)


def test_the_perceptron_drops_before_every_layer():
    """Shares before the first, the hidden and the last layer; one too few is an error that says how many."""
    module = Mlp(hidden=(5, 4), dropout=(0.1, 0.2, 0.3)).build((1, 3), 2)
    kinds = [type(layer).__name__ for layer in module]

    assert kinds == ["Flatten", "Dropout", "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear"]
    assert [layer.p for layer in module if isinstance(layer, nn.Dropout)] == [0.1, 0.2, 0.3]
    with pytest.raises(ValidationError, match="not one share per layer, got 2; give 3"):
        Mlp(hidden=(5, 4), dropout=(0.1, 0.2))

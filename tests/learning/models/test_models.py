"""Models, their evaluation, their cuts and their layers."""

from __future__ import annotations

import itertools
from itertools import pairwise

import numpy as np
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
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.cuts import cuts_of
from fednet_emu.learning.models.evaluate import Metrics, gradient_norm, score_samples
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.layers import LayerName, Layers

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
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def user_code(folder, monkeypatch):
    """Make the importable module `own_nets`, and `own_broken` that fails on import."""
    (folder / "own_nets.py").write_text(USER_CODE, encoding="utf-8")
    (folder / "own_broken.py").write_text("import own_missing_dependency\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


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
        (CharLstm(), (80,), 82, 818_402),  # the number often quoted for Shakespeare
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


def test_the_squared_hinge_is_that_of_a_support_vector_machine():
    """Loss, gradient and accuracy against NumPy: 1/2 mean max(0, 1 - y w.x)^2 with y = -1 for class 0."""
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(20, 4)), rng.integers(0, 2, 20), rng.normal(size=4)
    model = FlatModel(Linear(bias=False, loss="squared-hinge").build((4,), 2).double(), "squared-hinge", (4,))
    vector, xs, ys = torch.from_numpy(w), torch.from_numpy(x), torch.from_numpy(y)
    sign, margin = 2 * y - 1, (2 * y - 1) * (x @ w)
    metrics = score_samples(model, vector, xs, ys).pooled()

    assert model.size == 4
    assert metrics.loss == pytest.approx(0.5 * np.mean(np.maximum(0, 1 - margin) ** 2))
    assert metrics.accuracy == pytest.approx(np.mean(margin > 0))
    gradient = -np.mean((sign * np.maximum(0, 1 - margin))[:, None] * x, axis=0)
    assert gradient_norm(model, vector, xs, ys) == pytest.approx(np.linalg.norm(gradient))
    with pytest.raises(ScenarioError, match="separates two classes, got 10"):
        Linear(loss="squared-hinge").build((4,), 10)


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


def test_the_users_network_is_built_with_its_arguments_and_left_as_it_was(tmp_path, monkeypatch):
    """Arguments reach the constructor; the trial run changes neither buffers nor the mode of any layer."""
    user_code(tmp_path, monkeypatch)
    module = UserModule(path="own_nets:Net", args={"width": 5}).build((3, 4), 3)

    assert type(module).__name__ == "Net"
    assert n_parameters(module) == 12 * 5 + 5 + 2 * 5 + 5 * 3 + 3
    assert module.training
    assert not module.stem[2].training
    assert module.stem[2].num_batches_tracked.item() == 0


def test_the_perceptron_drops_before_every_layer():
    """Shares before the first, the hidden and the last layer; one too few is an error that says how many."""
    module = Mlp(hidden=(5, 4), dropout=(0.1, 0.2, 0.3)).build((1, 3), 2)
    kinds = [type(layer).__name__ for layer in module]

    assert kinds == ["Flatten", "Dropout", "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear"]
    assert [layer.p for layer in module if isinstance(layer, nn.Dropout)] == [0.1, 0.2, 0.3]
    with pytest.raises(ValidationError, match="not one share per layer, got 2; give 3"):
        Mlp(hidden=(5, 4), dropout=(0.1, 0.2))


CLASSIFIER = FlatModel(seeded_module(lambda: nn.Linear(5, 3), 1), "cross-entropy", (5,))
RNG = np.random.default_rng(4)
X = torch.from_numpy(RNG.normal(size=(50, 5)).astype(np.float32))
Y = torch.from_numpy(RNG.integers(0, 3, 50))


def evaluate(*args, chunk=4096) -> Metrics:
    return score_samples(*args, chunk=chunk).pooled()


def test_uniform_scores_lose_log_of_the_classes():
    """With all parameters zero the loss is ln 3 and every sample is put in class 0."""
    metrics = evaluate(CLASSIFIER, torch.zeros(CLASSIFIER.size), X, Y)

    assert metrics.loss == pytest.approx(np.log(3), rel=1e-6)
    assert metrics.accuracy == float((Y == 0).double().mean())
    assert metrics.samples == 50


class Widening(nn.Module):
    """A linear layer before a megabyte of activations per sample; notes how many samples it is given."""

    def __init__(self, note):
        super().__init__()
        self.linear, self.note = nn.Linear(5, 3), note

    def forward(self, x):
        self.note(len(x))
        return self.linear(x)[:, :, None].expand(-1, -1, 87_300).exp().sum(2)


def test_activations_bound_the_samples_at_a_time():
    """A model that keeps 1 MiB per sample on a processor is shown at most 64 of them at a time."""
    seen = []
    model = FlatModel(Widening(seen.append), "cross-entropy", (5,))
    evaluate(model, model.initial(), X.repeat(3, 1), Y.repeat(3))

    assert seen[-3:] == [64, 64, 22]


def test_regression_has_no_accuracy():
    """Squared error: the model 2x + 1 on targets 2x misses each by one."""
    model = FlatModel(nn.Linear(1, 1), "squared-error", (1,))
    x = torch.arange(4.0)[:, None]
    metrics = evaluate(model, torch.tensor([2.0, 1.0]), x, 2 * x[:, 0])

    assert metrics.loss == pytest.approx(1.0)
    assert metrics.accuracy is None
    scores = score_samples(model, torch.tensor([2.0, 1.0]), x, 2 * x[:, 0])
    assert scores.by_device(torch.arange(4), np.array([0, 4])).accuracy is None


def test_devices_are_measured_as_if_alone():
    """One pass over all samples gives each device the metrics of its own slice, and nan to one without samples."""
    vector, offsets = CLASSIFIER.initial(), np.array([0, 7, 7, 8, 47])
    order = torch.from_numpy(RNG.permutation(50)[:47])
    found = score_samples(CLASSIFIER, vector, X, Y, chunk=16).by_device(order, offsets)
    own = [order[a:b] for a, b in itertools.pairwise(offsets)]
    alone = [evaluate(CLASSIFIER, vector, X[rows], Y[rows]) for rows in own]

    assert found.loss == pytest.approx([one.loss for one in alone], rel=1e-5, nan_ok=True)
    assert found.accuracy == pytest.approx([one.accuracy for one in alone], nan_ok=True)
    assert found.samples.tolist() == [7, 0, 1, 39]
    assert np.isnan(found.loss).tolist() == [False, True, False, False]


def test_evaluation_draws_nothing():
    """A model with dropout is evaluated without dropping and without touching torch's generator."""
    model = FlatModel(nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)), "cross-entropy", (5,))
    before = torch.get_rng_state()

    first, second = (evaluate(model, model.initial(), X, Y) for _ in range(2))

    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


def test_gradient_norm_of_a_line():
    """At w = 0 and b = 0, the gradient of the mean of (w x + b - y)^2 over (1, 2) and (3, 4) is (-14, -6)."""
    model = FlatModel(nn.Linear(1, 1), "squared-error", (1,))
    vector = torch.zeros(2)

    found = gradient_norm(model, vector, torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 4.0]))

    assert found == pytest.approx(np.hypot(14, 6))
    assert not vector.requires_grad


def test_gradient_norm_holds_running_statistics_constant():
    """A line behind batch norm: with mean 1, variance 4 and weight 2, the output for x is x - 1, up to epsilon."""
    norm, line = nn.BatchNorm1d(1, affine=False, eps=1e-12), nn.Linear(1, 1, bias=False)
    model = FlatModel(nn.Sequential(norm, line), "squared-error", (1,))
    vector = torch.tensor([2.0, 1.0, 4.0])  # weight, mean, variance

    found = gradient_norm(model, vector, torch.tensor([[3.0], [5.0]]), torch.tensor([0.0, 0.0]))

    residual, normalised = [2.0, 4.0], [1.0, 2.0]
    assert found == pytest.approx(sum(2 * r * x for r, x in zip(residual, normalised, strict=True)) / 2)


IMAGE = (1, 28, 28)
WHOLE = {
    "mcmahan-cnn": {},
    "lenet": {},
    "mlp": {"hidden": (30, 20, 10), "dropout": (0.1, 0.2, 0.2, 0.3)},
    "digit-model": {"channels": (4, 4, 8), "units": (16, 8)},
    "resnet-20": {},
}


def flat(kind: str, **settings: object) -> FlatModel:
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


MODEL = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 4)), "cross-entropy", (3,))
"""Parameters 0.weight [6], 0.bias [2], 2.weight [8], 2.bias [4]: twenty scalars in this order."""


@pytest.mark.parametrize(
    ("personal", "places"),
    [
        ([], []),
        (["2.*"], range(8, 20)),
        ([-1], range(8, 20)),
        ([0], range(8)),
        (["*.bias"], [6, 7, 16, 17, 18, 19]),
        (["0.weight", 1], [*range(6), *range(8, 20)]),
    ],
)
def test_names_patterns_and_places(personal: list[LayerName], places: list[int]) -> None:
    """Parameters are meant by name, by pattern, or by the place of their layer; the rest is shared."""
    layers = Layers(MODEL, personal)

    assert layers.personal.nonzero().squeeze(1).tolist() == list(places)
    assert torch.equal(layers.shared + layers.personal, torch.ones(20))
    assert layers.n_shared == 20 - len(places)


def test_parts_are_taken_and_put_back() -> None:
    """What is taken is the shared part in order; putting it under another vector leaves that one's personal part."""
    layers, a, b = Layers(MODEL, ["2.*"]), torch.arange(20.0), torch.arange(100.0, 120.0)
    both = layers.put(b, layers.take(a))

    assert layers.take(a).tolist() == list(range(8))
    assert both.tolist() == [*range(8), *range(108, 120)]
    assert layers.pad(layers.take(a)).tolist() == [*range(8), *[0] * 12]
    assert b.tolist() == list(range(100, 120))

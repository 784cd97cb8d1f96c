"""Forms of jobs and bases of models in the engines."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import batched
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.parcels import packed, unpacked
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.stacks.chain import chain_form
from fednet_emu.learning.engines.stacks.form import Batch, VmapForm
from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.graph.engine import Engine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.grouping import shape_of
from fednet_emu.learning.graph.jobs import ResolvedJob, SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Adam
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.evaluate import score_samples
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.results import results_of

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")),
]
MODELS = {
    "linear": (lambda: nn.Linear(6, 3), (6,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(6, 4, bias=False), nn.ReLU(), nn.Linear(4, 3, bias=False)), (6,)),
    "nested": (
        lambda: nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(12, 9)), nn.ReLU(), nn.Linear(9, 3)),
        (3, 4),
    ),
    "relu first": (lambda: nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)), (3, 4)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 5, (3, 2), stride=(2, 1), padding=(1, 0), bias=False),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(10 * 3, 3),
        ),
        (2, 7, 8),
    ),
    "strides leave a rest": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.Conv2d(2, 3, 2, stride=2), nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(12, 3)
        ),
        (1, 9, 8),
    ),
}
N_JOBS, WIDTH = 4, 5


@pytest.fixture(params=DEVICES)
def device(request):
    """A device, with exact products; what was set comes back."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield request.param
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def model_of(name, device, loss="cross-entropy"):
    build, shape = MODELS[name]
    return FlatModel(seeded_module(build, 5).to(device, torch.float64), loss, shape)


def batch_of(model, *, weighted, classes=True):
    """Random samples of every job; with weights, some places of the batch count for nothing."""
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.normal(size=(N_JOBS, WIDTH, *model.input_shape)))
    y = torch.from_numpy(rng.integers(0, 3, (N_JOBS, WIDTH)) if classes else rng.normal(size=(N_JOBS, WIDTH, 3)))
    weight = torch.ones(N_JOBS, WIDTH, dtype=torch.float64)
    weight[1:, 3:] = 0
    return Batch(x.to(model.device), y.to(model.device), weight.to(model.device) if weighted else None)


def stepped(form, model, batch):
    """The parameters of all jobs after a step of each its own factor, and the losses before it."""
    rng = np.random.default_rng(4)
    w = (model.initial() + torch.from_numpy(rng.normal(size=(N_JOBS, model.size))).to(model.device) / 9).contiguous()
    factor = torch.from_numpy(-rng.uniform(0.1, 0.5, N_JOBS)).to(model.device)
    losses = form.on(w)(batch, factor)
    return w, losses


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_by_hand_is_a_step_by_autograd(name, weighted, device):
    """One step of four different models gives the same parameters and losses to 1e-12 as vmap does."""
    model = model_of(name, device)
    batch = batch_of(model, weighted=weighted)
    w, losses = stepped(chain_form(model), model, batch)
    expected_w, expected_losses = stepped(VmapForm(model), model, batch)

    assert torch.allclose(w, expected_w, rtol=1e-12, atol=1e-14)
    assert torch.allclose(losses, expected_losses, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_squared_errors_of_several_outputs(weighted, device):
    """A regression with three outputs per sample has its gradients by hand too."""
    model = model_of("no bias", device, "squared-error")
    batch = batch_of(model, weighted=weighted, classes=False)

    assert torch.allclose(
        stepped(chain_form(model), model, batch)[0], stepped(VmapForm(model), model, batch)[0], rtol=1e-12, atol=1e-14
    )


def test_places_of_weight_zero_change_nothing(device):
    """What fills up a ragged batch has no influence, however large it is."""
    model = model_of("convolutions", device)
    batch = batch_of(model, weighted=True)
    other = Batch(batch.x.clone(), batch.y, batch.weight)
    other.x[1:, 3:] *= 100

    a, b = (stepped(chain_form(model), model, one)[0] for one in (batch, other))
    assert torch.allclose(a, b, rtol=1e-13, atol=1e-15)


def test_the_samples_are_left_alone(device):
    """A step writes into the parameters only: batches may be views of the clients' data."""
    for name in MODELS:
        model = model_of(name, device)
        batch = batch_of(model, weighted=False)
        before = batch.x.clone()
        stepped(chain_form(model), model, batch)

        assert torch.equal(batch.x, before)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(6, 3), nn.Tanh()),
        nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3)),
        nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Linear(3, 3), nn.Flatten()),
    ],
    ids=["tanh", "layer norm", "dense over places"],
)
def test_other_models_have_no_chain(module):
    """A layer without gradients by hand leaves a model to PyTorch's own."""
    assert chain_form(FlatModel(module, "cross-entropy", (6,))) is None


def test_shared_and_frozen_layers_have_no_chain():
    """Parameters that are used twice, or are not trained, are not laid out layer by layer."""
    shared = nn.Linear(6, 6)
    twice = nn.Sequential(shared, nn.ReLU(), shared)
    frozen = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    frozen[0].requires_grad_(requires_grad=False)

    assert all(chain_form(FlatModel(module, "cross-entropy", (6,))) is None for module in (twice, frozen))


def test_hooks_are_respected():
    """A layer that a user has hooked does more than its type says."""
    layer = nn.Linear(6, 3)
    layer.register_forward_hook(lambda _module, _inputs, output: output * 2)

    assert chain_form(FlatModel(layer, "cross-entropy", (6,))) is None


@pytest.mark.parametrize("form", [VmapForm, chain_form])
@pytest.mark.parametrize("plan", [SgdPlan(lr=0.1, batch_size=8, epochs=2), SgdPlan(lr=0.1, steps=3)])
@pytest.mark.parametrize("name", ["nested", "convolutions"])
def test_engines_agree_on_every_device(name, plan, form, device):
    """Ragged clients, double precision: stacks agree with the serial engine of the same device within 1e-11."""
    model = model_of(name, device)
    rng = np.random.default_rng(6)
    offsets = [0, 20, 27, 40, 43]
    x = torch.from_numpy(rng.normal(size=(43, *model.input_shape))).to(device)
    data = TrainData(x, torch.from_numpy(rng.integers(0, 3, 43)).to(device))
    graph = Graph(None)
    w, streams = graph.constant(model.initial()), Streams(1)
    jobs = [
        TrainJob(model, data, slice(a, b), w, plan, streams, (a,), f"dev at {a}").resolve()
        for a, b in itertools.pairwise(offsets)
    ]
    together, alone = results_of(BatchedEngine(form=form), jobs), results_of(SerialEngine(), jobs)
    for found, expected in zip(together, alone, strict=True):
        assert float((found.params - expected.params).norm() / expected.params.norm()) < 1e-11
        assert found.loss == pytest.approx(expected.loss, rel=1e-11)


def test_full_batches_of_neighbours_are_views_whatever_the_order_of_jobs():
    """Ten devices that train in any order are stepped together on the data themselves, not on a copy."""
    data = TrainData(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 3)
    model = FlatModel(seeded_module(lambda: nn.Linear(4, 3), 1), "cross-entropy", (4,))
    w, plan, seen, streams = Graph(None).constant(model.initial()), SgdPlan(lr=0.1, steps=1), [], Streams(0)

    class Spy:
        def __init__(self, form):
            self._form, self.byte_per_job = form, form.byte_per_job

        def on(self, w, into=None, *, squares=False, base=None):
            step = self._form.on(w, into, squares=squares, base=base)

            def spied(batch, factor):
                seen.append((batch.x.data_ptr(), len(batch.x)))
                return step(batch, factor)

            return spied

    jobs = [
        TrainJob(model, data, slice(5 * k, 5 * k + 5), w, plan, streams, (k,), f"dev-{k}").resolve()
        for k in (3, 8, 0, 5, 9, 1, 7, 2, 6, 4)
    ]
    found = results_of(BatchedEngine(form=lambda model: Spy(chain_form(model))), jobs)

    assert seen == [(data.x.data_ptr(), 10)]
    assert all(
        torch.allclose(a.params, b.params, rtol=1e-5, atol=1e-7)
        for a, b in zip(found, results_of(SerialEngine(), jobs), strict=True)
    )


PLANS = {
    "full": SgdPlan(lr=0.1, steps=3),
    "epochs": SgdPlan(lr=0.1, batch_size=4, epochs=2),
    "adam": SgdPlan(lr=0.02, batch_size=3, steps=4, optimizer=Adam()),
    "private": SgdPlan(lr=0.1, batch_size=4, steps=3, private=PrivateSgd(clip_norm=0.5, noise_multiplier=0.1)),
}
SIZES = (5, 9, 8, 7)


def network(factor: float) -> FlatModel:
    """An MLP 6-5-3 in double precision with an adapter at each layer; its weights are multiplied by a factor."""
    module = seeded_module(lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), 5).double()
    for layer in (module[0], module[2]):
        layer.weight.data *= factor
    return FlatModel(fe.add_lora_adapters(module, 2, targets=["*"], train=["*.bias"]), "cross-entropy", (6,))


def data() -> TrainData:
    rng = np.random.default_rng(1)
    n = sum(SIZES)
    return TrainData(torch.from_numpy(rng.normal(size=(n, 6))), torch.from_numpy(rng.integers(0, 3, n)))


def jobs(model: FlatModel, bases: list[torch.Tensor | None], plan: SgdPlan, squares: bool = False) -> list[ResolvedJob]:
    """A job of each of four devices, with bases in turn, resolved."""
    graph, samples, ends = Graph(None), data(), np.cumsum(SIZES)
    start = torch.from_numpy(np.random.default_rng(2).normal(size=model.size)) / 3
    w, given, streams = graph.constant(start), [b if b is None else graph.constant(b) for b in bases], Streams(3)
    return [
        TrainJob(
            model, samples, slice(int(end - n), int(end)), w, plan, streams, ("batch", k, 0), f"dev-{k}",
            squares=squares, base=given[k % len(given)],
        ).resolve()
        for k, (end, n) in enumerate(zip(ends, SIZES, strict=True))
    ]  # fmt: skip


def base_of(model: FlatModel) -> torch.Tensor:
    return torch.cat([its.reshape(-1) for its in model.base_weights().values()])


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether results differ by rounding alone: steps in double precision that do not diverge lose few digits."""
    return torch.allclose(found, expected, rtol=1e-11, atol=1e-12, equal_nan=True)


def results(engine: Engine, own: list[ResolvedJob]) -> list[torch.Tensor]:
    """The parameters, the loss and the mean square of each job, in order."""
    found = {resolved.job.label: its for resolved, its in engine.run(own)}
    return [torch.cat([its.params, torch.tensor([its.loss, its.square])]) for _, its in sorted(found.items())]


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_base_stands_for_the_weights_of_the_model(plan, squares, engine, monkeypatch):
    """Two bases in turn, and none: as two models that were built with these weights, and the model itself."""
    monkeypatch.setattr(batched, "STACK_PAYS", 1)
    model, others = network(1.0), [network(2.0), network(-1.0)]
    own = jobs(model, [base_of(others[0]), base_of(others[1]), None], plan, squares)
    if engine is BatchedEngine:
        shapes = [shape_of(its) for its in own]
        assert shapes[0].base is shapes[3].base is own[0].base
        assert len({id(shape.base) for shape in shapes}) == 3

    found = results(engine(), own)
    expected = [results(SerialEngine(), jobs(its, [None], plan, squares)) for its in (*others, model)]
    for k, (mine, place) in enumerate(zip(found, (0, 1, 2, 0), strict=True)):
        assert close(mine, expected[place][k])
    assert not torch.allclose(expected[0][0], expected[2][0], atol=1e-2, equal_nan=True)


def test_a_base_is_stacked_for_nobody():
    """One vector for all jobs of a stack, in its own memory, after packing too; it is not written to."""
    model = network(1.0)
    base = base_of(network(2.0))
    own = jobs(model, [base], PLANS["full"])
    before = base.clone()
    parcel = packed(own, pickle.Pickler)
    again = unpacked(parcel.text, parcel.kept, parcel.tensors)

    assert sum(its is base for its in parcel.tensors) == 1
    assert {its.base.data_ptr() for its in again} == {base.data_ptr()}
    assert all(shape_of(its).base is again[0].base for its in again)
    for expected, found in zip(results(BatchedEngine(), own), results(SerialEngine(), again), strict=True):
        assert close(expected, found)
    assert torch.equal(base, before)


def test_a_vector_may_bring_its_base():
    """In evaluation: [size + base_size] numbers, by name and in the scores; the model keeps its own."""
    model, other, samples = network(1.0), network(3.0), data()
    whole = torch.cat([model.initial(), base_of(other)])

    assert model.base_size == 6 * 5 + 5 * 3
    found, expected = (
        score_samples(*its, samples.x, samples.y).losses for its in ((model, whole), (other, whole[: model.size]))
    )
    assert torch.equal(found, expected)
    assert torch.equal(model.unflatten(whole)["2.weight"], other.base_weights()["2.weight"])
    assert not torch.equal(model.base_weights()["2.weight"], other.base_weights()["2.weight"])


def test_models_without_adapters_have_no_base():
    """And a weight of two layers is none, nor one that is trained."""
    assert FlatModel(nn.Linear(3, 2), "cross-entropy", (3,)).base_size == 0
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    adapted = fe.add_lora_adapters(module, 1, targets=["*"], train=["2.weight"])
    assert FlatModel(adapted, "cross-entropy", (3,)).base_size == 0

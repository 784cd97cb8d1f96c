"""Gradients by hand against PyTorch's own, for every layer that has them, on every device that is here."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.stacks.chain import chain_form
from fednet_emu.learning.engines.stacks.form import Batch, VmapForm
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.base import seeded_module
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
    """One of the models, in double precision."""
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

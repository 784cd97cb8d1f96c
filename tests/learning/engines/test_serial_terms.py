"""Claims about jobs that only the serial engine runs: batch norm, Adam, other losses, augmentation."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.table import ENGINES
from fednet_emu.learning.graph.augment import Rotation
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Adam, Sgd
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel

PLAN = SgdPlan(lr=0.01, batch_size=8, epochs=2, drop_last=True, optimizer=Adam())


def network(momentum: float | None = 0.1) -> nn.Module:
    """A small network with batch norm, in double precision."""

    def build() -> nn.Module:
        norm = nn.BatchNorm1d(6, momentum=momentum)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), norm, nn.ReLU(), nn.Linear(6, 3))

    return seeded_module(build, 5).double()


def samples() -> TrainData:
    """Forty images of three classes."""
    rng = np.random.default_rng(3)
    return TrainData(torch.from_numpy(rng.normal(size=(40, 1, 4, 4))), torch.from_numpy(rng.integers(0, 3, 40)))


def job(graph, module, key=0, plan=PLAN, **more):
    """A job on 21 of the samples, as a Deferred."""
    model = module if isinstance(module, FlatModel) else FlatModel(module, "cross-entropy", (1, 4, 4))
    w = graph.constant(model.initial())
    return graph.train(TrainJob(model, samples(), slice(5, 26), w, plan, Streams(0), ("batch", key), "dev", **more))


def one(module, key=0, **more):
    """The vector after one job."""
    graph = Graph(SerialEngine())
    return graph.read(job(graph, module, key, **more).params)


def by_hand(module, l1=0.0):
    """The same job as a plain PyTorch loop: the vector of parameters and running statistics, and the mean loss."""
    module, data = copy.deepcopy(module).train(), samples()
    batches = TrainJob(
        FlatModel(module, "cross-entropy", (1, 4, 4)), data, slice(5, 26), Graph(None).constant(torch.zeros(1)), PLAN,
        Streams(0), ("batch", 0), "dev",
    ).batches()  # fmt: skip
    adam, losses = torch.optim.Adam(module.parameters(), 0.01), []
    for rows in torch.from_numpy(batches.index):
        adam.zero_grad()
        loss = cross_entropy(module(data.x[rows]), data.y[rows])
        losses.append(float(loss.detach()))
        (loss + l1 * sum(p.abs().sum() for p in module.parameters())).backward()
        adam.step()
    parts = [*module.parameters(), module[2].running_mean, module[2].running_var]
    return torch.cat([part.detach().reshape(-1) for part in parts]), np.mean(losses)


@pytest.mark.parametrize("l1", [0.0, 0.02])
def test_a_job_is_the_plain_loop(l1):
    """Batch norm, Adam, dropped last batches and an L1 term by autograd: parameters, statistics and loss agree.

    Before batch norm a bias has the gradient 0; rounding moves it by at most lr * 1e-15 / eps = 1e-9 in a step of Adam.
    """
    graph, module = Graph(SerialEngine()), network()
    trained = job(graph, module, l1=l1)
    expected, loss = by_hand(module, l1)

    assert torch.allclose(graph.read(trained.params), expected, rtol=1e-9, atol=1e-8)
    assert graph.read(trained.loss) == pytest.approx(loss)
    assert not torch.equal(expected[-12:], FlatModel(module, "cross-entropy", (1, 4, 4)).initial()[-12:])


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_job_does_not_depend_on_the_one_before(momentum):
    """Moments of Adam and counts of batches begin anew, also where statistics are plain means over the batches."""
    model = FlatModel(network(momentum), "cross-entropy", (1, 4, 4))
    graph = Graph(SerialEngine())
    first, second = job(graph, model, key=1), job(graph, model, key=0)
    graph.read(first.params)

    assert torch.equal(graph.read(second.params), one(model, key=0))


@pytest.mark.parametrize("engine", ["by-rule", "batched"])
def test_every_engine_runs_them_one_by_one(engine):
    """A wavefront of two such jobs has bit for bit the serial results."""
    graph = Graph(ENGINES[engine]())
    model = FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double(), "cross-entropy", (1, 4, 4))
    kinds = [{"l1": 0.1}, {"loss": squares}, {"augment": Rotation()}, {"plan": PLAN}]
    trained = [job(graph, model, key, **more) for more in kinds for key in (0, 1)]
    expected = [one(model, key, **more) for more in kinds for key in (0, 1)]

    assert all(torch.equal(graph.read(t.params), e) for t, e in zip(trained, expected, strict=True))


def squares(outputs, targets):
    """A loss per sample that is not the model's."""
    return (outputs - targets[:, None]).square().sum(1)


def test_a_jobs_own_loss_replaces_the_models():
    """One full-batch step on squared scores is the step worked out by hand."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False)).double()
    w, data = module[1].weight.detach(), samples()
    x, y = data.x[5:26].reshape(21, 16), data.y[5:26].double()
    gradient = 2 / 21 * (x @ w.T - y[:, None]).T @ x

    vector = one(module, plan=SgdPlan(lr=0.3, steps=1), loss=squares)

    assert torch.allclose(vector, (w - 0.3 * gradient).reshape(-1), rtol=1e-12)


def test_a_mask_holds_what_adam_would_move():
    """Under Adam with a decay of the weights, frozen parameters stay, half masks halve the first step."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
    start = FlatModel(module, "cross-entropy", (1, 4, 4)).initial()
    mask = torch.ones_like(start)
    mask[:10], mask[10:20] = 0.0, 0.5
    plan = SgdPlan(lr=0.01, steps=1, optimizer=Adam(weight_decay=0.1))

    masked, free = one(module, plan=plan, mask=mask) - start, one(module, plan=plan) - start

    assert (free != 0).all()
    assert (masked[:10] == 0).all()
    assert torch.allclose(masked, mask * free, rtol=1e-9)


class Signs(Sgd):
    """Steps of one size, as somebody might add to plain descent."""

    def start(self, weights, lr):
        """No state."""
        return lambda gradient: weights.sub_(gradient.sign(), alpha=lr)


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_a_descendant_of_plain_descent_makes_its_own_steps(engine):
    """No engine takes it for its ancestor."""
    module, graph = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double(), Graph(ENGINES[engine]())
    plan = SgdPlan(lr=0.25, steps=1, optimizer=Signs())
    vectors = [graph.read(job(graph, module, key, plan=plan).params) for key in range(2)]
    start = FlatModel(module, "cross-entropy", (1, 4, 4)).initial()

    for vector in vectors:
        assert torch.allclose((vector - start).abs(), torch.full_like(start, 0.25))


def test_augmented_batches_have_angles_of_their_own():
    """Rotation by at most zero degrees changes nothing; another bound does; the key of the job decides the angles."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
    plan = SgdPlan(lr=0.1, steps=3)
    plain, still, turned, again, other = (
        one(module, key, plan=plan, augment=augment)
        for augment, key in ((None, 0), (Rotation(max_degree=0), 0), (Rotation(), 0), (Rotation(), 0), (Rotation(), 1))
    )

    assert torch.allclose(plain, still, rtol=1e-12)
    assert torch.equal(turned, again)
    assert len({float(vector[0]) for vector in (plain, turned, other)}) == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_gives_the_same_model():
    """A job on a GPU, with batch norm, Adam, L1 and rotation, ends where the CPU ends, in double precision."""
    vectors = []
    for device in ("cpu", "cuda"):
        graph, data = Graph(SerialEngine()), samples()
        model = FlatModel(network().to(device), "cross-entropy", (1, 4, 4))
        w, moved = graph.constant(model.initial()), TrainData(data.x.to(device), data.y.to(device))
        terms = {"l1": 0.01, "augment": Rotation()}
        last = TrainJob(model, moved, slice(5, 26), w, PLAN, Streams(0), ("batch", 0), "dev", **terms)
        vectors.append(graph.read(graph.train(last).params).cpu())

    assert torch.allclose(*vectors, rtol=1e-6, atol=1e-8)


def test_full_batches_of_contiguous_samples_are_views():
    """The serial engine hands the data of a slice to the model without copying it."""
    seen = []

    class Recording(nn.Linear):
        def forward(self, x):
            seen.append(x.untyped_storage().data_ptr())
            return super().forward(x)

    x, graph = torch.rand(60, 4), Graph(SerialEngine())
    model, plan = FlatModel(Recording(4, 1), "squared-error", (4,)), SgdPlan(lr=0.1, steps=2)
    w = graph.constant(model.initial())
    assert model.flop_per_sample > 0  # counted by a call of its own, when a job first asks for it
    seen.clear()
    for rows in (slice(0, 20), slice(20, 60)):
        graph.read(graph.train(TrainJob(model, TrainData(x, x[:, 0]), rows, w, plan, Streams(0), (), "dev")).params)

    assert seen == 4 * [x.untyped_storage().data_ptr()]

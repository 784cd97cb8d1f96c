"""Terms of a local loss and gradient: serial, squares and private steps."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fednet_emu as fe
from fednet_emu.algorithms.accountant import epsilon
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import ENGINES
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.graph.augment import Rotation
from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Adam, Momentum, Sgd
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.testing import run_small, small_scenario
from tests.learning.engines.test_engines import OFFSETS, PLANS, classifier, cnn, dropout, jobs, mlp, regression, softmax
from tests.learning.results import results_of
from tests.quick import crossed

PLAN = SgdPlan(lr=0.01, batch_size=8, epochs=2, drop_last=True, optimizer=Adam())


def network(momentum: float | None = 0.1) -> nn.Module:
    """A small network with batch norm, in double precision."""

    def build() -> nn.Module:
        norm = nn.BatchNorm1d(6, momentum=momentum)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), norm, nn.ReLU(), nn.Linear(6, 3))

    return seeded_module(build, 5).double()


def samples() -> TrainData:
    rng = np.random.default_rng(3)
    return TrainData(torch.from_numpy(rng.normal(size=(40, 1, 4, 4))), torch.from_numpy(rng.integers(0, 3, 40)))


def job(graph, module, key=0, plan=PLAN, **more):
    """A job on 21 of the samples, as a Deferred."""
    model = module if isinstance(module, FlatModel) else FlatModel(module, "cross-entropy", (1, 4, 4))
    w = graph.constant(model.initial())
    return graph.train(TrainJob(model, samples(), slice(5, 26), w, plan, Streams(0), ("batch", key), "dev", **more))


def one(module, key=0, **more):
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


MAKES = {
    name: (lambda build=build: classifier(build)) for name, build in (("softmax", softmax), ("mlp", mlp), ("cnn", cnn))
}
MAKES |= {"dropout": lambda: classifier(dropout), "regression": regression}


def trained(engine, make, plan, **terms):
    """The results of one wavefront of devices with very different numbers of samples."""
    model, data = make()
    w = Graph(engine).constant(model.initial())
    return results_of(engine, [job.resolve() for job in jobs(None, w, model, data, plan, **terms)])


@pytest.mark.parametrize(("plan", "name"), crossed(PLANS, MAKES))
def test_engines_agree(name: str, plan: str) -> None:
    """Serial, batched in the best form, and batched by autograd over stacks: one number per job, to 1e-11."""
    serial = [one.square for one in trained(SerialEngine(), MAKES[name], PLANS[plan], squares=True)]
    for engine in (BatchedEngine(), BatchedEngine(form=VmapForm)):
        found = [one.square for one in trained(engine, MAKES[name], PLANS[plan], squares=True)]
        assert found == pytest.approx(serial, rel=1e-11)
    assert all(square > 0 for square in serial)


@pytest.mark.parametrize("name", ["mlp", "regression"])
def test_losses_and_parameters_stay_as_they_were(name: str) -> None:
    """Asking for squares changes neither parameters nor losses, and who does not ask is told none."""
    for engine in (SerialEngine(), BatchedEngine()):
        plain, asked = (trained(engine, MAKES[name], PLANS["epochs"], squares=squares) for squares in (False, True))
        assert all(math.isnan(one.square) for one in plain)
        for one, other in zip(plain, asked, strict=True):
            assert torch.equal(one.params, other.params)
            assert one.loss == pytest.approx(other.loss, rel=1e-12)


def test_one_step_by_hand() -> None:
    """Before a step from w, the squares are of (x w - y)^2, averaged over the samples that the step uses."""
    model, data = regression()
    w = model.initial()
    losses = (data.x @ w[:-1] + w[-1] - data.y) ** 2
    expected = [float(losses[a:b].square().mean()) for a, b in pairwise(OFFSETS)]
    for engine in (SerialEngine(), BatchedEngine()):
        results = trained(engine, regression, SgdPlan(lr=0.1, steps=1), squares=True)
        assert [one.square for one in results] == pytest.approx(expected, rel=1e-9)


def test_the_graph_hands_it_over() -> None:
    """A third value beside parameters and loss; without training three values have their numbers and no more."""
    graph = Graph(SerialEngine())
    model, data = regression()
    w = graph.constant(model.initial())
    job, plain = (jobs(graph, w, model, data, PLANS["steps"], squares=squares)[0] for squares in (True, False))
    measured, usual, timed = graph.train(job), graph.train(plain), Graph(None).untrained(model.size, squares=True)

    assert graph.read(measured.square) > 0
    assert len(usual) == 2
    assert [one.number for one in timed] == [2, 1, 3]
    assert [one.number for one in measured] == [3, 2, 4]


SIZES, FEATURES = (5, 9, 8), 6
PRIVATE = PrivateSgd(clip_norm=0.5, noise_multiplier=0.8)
PLANS_PRIVATE_SGD = {
    "epochs": SgdPlan(lr=0.3, batch_size=4, epochs=2, private=PRIVATE),
    "full": SgdPlan(lr=0.3, steps=3, private=PRIVATE),
    "momentum": SgdPlan(lr=0.3, batch_size=3, steps=4, optimizer=Momentum(), clip_norm=0.4, private=PRIVATE),
}


def private_mlp() -> nn.Module:
    """An MLP 6-5-3."""
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 3))


def private_jobs(plan: SgdPlan, **terms) -> list[TrainJob]:
    """A job of each of three devices, and the graph that knows where they start."""
    rng = np.random.default_rng(1)
    data = TrainData(
        torch.from_numpy(rng.normal(size=(sum(SIZES), FEATURES))), torch.from_numpy(rng.integers(0, 3, sum(SIZES)))
    )
    model = FlatModel(seeded_module(private_mlp, 5).double(), "cross-entropy", (FEATURES,))
    graph, ends = Graph(None), np.cumsum(SIZES)
    w = graph.constant(model.initial())
    return [
        TrainJob(model, data, slice(int(end - n), int(end)), w, plan, Streams(3), ("batch", k, 0), f"dev-{k}", **terms)
        for k, (end, n) in enumerate(zip(ends, SIZES, strict=True))
    ]


def private_by_hand(job: TrainJob) -> torch.Tensor:
    """Batch by batch, sample by sample, in double precision; the noise from the job's own stream."""
    model, plan, private = job.model, job.plan, job.plan.private
    w, velocity = job.params.value, 0.0
    noise = job.streams(*job.rng_key, "dp")
    batches = job.batches()
    module = seeded_module(private_mlp, 5).double()
    for rows, count in zip(batches.index, batches.count, strict=True):
        total = torch.zeros_like(w)
        for row in rows[:count]:
            at = w.clone().requires_grad_()
            out = torch.func.functional_call(module, model.unflatten(at), (job.data.x[row][None],))
            g = torch.autograd.grad(nn.functional.cross_entropy(out, job.data.y[row][None]), at)[0]
            total += g * min(1.0, private.clip_norm / float(g.norm()))
        drawn = torch.from_numpy(noise.standard_normal(len(w)))
        g = (total + private.noise_multiplier * private.clip_norm * drawn) / int(count)
        g = g * min(1.0, plan.clip_norm / (float(g.norm()) + 1e-6)) if plan.clip_norm else g
        velocity = 0.9 * velocity + g if isinstance(plan.optimizer, Momentum) else g
        w = w - plan.lr * velocity
    return w


@pytest.mark.parametrize("plan", PLANS_PRIVATE_SGD)
@pytest.mark.parametrize("engine", [SerialEngine(), BatchedEngine()], ids=["serial", "batched"])
def test_both_engines_make_the_steps_by_hand(plan, engine):
    """To 1e-11, over ragged batches, with momentum and a limit for the whole gradient after the noise."""
    mine = private_jobs(PLANS_PRIVATE_SGD[plan])
    found = {resolved.job.label: result.params for resolved, result in engine.run([job.resolve() for job in mine])}
    for job in mine:
        assert torch.allclose(found[job.label], private_by_hand(job), rtol=1e-11, atol=1e-12), job.label


SGD = "algorithm={kind: fedavg, cohort: 3, lr: 0.1, local_epochs: 2, batch_size: 8}"


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_without_noise_or_limit_it_is_plain_sgd(engine):
    """The same events, and the same models to rounding."""
    unlimited = "algorithm.dp_sgd={clip_norm: 1e9, noise_multiplier: 0}"
    plain, private = (run_small(SGD, f"training.engine={engine}", *more) for more in ((), (unlimited,)))
    assert plain.ledger.event_digest() == private.ledger.event_digest()
    assert torch.allclose(plain.read(plain.latest), private.read(private.latest), atol=1e-5)


@pytest.mark.parametrize("kind", ["fedavg", "fedprox", "ditto", "fedper", "fedrep"])
def test_a_run_has_one_clock_and_the_same_model_in_both_engines(kind):
    """With losses and noise."""
    more = {
        "ditto": ", pull: 0.1",
        "fedper": ", personal_layers: ['*.bias']",
        "fedrep": ", personal_layers: ['*.bias'], head_epochs: 1",
    }
    settings = (f"algorithm={{kind: {kind}, cohort: 3, lr: 0.05, local_epochs: 1, batch_size: 8{more.get(kind, '')}, "
                "dp_sgd: {clip_norm: 0.5, noise_multiplier: 1}}",
                "network.uplink.message_loss={kind: random, probability: 0.2}")  # fmt: skip
    serial, batched = run_small(*settings), run_small(*settings, "training.engine=batched")
    assert len({fed.ledger.event_digest() for fed in (serial, batched, run_small(*settings, timing_only=True))}) == 1
    ones, others = ([fed.latest] if not isinstance(fed.latest, list) else fed.latest for fed in (serial, batched))
    for one, other in zip(ones, others, strict=True):
        assert torch.allclose(serial.read(one), batched.read(other), atol=1e-5)


def test_the_summary_says_what_is_revealed_of_a_sample():
    """Two rounds of one pass, at most, by any device."""
    private = {"clip_norm": 1, "noise_multiplier": 2}
    changes = {"stop.rounds": 2, "algorithm.local_epochs": 1, "model": "softmax", "algorithm.dp_sgd": private}
    run = fe.run("quickstart", settings=changes, progress=False)
    assert run.summary["sample_epsilon"] == pytest.approx(epsilon(2.0, delta=1e-5, rounds=2))
    assert run.summary["sample_epsilon_as_poisson"] > 0
    assert run.summary["sample_delta"] == 1e-5


def test_accounts_of_a_device_by_hand():
    """20 samples in batches of 8: 3 steps a pass, 2 passes a round, 5 rounds."""
    algorithm = small_scenario(SGD, "algorithm.dp_sgd={clip_norm: 1, noise_multiplier: 2}").algorithm
    found = algorithm.sample_privacy(5, [20, 40, 0])
    assert found["sample_epsilon"] == pytest.approx(epsilon(2.0, delta=1e-5, rounds=10))
    assert found["sample_epsilon_as_poisson"] == pytest.approx(epsilon(2.0, delta=1e-5, rounds=30, rate=0.4))
    silent = algorithm.model_copy(update={"dp_sgd": PrivateSgd(clip_norm=1, noise_multiplier=0)})
    assert math.isinf(silent.sample_privacy(1, [20])["sample_epsilon"])

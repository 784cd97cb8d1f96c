import itertools

import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import ENGINES
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.results import results_of

SIZES = (50, 1, 3, 17, 20, 8, 33)
"""Samples of each client: ragged, smaller than a batch, a single one, and exactly one batch."""
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
PLANS = {
    "epochs": SgdPlan(lr=0.1, batch_size=8, epochs=2),
    "steps": SgdPlan(lr=0.1, batch_size=8, steps=5),
    "full": SgdPlan(lr=0.1, steps=3),
}


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(6 * 2 * 2, 12), nn.ReLU(), nn.Linear(12, 3)),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 3))


def softmax() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


def dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3))


def classifier(build=softmax, dtype=torch.float64) -> tuple[FlatModel, TrainData]:
    """A model and clients whose classes differ a little, in double precision.

    In single precision, the rounding of a processor decides whether a rectifier passes an input near zero.
    """
    rng = np.random.default_rng(3)
    y = torch.from_numpy(rng.integers(0, 3, OFFSETS[-1]))
    x = torch.from_numpy(rng.normal(size=(OFFSETS[-1], 1, 8, 8))).to(dtype) + y[:, None, None, None] / 3
    return FlatModel(seeded_module(build, 5).to(dtype), "cross-entropy", (1, 8, 8)), TrainData(x, y)


def regression(dtype=torch.float64) -> tuple[FlatModel, TrainData]:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(OFFSETS[-1], 4)), rng.normal(size=OFFSETS[-1])
    data = TrainData(torch.from_numpy(x).to(dtype), torch.from_numpy(y).to(dtype))
    return FlatModel(seeded_module(lambda: nn.Linear(4, 1), 5).to(dtype), "squared-error", (4,)), data


def jobs(graph, w, model, data, plan, key=0, **terms):
    """One job per client, on its own slice of the data."""
    streams = Streams(0)
    return [
        TrainJob(model, data, slice(a, b), w, plan, streams, (i, key), f"dev-{i}, round {key}", **terms)
        for i, (a, b) in enumerate(itertools.pairwise(OFFSETS))
    ]


def mean(parts):
    return torch.stack(parts).mean(0)


def rounds(engine, model, data, plan, n_rounds=3):
    """The model and the losses after some rounds of federated averaging."""
    graph = Graph(engine)
    w, losses = graph.constant(model.initial()), []
    for r in range(n_rounds):
        trained = [graph.train(job) for job in jobs(graph, w, model, data, plan, r)]
        w = graph.call(mean, [one.params for one in trained])
        losses += [one.loss for one in trained]
    return graph.read(w), np.array([graph.read(loss) for loss in losses])


def train(engine, make, **terms):
    """The parameters [devices, size] after one wavefront; `make` has a graph and turns tensors into Deferreds."""
    graph = Graph(engine)
    model, data, plan = make
    w = graph.constant(model.initial())
    deferred = {
        name: graph.constant(value) if isinstance(value, torch.Tensor) else value for name, value in terms.items()
    }
    trained = [graph.train(job) for job in jobs(graph, w, model, data, plan, **deferred)]
    return torch.stack([graph.read(one.params) for one in trained])


def relative_error(a, b):
    """The distance of two vectors relative to the second."""
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("build", [softmax, mlp, cnn])
def test_batched_and_serial_agree(build, plan):
    """Three rounds with ragged clients give the same model and losses to 1e-12 in both engines."""
    w_serial, loss_serial = rounds(SerialEngine(), *classifier(build), plan)
    w_batched, loss_batched = rounds(BatchedEngine(), *classifier(build), plan)

    assert relative_error(w_batched, w_serial) < 1e-12
    assert loss_batched == pytest.approx(loss_serial, rel=1e-12)


@pytest.mark.parametrize("build", [softmax, mlp, cnn])
def test_a_step_in_single_precision_is_that_in_double(build):
    """One step of all samples moves every device as in double precision, to 0.1 % of its way, in both engines."""
    plan, way = SgdPlan(lr=0.1, steps=1), {}
    for dtype in (torch.float32, torch.float64):
        model, data = classifier(build, dtype)
        way[dtype] = [
            train(engine(), (model, data, plan)) - model.initial() for engine in (SerialEngine, BatchedEngine)
        ]

    for single, double in itertools.product(way[torch.float32], way[torch.float64]):
        assert all(relative_error(a.double(), b) < 1e-3 for a, b in zip(single, double, strict=True))


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_full_batch_descent_follows_its_formula(engine):
    """Linear regression: w - lr (scale 2/n X'(Xw - y) + linear + prox (w - anchor)) step by step, in numpy."""
    model, data = regression()
    rng = np.random.default_rng(8)
    linear, anchor = rng.normal(size=(2, 5))
    terms = {"scale": 1.7, "linear": torch.from_numpy(linear), "prox": 0.3, "anchor": torch.from_numpy(anchor)}
    found = train(engine(), (model, data, PLANS["full"]), **terms)

    x = np.column_stack([data.x.numpy(), np.ones(OFFSETS[-1])])
    for device, (a, b) in enumerate(itertools.pairwise(OFFSETS)):
        w = model.initial().numpy()
        for _ in range(3):
            gradient = 2 / (b - a) * x[a:b].T @ (x[a:b] @ w - data.y.numpy()[a:b])
            w = w - 0.1 * (1.7 * gradient + linear + 0.3 * (w - anchor))
        assert found[device].numpy() == pytest.approx(w, rel=1e-12)


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_mask_freezes_parameters(plan, engine):
    """Where the mask is zero nothing moves, with all terms; where it is one, the steps of a smaller model are made."""
    model, data = regression()
    mask = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    graph = Graph(engine())
    w, linear = graph.constant(model.initial()), torch.ones(5, dtype=torch.float64)
    terms = {"mask": mask, "linear": graph.constant(linear), "prox": 0.5}
    trained = [graph.train(job) for job in jobs(graph, w, model, data, plan, **terms)]
    ends = torch.stack([graph.read(one.params) for one in trained])

    for job, end in zip(jobs(graph, w, model, data, plan), ends, strict=True):
        expected = model.initial()
        for rows, count in zip(job.batches().index, job.batches().count, strict=True):
            own = torch.tensor(rows[:count].copy())
            x, y = data.x[own], data.y[own]
            at = expected.clone().requires_grad_()
            (slope,) = torch.autograd.grad(model.loss(at, x, y), at)
            slope = slope + linear + 0.5 * (expected - model.initial())
            expected = torch.where(mask > 0, expected - plan.lr * slope, expected)
        torch.testing.assert_close(end, expected)


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_anchor_defaults_to_the_starting_point(engine):
    """A proximal term without an anchor pulls towards the parameters that the job started from."""
    model, data = regression()
    make = (model, data, PLANS["full"])

    default, explicit = train(engine(), make, prox=0.7), train(engine(), make, prox=0.7, anchor=model.initial())

    assert torch.equal(default, explicit)
    assert not torch.equal(default, train(engine(), make))


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_a_pull_may_be_known_later(engine):
    """A proximal factor that is a deferred number works as the number does, zero included."""
    model, data = regression()
    graph = Graph(engine())
    w = graph.constant(model.initial())
    for number in (0.0, 0.7):
        later = graph.call(lambda half: 2 * half, graph.constant(number / 2), size=1)
        (job, *_), (expected, *_) = (jobs(graph, w, model, data, PLANS["full"], prox=prox) for prox in (later, number))

        assert torch.equal(graph.read(graph.train(job).params), graph.read(graph.train(expected).params))


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
@pytest.mark.parametrize("build", [mlp, cnn])
def test_zero_step_size_changes_nothing(build, engine):
    """A step size of zero leaves the parameters of every device bit-identical."""
    model, data = classifier(build)
    found = train(engine(), (model, data, SgdPlan(lr=0.0, batch_size=8, epochs=1)))

    assert (found == model.initial()).all()


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_jobs_do_not_notice_each_other(engine):
    """A job gives the same alone, among others, and in another order."""
    model, data = classifier(mlp)
    graph = Graph(engine())
    w = graph.constant(model.initial())
    wavefront = [job.resolve() for job in jobs(graph, w, model, data, PLANS["epochs"])]

    together = results_of(engine(), wavefront)
    reverse = results_of(engine(), wavefront[::-1])[::-1]
    alone = [results_of(engine(), [one])[0] for one in wavefront]

    for a, b, c in zip(together, reverse, alone, strict=True):
        assert relative_error(b.params, a.params) < 1e-12
        assert relative_error(c.params, a.params) < 1e-12


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_jobs_may_differ_in_everything(engine):
    """A wavefront may mix models, plans, step sizes and terms; each job gets its own result."""
    graph = Graph(engine())
    wavefront = []
    for build, plan in ((softmax, "epochs"), (mlp, "full"), (softmax, "steps")):
        model, data = classifier(build)
        w = graph.constant(model.initial())
        wavefront += jobs(graph, w, model, data, PLANS[plan])
        wavefront += jobs(graph, w, model, data, SgdPlan(lr=0.02, batch_size=8, steps=2), prox=0.1)
    wavefront = [job.resolve() for job in wavefront]

    found = results_of(engine(), wavefront)
    expected = results_of(SerialEngine(), wavefront)

    assert all(relative_error(a.params, b.params) < 1e-12 for a, b in zip(found, expected, strict=True))
    assert [a.loss for a in found] == pytest.approx([b.loss for b in expected], rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_models_that_cannot_be_vectorised_are_trained_all_the_same(engine):
    """A module that branches on a tensor is run job by job, with the serial results."""

    class Branching(nn.Linear):
        def forward(self, x):
            y = super().forward(x.flatten(1))
            return 2 * y if y.sum() > 0 else y

    make = (*classifier(lambda: Branching(64, 3)), PLANS["epochs"])

    assert torch.equal(train(engine(), make), train(SerialEngine(), make))


def test_jobs_of_one_stack_keep_their_own_numbers():
    """Step size, scale and pull of each job are its own, although the jobs are trained as one stack."""
    model, data = classifier(mlp)
    graph = Graph(None)
    w, anchor = graph.constant(model.initial()), graph.constant(torch.zeros(model.size))
    wavefront = []
    for i in range(4):
        plan = SgdPlan(lr=0.02 * (i + 1), batch_size=8, steps=4)
        terms = {"scale": 2.0 - i / 3, "prox": 0.1 * (4 - i), "anchor": anchor}
        wavefront.append(jobs(graph, w, model, data, plan, **terms)[0].resolve())

    found, expected = results_of(BatchedEngine(), wavefront), results_of(SerialEngine(), wavefront)

    assert all(relative_error(a.params, b.params) < 1e-12 for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("batch_sizes", [(None, None), (5, 8)])
def test_filling_up_uses_the_devices_own_samples(batch_sizes):
    """Rows that belong to nobody in the wavefront are never touched, not even with weight zero."""
    model, data = classifier()
    graph = Graph(None)
    w = graph.constant(model.initial())
    plans = [SgdPlan(lr=0.1, batch_size=size, epochs=2) for size in batch_sizes]
    wavefront = [jobs(graph, w, model, data, plan)[place].resolve() for plan, place in zip(plans, (3, 4), strict=True)]
    expected = results_of(SerialEngine(), wavefront)
    data.x[: OFFSETS[3]] = torch.nan

    found = results_of(BatchedEngine(), wavefront)

    assert all(relative_error(a.params, b.params) < 1e-12 for a, b in zip(found, expected, strict=True))


def test_memory_limit_cuts_without_changing_results():
    """A limit that one job exceeds alone still runs every job, and gives the same."""
    plan = PLANS["epochs"]
    cut, _ = rounds(BatchedEngine(memory_limit_byte=1), *classifier(mlp), plan)
    halves, _ = rounds(BatchedEngine(memory_limit_byte=120_000), *classifier(mlp), plan)
    whole, _ = rounds(BatchedEngine(), *classifier(mlp), plan)

    assert relative_error(cut, whole) < 1e-12
    assert relative_error(halves, whole) < 1e-12


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_results_own_their_memory(engine):
    """A result is no view into its wavefront, so keeping one of a thousand does not keep a thousand."""
    model, data = classifier()
    graph = Graph(engine())
    w = graph.constant(model.initial())
    results = results_of(engine(), [job.resolve() for job in jobs(graph, w, model, data, PLANS["steps"])])

    assert all(one.params.untyped_storage().nbytes() == 8 * model.size for one in results)


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_starting_parameters_are_left_alone(engine):
    """Training does not write into the parameters that it starts from."""
    model, data = classifier()
    graph = Graph(engine())
    w = graph.constant(model.initial())

    graph.read(graph.train(jobs(graph, w, model, data, PLANS["steps"])[0]).params)

    assert torch.equal(graph.read(w), model.initial())


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_divergence_names_job_step_and_remedy(engine):
    """A loss that overflows is an error that says whose, after which step, and what to change."""
    model, data = regression(torch.float32)
    graph = Graph(engine())
    w = graph.constant(model.initial())
    plan = SgdPlan(lr=1e12, steps=9)
    trained = [graph.train(job) for job in jobs(graph, w, model, data, plan, 7)]

    message = r"dev-0, round 7: training diverges, got loss (inf|nan) after step 2 with lr=1e\+12; lower the learning"
    with pytest.raises(ScenarioError, match=message):
        graph.read(trained[3].params)


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_bad_data_divergence_and_other_errors_are_told_apart(engine):
    """An infinite sample shows before its first step, an overflow after the last loss too, and an error says where."""
    model, data = regression(torch.float32)
    with pytest.raises(ScenarioError, match=r"parameters that are not finite after step 1 with lr=3e\+38"):
        train(engine(), (model, TrainData(data.x * 100, data.y), SgdPlan(lr=3e38, steps=1)))

    model, data = regression()
    data.x[OFFSETS[2], 0] = torch.inf
    with pytest.raises(ScenarioError, match=r"dev-2, round 0: .* before the first step"):
        train(engine(), (model, data, PLANS["full"]))

    model, data = classifier()
    with pytest.raises((IndexError, RuntimeError)) as caught:
        train(engine(), (model, TrainData(data.x, data.y + 99), PLANS["full"]))
    assert "dev-0, round 0" in caught.value.__notes__[-1]


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_dropout_is_seeded_by_the_job(engine):
    """Dropout masks depend on the job's key alone: the same in any company, and torch's generator is untouched."""
    model, data = classifier(dropout)
    graph = Graph(engine())
    w = graph.constant(model.initial())
    wavefront = [job.resolve() for job in jobs(graph, w, model, data, PLANS["epochs"])]
    other = [job.resolve() for job in jobs(graph, w, model, data, PLANS["epochs"], key=1)]
    before = torch.get_rng_state()

    together = results_of(engine(), wavefront)
    last_alone = results_of(engine(), wavefront[-1:])[0]

    assert torch.equal(together[-1].params, last_alone.params)
    assert not torch.equal(together[-1].params, results_of(engine(), other)[-1].params)
    assert torch.equal(torch.get_rng_state(), before)

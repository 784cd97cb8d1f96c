"""Rules that choose an engine, and their measurements."""

from __future__ import annotations

import copy
import itertools
import socket
import sys
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import batched
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.ray.cluster import connected
from fednet_emu.learning.engines.rule import ENGINES, Case, RuleEngine, choose
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.graph import grouping
from fednet_emu.learning.graph.engine import Engine, TrainResult
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.grouping import shape_of
from fednet_emu.learning.graph.jobs import ResolvedJob, SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Adam, Momentum, Optimizer, Sgd
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.feedforward import McMahanCnn, Mlp, Softmax
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.results import results_of
from tests.quick import crossed

SIZES = (50, 1, 3, 17, 20, 8, 33)
OFFSETS = [0, *itertools.accumulate(SIZES)]
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Sgd(),
    "decay": Sgd(weight_decay=0.3),
    "momentum": Momentum(beta=0.8),
    "nesterov": Momentum(beta=0.8, nesterov=True, weight_decay=0.1),
}
MODELS = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3)),
    "any": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 3)),
}
"""A chain whose gradients are written by hand, and a model that is vectorised by PyTorch."""


def samples() -> TrainData:
    rng = np.random.default_rng(3)
    n = OFFSETS[-1]
    return TrainData(torch.from_numpy(rng.normal(size=(n, 1, 4, 4))), torch.from_numpy(rng.integers(0, 3, n)))


def model_of(name: str) -> FlatModel:
    return FlatModel(seeded_module(MODELS[name], 5).double(), "cross-entropy", (1, 4, 4))


def jobs(model: FlatModel, plan: SgdPlan, **terms: Any) -> list[TrainJob]:
    """One job per device, with ragged numbers of samples and therefore of steps."""
    graph, streams, data = Graph(None), Streams(0), samples()
    w = graph.constant(model.initial())
    known = {name: graph.constant(its) if name in ("linear", "drift", "anchor") else its for name, its in terms.items()}
    return [
        TrainJob(model, data, slice(a, b), w, plan, streams, (i,), f"dev-{i}", **known)
        for i, (a, b) in enumerate(itertools.pairwise(OFFSETS))
    ]


def run(engine: Engine, wavefront: list[TrainJob]) -> list[TrainResult]:
    return results_of(engine, [job.resolve() for job in wavefront])


@pytest.mark.parametrize("clip_norm", [None, 0.4])
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS.values(), Adam(weight_decay=0.1)], ids=[*OPTIMIZERS, "adam"])
def test_a_job_is_the_plain_loop(optimizer: Optimizer, clip_norm: float | None) -> None:
    """PyTorch's optimizer and `clip_grad_norm_` on the module itself, over the batches of the job."""
    model = model_of("dense")
    job = jobs(model, SgdPlan(lr=0.2, batch_size=8, epochs=2, optimizer=optimizer, clip_norm=clip_norm))[0]
    module, batches = copy.deepcopy(model.live().module), job.batches()
    nn.utils.vector_to_parameters(model.initial(), module.parameters())
    torch_s = {
        Sgd: lambda own: torch.optim.SGD(module.parameters(), 0.2, weight_decay=own.weight_decay),
        Momentum: lambda own: torch.optim.SGD(
            module.parameters(), 0.2, own.beta, weight_decay=own.weight_decay, nesterov=own.nesterov
        ),
        Adam: lambda own: torch.optim.Adam(module.parameters(), 0.2, weight_decay=own.weight_decay),
    }[type(optimizer)](optimizer)
    for rows, count in zip(batches.index, batches.count, strict=True):
        torch_s.zero_grad()
        nn.functional.cross_entropy(module(job.data.x[rows[:count]]), job.data.y[rows[:count]]).backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
        torch_s.step()

    expected = nn.utils.parameters_to_vector(module.parameters()).detach()
    assert torch.allclose(run(SerialEngine(), [job])[0].params, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("full", "clip_norm", "optimizer", "name"), crossed([False, True], [None, 0.4], OPTIMIZERS.values(), MODELS)
)
def test_stacked_jobs_are_the_serial_ones(
    name: str, optimizer: Optimizer, clip_norm: float | None, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ragged devices, all terms and a mask; in double precision only rounding differs, and nothing runs serially."""
    model, rng = model_of(name), np.random.default_rng(8)
    mask = torch.ones(model.size, dtype=torch.float64)
    mask[::3] = 0
    linear, anchor, drift = torch.from_numpy(rng.normal(size=(3, model.size)) / 5)
    batch = None if full else 8
    plan = SgdPlan(lr=0.2, batch_size=batch, epochs=2, optimizer=optimizer, clip_norm=clip_norm)
    cases = [{}, {"scale": 1.7, "linear": linear, "prox": 0.3, "anchor": anchor, "mask": mask}, {"prox": 0.5}]
    cases += [{"drift": drift}, {"drift": drift, "linear": linear, "prox": 0.3, "mask": mask}]
    for terms in cases:
        expected = run(SerialEngine(), wavefront := jobs(model, plan, **terms))
        with monkeypatch.context() as patched:
            if name == "dense":
                patched.setattr(SerialEngine, "run", None)
            found = run(BatchedEngine(), wavefront)
        for a, b in zip(found, expected, strict=True):
            assert torch.allclose(a.params, b.params, rtol=1e-11, atol=1e-13)
            assert a.loss == pytest.approx(b.loss, rel=1e-11)


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_drift_is_added_after_the_optimizer(engine: type[Engine]) -> None:
    """With plain steps it is a linear term; at a gradient of zero it moves by -lr each step, whatever the momentum."""
    model = model_of("dense")
    drift = torch.linspace(-1, 1, model.size, dtype=torch.float64)
    plain = SgdPlan(lr=0.2, batch_size=8, steps=5)
    found, expected = (run(engine(), jobs(model, plain, **{name: drift})) for name in ("drift", "linear"))
    assert all(torch.allclose(a.params, b.params, rtol=1e-10) for a, b in zip(found, expected, strict=True))

    heavy = SgdPlan(lr=0.2, batch_size=8, steps=5, optimizer=Momentum(beta=0.9), clip_norm=1e-3)
    for result in run(engine(), jobs(model, heavy, drift=drift, scale=0.0)):
        assert torch.allclose(result.params, model.initial() - 5 * 0.2 * drift)


def test_jobs_with_different_rules_are_not_mixed() -> None:
    """A wavefront of plain jobs, two momenta, two step sizes and two limits: each job makes its own steps."""
    model, rules = (
        model_of("dense"),
        itertools.product((Sgd(), Momentum(), Momentum(beta=0.5)), (0.1, 0.2), (None, 0.3)),
    )
    plans = [SgdPlan(lr=lr, batch_size=8, steps=4, optimizer=own, clip_norm=limit) for own, lr, limit in rules]
    wavefront = [job for plan in plans for job in jobs(model, plan)]
    found, expected = run(BatchedEngine(), wavefront), run(SerialEngine(), wavefront)

    assert all(torch.allclose(a.params, b.params, rtol=1e-11) for a, b in zip(found, expected, strict=True))
    assert len({float(result.params.sum()) for result in expected[:: len(SIZES)]}) == len(plans)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_wavefront_begins_anew(engine: str) -> None:
    """Neither velocity nor gradients are left over from the jobs before."""
    model, plan = model_of("dense"), SgdPlan(lr=0.2, batch_size=8, epochs=1, optimizer=Momentum())
    used, wavefront = ENGINES[engine](), jobs(model, plan)
    first = run(used, wavefront)
    for _ in range(3):
        again = run(used, wavefront)

    assert all(torch.allclose(a.params, b.params, rtol=1e-12) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("engine", [SerialEngine, BatchedEngine])
def test_no_clipping_hides_divergence(engine: type[Engine]) -> None:
    """A gradient that is not finite is not cut to a finite one."""
    model = model_of("dense")
    wavefront = jobs(model, SgdPlan(lr=0.2, steps=3, clip_norm=1.0))
    wavefront[2].data.x[OFFSETS[2]] = torch.inf

    with pytest.raises(ScenarioError, match="dev-2: training diverges"):
        run(engine(), wavefront)


IMAGE = (1, 28, 28)
RNG = np.random.default_rng(0)
DATA = TrainData(
    torch.from_numpy(RNG.standard_normal((600, *IMAGE), dtype=np.float32)), torch.from_numpy(RNG.integers(0, 10, 600))
)
SMALL = nn.Sequential(nn.Flatten(), nn.Linear(784, 3), nn.Tanh(), nn.Linear(3, 10))
LARGE = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.Tanh(), nn.Linear(300, 10))


def flat(module: nn.Module) -> FlatModel:
    return FlatModel(module, "cross-entropy", IMAGE)


def built(model: Softmax | Mlp | McMahanCnn) -> FlatModel:
    return flat(seeded_module(lambda: model.build(IMAGE, 10), 0))


def job(model: FlatModel, plan: SgdPlan, samples: int = 600, name: int = 0) -> ResolvedJob:
    """A job from the first rows of the data."""
    params = Graph(None).constant(model.initial())
    return TrainJob(model, DATA, slice(0, samples), params, plan, Streams(0), ("b", name), "dev").resolve()


OTHERS = [(SMALL, 10, "batched"), (SMALL, 9, "serial"), (LARGE, 100, "serial")]
WORKLOADS = {
    "W1": (Softmax(), SgdPlan(lr=0.1, batch_size=32, steps=5), 600, 100, "batched"),
    "W2": (Mlp(hidden=(200,)), SgdPlan(lr=0.1, batch_size=50, epochs=1), 600, 10, "batched"),
    "W3": (McMahanCnn(), SgdPlan(lr=0.1, batch_size=20, steps=5), 600, 10, "serial"),
    "W4": (Softmax(), SgdPlan(lr=0.1, steps=1), 60, 50, "batched"),
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_measured_workloads_have_their_fastest_engine(workload: str) -> None:
    """Dense layers are stacked, the CNN is not."""
    model, plan, samples, jobs, expected = WORKLOADS[workload]
    case = RuleEngine().case(shape_of(job(built(model), plan, samples)), jobs)

    assert choose(case) == expected


CUTS = [
    ("W1", 100, [25] * 4),
    ("W1", 26, [13] * 2),
    ("W2", 10, [5] * 2),
    ("W2", 3, [3]),
    ("W4", 10, [10]),
    ("W3", 3, [1] * 3),
]


@pytest.mark.parametrize(("workload", "jobs", "expected"), CUTS)
def test_stacks_follow_from_the_jobs(workload: str, jobs: int, expected: list[int]) -> None:
    """At most 25 jobs on a processor, and two stacks if each has four, where there is work; or one by one."""
    model, plan, samples, _, _ = WORKLOADS[workload]
    first = job(built(model), plan, samples)
    wavefront = [replace(first) for _ in range(jobs)]

    assert [len(stack) for stack in RuleEngine().cut(wavefront)] == expected


@pytest.mark.parametrize("workload", WORKLOADS)
def test_everything_is_stacked_on_a_gpu(workload: str) -> None:
    """Whatever the model; a lone job only where its gradient is worked out by hand."""
    model, plan, samples, jobs, _ = WORKLOADS[workload]
    case = RuleEngine().case(shape_of(job(built(model), plan, samples)), jobs)._replace(device="cuda")

    assert choose(case) == "batched"
    assert choose(case._replace(by_hand=True, jobs=1)) == "batched"
    assert choose(case._replace(by_hand=False, jobs=1)) == "serial"


@pytest.mark.parametrize(("device", "by_hand", "jobs"), list(product(["cpu", "cuda"], [False, True], [1, 1000])))
def test_what_cannot_share_a_call_runs_one_by_one(device: str, by_hand: bool, jobs: int) -> None:
    """Dropout, batch norm and Adam are never stacked."""
    assert choose(Case(device, batchable=False, by_hand=by_hand, fits=1000, jobs=jobs)) == "serial"

    adam = shape_of(job(built(Softmax()), SgdPlan(lr=0.1, steps=1, optimizer=Adam())))
    assert choose(RuleEngine().case(adam, 100)) == "serial"


@pytest.mark.parametrize(("module", "jobs", "expected"), OTHERS)
def test_small_models_of_other_layers_are_stacked_where_it_pays(module: nn.Module, jobs: int, expected: str) -> None:
    """On a processor from ten jobs on that stay in its caches together."""
    shape = shape_of(job(flat(module), SgdPlan(lr=0.1, batch_size=20, steps=2)))

    assert choose(RuleEngine().case(shape, jobs)) == expected


def test_jobs_run_on_what_was_chosen_for_their_shape() -> None:
    """In one wavefront: results are bit for bit those of the engine that each shape has, in the order of the jobs."""
    plan, models = SgdPlan(lr=0.1, batch_size=20, steps=2), (built(Mlp(hidden=(8,))), flat(LARGE))
    jobs = [job(models[name % 2], plan, name=name) for name in range(6)]
    engine = RuleEngine()

    found = [result.params for result in results_of(engine, jobs)]
    dense = [result.params for result in results_of(BatchedEngine(), jobs[::2])]
    other = [result.params for result in results_of(SerialEngine(), jobs[1::2])]

    assert all(torch.equal(a, b) for a, b in zip(found[::2] + found[1::2], dense + other, strict=True))
    assert [choice.split(",")[0] for choice in engine.choices] == ["engine batched", "engine serial"]


@pytest.mark.parametrize("threads", [1, 2])
def test_jobs_are_grouped_and_models_looked_at_once(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Each job is grouped once per wavefront, and the form of a model is worked out at most once per thread."""
    group, form = Mock(side_effect=shape_of), Mock(side_effect=batched.chain_form)
    monkeypatch.setattr(grouping, "shape_of", group)
    monkeypatch.setattr(batched, "chain_form", form)
    first, engine = (
        job(built(Softmax()), SgdPlan(lr=0.1, batch_size=4, steps=2), 8),
        SpreadEngine([RuleEngine() for _ in range(threads)]),
    )
    jobs = [replace(first) for _ in range(6)]
    for _ in range(3):
        results_of(engine, jobs)
    engine.close()

    assert group.call_count == 3 * len(jobs)
    assert form.call_count <= threads


def test_an_address_is_tried_before_ray_waits_for_it(monkeypatch):
    """Ray itself is not asked to connect to a port that is closed, nor to what is no address."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=lambda **_: pytest.fail("asked")))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(FednetError, match=f"x: no cluster can be used, got 'no cluster responds at {address}"):
            connected("x", address, None)
    with pytest.raises(FednetError, match="got 'nowhere:nothing is no host:port'; check the address"):
        connected("x", "nowhere:nothing", None)

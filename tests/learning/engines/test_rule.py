"""The engine that a rule chooses: its picks for the workloads that are measured, and results that are the engine's."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import batched
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import Case, RuleEngine, choose
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.graph import grouping
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.grouping import shape_of
from fednet_emu.learning.graph.jobs import ResolvedJob, SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Adam
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.feedforward import McMahanCnn, Mlp, Softmax
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.results import results_of

IMAGE = (1, 28, 28)
RNG = np.random.default_rng(0)
DATA = TrainData(
    torch.from_numpy(RNG.standard_normal((600, *IMAGE), dtype=np.float32)), torch.from_numpy(RNG.integers(0, 10, 600))
)
SMALL = nn.Sequential(nn.Flatten(), nn.Linear(784, 3), nn.Tanh(), nn.Linear(3, 10))
LARGE = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.Tanh(), nn.Linear(300, 10))


def flat(module: nn.Module) -> FlatModel:
    """A model for images with ten classes."""
    return FlatModel(module, "cross-entropy", IMAGE)


def built(model: Softmax | Mlp | McMahanCnn) -> FlatModel:
    """The same from a component."""
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

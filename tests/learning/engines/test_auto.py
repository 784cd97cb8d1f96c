import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import auto
from fednet_emu.learning.engines.auto import AutoEngine, _Trial
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.engine import results_of
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.torch_seed import seeded_module

PLAN = SgdPlan(lr=0.1, batch_size=2, steps=2)
RNG = np.random.default_rng(3)
DATA = TrainData(
    torch.from_numpy(RNG.normal(size=(50, 64)).astype(np.float32)), torch.from_numpy(RNG.integers(0, 3, 50))
)
MODEL = FlatModel(seeded_module(lambda: nn.Linear(64, 3), 5), "cross-entropy", (64,))


class NotingStreams(Streams):
    """Notes the name of each stream drawn."""

    def __init__(self, drawn):
        super().__init__(0)
        self._drawn = drawn

    def __call__(self, *name):
        """As any streams."""
        self._drawn.append(name)
        return super().__call__(*name)

    def many(self, names):
        """As any streams, one by one."""
        return [self(*name) for name in names]


def averaging(engine, drawn, n_rounds):
    """The global model after each round of federated averaging with five clients; notes each stream drawn."""
    graph, streams = Graph(engine), NotingStreams(drawn)
    w = graph.constant(MODEL.initial())
    for r in range(n_rounds):
        wavefront = [
            TrainJob(MODEL, DATA, slice(10 * i, 10 * i + 10), w, PLAN, streams, (i, r), f"dev-{i}") for i in range(5)
        ]
        w = graph.call(lambda parts: torch.stack(parts).mean(0), [graph.train(job).params for job in wavefront])
        yield graph.read(w)


class Host:
    """A clock by which every second measurement takes three seconds, the others one."""

    def __init__(self):
        self._reads, self._now_s = 0, 0.0

    def perf_counter(self):
        """Two reads make a measurement: one at its start and one at its end."""
        self._reads += 1
        self._now_s += {0: 3.0, 2: 1.0}.get(self._reads % 4, 0.0)
        return self._now_s


def test_auto_engine_measures_once_and_keeps_the_faster(monkeypatch):
    """After four wavefronts of a shape the faster engine is chosen; no job was run twice on the way."""
    monkeypatch.setattr(auto, "time", Host())
    engine, drawn = AutoEngine(), []
    chosen = [len(engine.choices) for _ in averaging(engine, drawn, n_rounds=6)]

    (choice,) = engine.choices
    assert chosen == [0, 0, 0, 1, 1, 1]
    assert (choice.parameters, choice.full_batch, choice.width, choice.jobs) == (195, False, 2, 8)
    assert set(choice.seconds) == {"serial", "batched"}
    assert choice.engine == min(choice.seconds, key=choice.seconds.get)
    assert sorted(choice.seconds.values()) == pytest.approx([1 / 20, 3 / 20])
    assert drawn == [(i, r) for r in range(6) for i in range(5)]


def test_auto_engine_agrees_with_the_serial_engine():
    """Whatever is measured and chosen, the models are those of the serial engine within 1e-5."""
    pairs = zip(averaging(AutoEngine(), [], 6), averaging(SerialEngine(), [], 6), strict=True)

    assert all(float((found - expected).norm() / expected.norm()) < 1e-5 for found, expected in pairs)


def test_lone_jobs_of_other_models_are_not_measured():
    """A wavefront of one job gains nothing from stacking, unless its gradients can be worked out by hand."""
    model = FlatModel(seeded_module(lambda: nn.Sequential(nn.Linear(64, 3), nn.Tanh()), 5), "cross-entropy", (64,))
    engine, graph = AutoEngine(), Graph(None)
    plan, w = SgdPlan(lr=0.1, steps=1), graph.constant(model.initial())
    job = TrainJob(model, DATA, slice(0, 10), w, plan, Streams(0), (), "dev-0").resolve()
    results = [results_of(engine, [job])[0].params for _ in range(6)]

    assert all(torch.equal(found, results_of(SerialEngine(), [job])[0].params) for found in results)
    assert engine.choices == []


def test_threads_are_tried_too():
    """With two threads to use, jobs side by side are among what is measured, and give the same models."""
    engine = AutoEngine(threads=2)
    pairs = zip(averaging(engine, [], 8), averaging(SerialEngine(), [], 8), strict=True)

    assert all(float((found - expected).norm() / expected.norm()) < 1e-5 for found, expected in pairs)
    assert set(engine.choices[0].seconds) == {"serial", "serial in threads", "batched in threads"}


def test_stacks_of_one_job_are_not_tried():
    """Where a single job fills the memory of a stack, stacking would be training one by one by another name."""
    layers = (nn.Linear(64, 16_000), nn.Tanh(), nn.Linear(16_000, 3))
    model = FlatModel(seeded_module(lambda: nn.Sequential(*layers), 5), "cross-entropy", (64,))
    engine, graph = AutoEngine(threads=2), Graph(None)
    plan, w, streams = SgdPlan(lr=0.1, steps=1), graph.constant(model.initial()), Streams(0)
    jobs = [TrainJob(model, DATA, slice(i, i + 10), w, plan, streams, (), "dev").resolve() for i in range(4)]
    for _ in range(4):
        results_of(engine, jobs)

    assert set(engine.choices[0].seconds) == {"serial", "serial in threads"}


def test_one_very_large_wavefront_is_enough_for_a_trial():
    """Of a thousand jobs 512 go through two engines, twice each, the rest through the chosen one; all in order."""
    engine, graph, streams = AutoEngine(), Graph(None), Streams(0)
    w, plan = graph.constant(MODEL.initial()), SgdPlan(lr=0.1, steps=1)
    jobs = [TrainJob(MODEL, DATA, slice(i % 40, i % 40 + 10), w, plan, streams, (), "dev") for i in range(1000)]
    resolved = [job.resolve() for job in jobs]
    found, expected = results_of(engine, resolved), results_of(SerialEngine(), resolved)

    assert len(engine.choices) == 1
    assert all(torch.allclose(a.params, b.params, rtol=1e-5, atol=1e-6) for a, b in zip(found, expected, strict=True))


def test_an_engine_that_is_clearly_beaten_has_one_turn():
    """Twice the best time of another, measured for long enough, is the end; a short or a close measurement is not."""
    trial = _Trial(["beaten", "close", "short", "best"])
    for name, seconds in (("beaten", 3.0), ("close", 1.5), ("short", 9.0), ("best", 1.0)):
        assert trial.next_engine() == name
        trial.note(name, seconds, says_enough=name != "short")
    turns = []
    while not trial.is_over:
        turns.append(trial.next_engine())
        trial.note(turns[-1], 0.5 if turns[-1] == "short" else 2.0, says_enough=True)

    assert turns == ["close", "short", "best"]
    assert trial.next_engine() == "short"

"""Means in the place of models: sums come out equal, and only where that is right."""

import pytest
import torch
from torch import nn

from fednet_emu.federation import average, mean_update
from fednet_emu.federation.sums import NoisyMean
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.accumulation import accumulated
from fednet_emu.learning.graph.engine import Engine, Group
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.results import results_of

DATA = TrainData(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3)
MODEL = FlatModel(nn.Linear(4, 3), "cross-entropy", (4,))
WEIGHTS = [3, 1, 4, 1, 5]


class InTwoPlaces(Engine):
    """An engine elsewhere whose jobs of even and odd places in a sum have trained in two places."""

    def __init__(self):
        self.begun, self.models = [], 0

    def begin(self, job):
        self.begun.append(job.label)

    def means(self, jobs, w, weights):
        results = results_of(SerialEngine(), jobs)
        groups = []
        for places in ([0, 2, 4], [1, 3]):
            shares = [weights[k] for k in places]
            update = accumulated(mean_update(w, shares), [results[k].params for k in places])
            groups.append(Group(places, w + update, [(results[k].loss, results[k].square) for k in places]))
        return groups

    def run(self, jobs):
        self.models += len(jobs)
        return SerialEngine().run(jobs)


def train(graph):
    w, plan = graph.constant(torch.linspace(-1, 1, MODEL.size)), SgdPlan(0.5, steps=3)
    own = [slice(6 * k, 6 * k + 6) for k in range(5)]
    return w, [graph.train(TrainJob(MODEL, DATA, own[k], w, plan, Streams(0), (k,), f"dev-{k}")) for k in range(5)]


@pytest.mark.parametrize(("function", "more"), [(mean_update, []), (average, [0.7]), (average, [0.7, mean_update])])
def test_a_mean_stands_for_the_models_of_a_place(function, more):
    """The sum is that of the models to 1e-6, losses are equal, and no model has come back."""
    found = []
    for engine in (InTwoPlaces(), SerialEngine()):
        graph = Graph(engine)
        w, results = train(graph)
        total = graph.accumulate(function, [result.params for result in results], w, WEIGHTS, *more)
        found.append((graph.read(total), [graph.read(result.loss) for result in results], graph.statistics))
        if isinstance(engine, InTwoPlaces):
            assert (engine.begun, engine.models) == ([f"dev-{k}" for k in range(5)], 0)

    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-6, atol=1e-6)
    assert found[0][1:] == found[1][1:]


@pytest.mark.parametrize("case", ["two sums", "also needed", "noise over the air", "not marked"])
def test_where_models_are_needed_they_come_back(case):
    """Sums that need more than the mean, or models that something else needs, are those of the models, bit for bit."""

    def halves(_w, weights):
        update = 0
        for _ in weights:
            update = update + (yield) / 2
        return update

    found = []
    for engine in (InTwoPlaces(), SerialEngine()):
        graph = Graph(engine)
        w, results = train(graph)
        parts = [result.params for result in results]
        norm = graph.call(torch.linalg.vector_norm, parts[0], size=1) if case == "also needed" else None
        noisy = [1.0, NoisyMean([1.0] * 5, 10.0, Streams(1), 1)] if case == "noise over the air" else []
        function = {"noise over the air": average, "not marked": halves}.get(case, mean_update)
        sums = [graph.accumulate(function, parts, w, WEIGHTS, *noisy) for _ in range(1 + (case == "two sums"))]
        found.append([graph.read(value) for value in [*sums, *([] if norm is None else [norm])]])
        assert getattr(engine, "models", 5) == 5

    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

"""The mean square of the samples' losses: a job that asks for it gets it from every engine, and no other job pays."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan
from tests.learning.engines.test_engines import OFFSETS, PLANS, classifier, cnn, dropout, jobs, mlp, regression, softmax
from tests.learning.results import results_of
from tests.quick import crossed

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

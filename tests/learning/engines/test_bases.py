"""Jobs with weights under their adapters that are not the model's own: as if the model had been built with them."""

from __future__ import annotations

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
from fednet_emu.learning.graph.engine import Engine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.grouping import shape_of
from fednet_emu.learning.graph.jobs import ResolvedJob, SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Adam
from fednet_emu.learning.graph.private_sgd import PrivateSgd
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.evaluate import score_samples
from fednet_emu.learning.models.flat import FlatModel

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
    return FlatModel(fe.Lora(module, 2, targets=["*"], train=["*.bias"]), "cross-entropy", (6,))


def data() -> TrainData:
    """A few samples of three classes."""
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
    """The weights under adapters, as one vector."""
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
    adapted = fe.Lora(module, 1, targets=["*"], train=["2.weight"])
    assert FlatModel(adapted, "cross-entropy", (3,)).base_size == 0

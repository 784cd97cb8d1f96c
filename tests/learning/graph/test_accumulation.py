"""Accumulations: the sums of lists, bit for bit, without the lists."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fednet_emu.errors import Diverged
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.accumulation import Accumulation, accumulated
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.engine import Engine, Results, TrainResult
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import ResolvedJob, SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.graph.memory import Memory

MODEL = FlatModel(nn.Linear(1, 2), "cross-entropy", (1,))
DATA = TrainData(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64))


class Adding(Engine):
    """A stand-in for training: dev-i adds i + 0.1 to the parameters. It counts the results that are alive at once."""

    def __init__(self, order: Callable[[list[int]], Sequence[int]] = list, diverges: str = "") -> None:
        self.order, self.diverges = order, diverges
        self.trained: list[str] = []
        self.most = 0
        self._seen: list[weakref.ref[Tensor]] = []

    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        for place in self.order(list(range(len(jobs)))):
            label = jobs[place].job.label
            if label == self.diverges:
                raise Diverged(label)
            self.trained.append(label)
            yield jobs[place], TrainResult(self._noted(jobs[place].params + (float(label[4:]) + 0.1)), 0.5)

    def _noted(self, params: Tensor) -> Tensor:
        self._seen = [weakref.ref(params), *(seen for seen in self._seen if seen() is not None)]
        self.most = max(self.most, len(self._seen))
        return params


def job(w: Deferred, i: int) -> TrainJob:
    return TrainJob(MODEL, DATA, slice(0, 3), w, SgdPlan(lr=0.1, steps=1), Streams(0), (i,), f"dev-{i}")


def trained(graph: Graph, w: Deferred, n: int) -> list[Deferred]:
    """The parameters of n devices that train from w."""
    return [graph.train(job(w, i)).params for i in range(n)]


def summed(w: Tensor, weights: Sequence[float]) -> Accumulation:
    """The weighted sum of the parts, on top of w."""
    total = w.clone()
    for weight in weights:
        total.add_((yield), alpha=weight)
    return total


def start(graph: Graph) -> Deferred:
    return graph.constant(torch.tensor([0.1, -2.0, 3e-3, 4e5]))


@given(st.permutations(range(7)), st.lists(st.floats(-10, 10, width=32), min_size=7, max_size=7), st.booleans())
def test_sums_are_those_of_lists_whatever_comes_first(order: list[int], weights: list[float], early: bool) -> None:
    """In whatever order jobs end, before the sum is made or after: the parts are added in their own order, exactly."""
    engine = Adding(lambda places: [place for place in order if place < len(places)])
    graph = Graph(engine)
    w = start(graph)
    parts = trained(graph, w, 7)
    if early:
        graph.read(parts[3])
    total = graph.accumulate(summed, parts, w, weights)

    expected = w.value.clone()
    for i, weight in enumerate(weights):
        expected.add_(w.value + (i + 0.1), alpha=weight)
    assert torch.equal(graph.read(total), expected)


def test_parts_are_released_though_lists_hold_them() -> None:
    """Of 50 trained models one is in memory at a time, with all 50 Deferreds still in a list."""
    engine = Adding()
    graph = Graph(engine)
    w = start(graph)
    parts = trained(graph, w, 50)
    graph.read(graph.accumulate(summed, parts, w, [1.0] * 50))

    assert len(engine.trained) == 50
    assert engine.most == 1
    assert not any(part.done for part in parts)


def test_parts_through_a_cheap_function_are_released_too() -> None:
    """A slice of each model is made as soon as the model is there, and added before the next model is trained."""
    engine = Adding()
    graph = Graph(engine)
    w = start(graph)
    parts = [graph.call(torch.clone, part) for part in trained(graph, w, 20)]
    graph.read(graph.accumulate(summed, parts, w, [1.0] * 20))

    assert engine.most <= 2


def test_what_was_made_before_still_gets_the_parts() -> None:
    """A job and a call that waited for a part when it was given away are computed from it."""
    graph = Graph(Adding())
    w = start(graph)
    parts = trained(graph, w, 3)
    further, twice = graph.train(job(parts[1], 5)).params, graph.call(torch.mul, parts[2], 2)
    total = graph.accumulate(summed, parts, w, [1.0] * 3)
    graph.read(total)

    assert torch.equal(graph.read(further), w.value + 1.1 + 5.1)
    assert torch.equal(graph.read(twice), (w.value + 2.1) * 2)


@pytest.mark.parametrize("read_first", [False, True])
def test_another_use_of_a_part_is_an_error_at_once(read_first: bool) -> None:
    """It does not depend on what has been read: neither on evaluations nor on the memory limit."""
    graph = Graph(Adding())
    w = start(graph)
    parts = trained(graph, w, 2)
    total = graph.accumulate(summed, parts, w, [1.0, 1.0])
    if read_first:
        graph.read(total)

    for use in (lambda: graph.read(parts[0]), lambda: graph.call(torch.neg, parts[1]), lambda: job_of(graph, parts[0])):
        with pytest.raises(RuntimeError, match="was given to an accumulation"):
            use()


def job_of(graph: Graph, w: Deferred) -> Any:
    return graph.train(job(w, 1))


def test_several_sums_share_their_parts() -> None:
    """Each part is released after the last of the sums that it was given to has added it."""
    engine = Adding()
    graph = Graph(engine)
    w = start(graph)
    parts = trained(graph, w, 20)
    ones, twos = (graph.accumulate(summed, parts, w, [weight] * 20) for weight in (1.0, 2.0))
    graph.read(ones)

    assert engine.most <= 2
    assert torch.allclose(graph.read(twos), 2 * graph.read(ones) - w.value)


def test_sums_of_sums() -> None:
    """Mixtures within five clusters, each a sum, are themselves parts of a sum."""
    engine = Adding()
    graph = Graph(engine)
    w = start(graph)
    clusters = [graph.accumulate(summed, trained(graph, w, 4), w, [0.25] * 4) for _ in range(5)]
    total = graph.read(graph.accumulate(summed, clusters, w, [0.2] * 5))

    assert torch.allclose(total, 3 * w.value + 1.6)
    assert engine.most <= 2


def test_deep_chains_of_rounds_do_not_recurse() -> None:
    """Ten thousand rounds without a read are computed at the end, and another ten thousand dropped."""
    for read in (True, False):
        graph = Graph(Adding(), pending_limit_byte=2**40)
        w = start(graph)
        for _ in range(10_000):
            w = graph.accumulate(summed, trained(graph, w, 1), w, [-1.0])
        if read:
            assert torch.isfinite(graph.read(w)).all()


def test_after_an_error_only_what_is_missing_is_trained() -> None:
    """Sums keep what they have added when a job diverges."""
    engine = Adding(diverges="dev-3")
    graph = Graph(engine)
    w = start(graph)
    total = graph.accumulate(summed, trained(graph, w, 5), w, [1.0] * 5)
    with pytest.raises(Diverged, match="dev-3"):
        graph.read(total)
    engine.diverges = ""

    assert torch.equal(
        graph.read(total), accumulated(summed(w.value, [1.0] * 5), [w.value + i + 0.1 for i in range(5)])
    )
    assert engine.trained == [f"dev-{i}" for i in range(5)]


def two_exchanges(graph: Graph) -> tuple[Deferred, Deferred, list[Deferred]]:
    """A sum whose second part takes two trainings; the loss of its first part; and both parts, which somebody holds."""
    w = start(graph)
    first = graph.train(job(w, 1))
    parts = [first.params, graph.train(job(graph.train(job(w, 7)).params, 2)).params]
    return graph.accumulate(summed, parts, w, [1.0, 1.0]), first.loss, parts


def test_a_snapshot_waits_for_what_has_begun() -> None:
    """A sum whose first part is added and released is nothing whole; once it ends, a second graph trains nothing."""
    engine, again, memory = Adding(), Adding(), Memory()
    first = Graph(engine, program=memory.program())
    total, loss, held = two_exchanges(first)
    assert first.at_rest()
    first.read(loss)
    assert engine.trained == ["dev-1", "dev-7"]
    assert not first.at_rest()
    first.read(total)
    assert first.at_rest()
    memory.keep(first)
    second = Graph(again, program=memory.again().program())

    restored, _, held_again = two_exchanges(second)
    second.flush()

    assert torch.equal(second.read(restored), first.read(total))
    assert again.trained == []
    assert len(held) == len(held_again) == 2


def short(total: Tensor) -> Accumulation:
    return total + (yield)


def failing(total: Tensor) -> Accumulation:
    total = total + (yield)
    yield
    raise ArithmeticError("no second part")


@pytest.mark.parametrize(
    ("function", "error", "match"),
    [
        (short, ValueError, "over after 1 parts"),
        (lambda w: summed(w, [1.0] * 4), ValueError, "requests more parts, got all 3 parts"),
        (torch.neg, TypeError, "not a generator"),
        (failing, ArithmeticError, "no second part"),
    ],
)
def test_wrong_functions_are_told(function: Callable[..., Any], error: type[Exception], match: str) -> None:
    """A function that asks for fewer parts, or for more, or for none, or that fails; every read says so."""
    graph = Graph(Adding())
    w = start(graph)
    total = graph.accumulate(function, trained(graph, w, 3), w)

    with pytest.raises(error, match=match):
        graph.read(total)
    with pytest.raises((error, ValueError)):
        graph.read(total)


def test_timing_only_sums_have_sizes_and_the_same_numbers() -> None:
    """A sum takes one number and is as large as its first argument; without one, as a part."""
    numbers = []
    for engine in (Adding(), None):
        graph = Graph(engine)
        w, lone = start(graph), graph.constant(np.zeros(3).sum())
        parts = trained(graph, w, 2)
        sums = [graph.accumulate(summed, parts, w, [1, 1]), graph.accumulate(short, parts[:1])]
        sums.append(graph.accumulate(summed, parts, lone, [1, 1], size=9))
        numbers.append([(total.number, total.size) for total in sums])

    assert numbers[0] == numbers[1] == [(7, 4), (8, 4), (9, 9)]
    with pytest.raises(ValueError, match="size is unknown"):
        graph.accumulate(short, [])

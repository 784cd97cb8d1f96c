"""Arithmetic on deferred values: the same numbers as on tensors, in the same order, with and without training."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fednet_emu.errors import AlgorithmError
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.testing import run_small, small_federation
from tests.federation.test_slips import Sound

A, B = torch.tensor([1.0, -2.0, 4.0]), torch.tensor([0.5, 3.0, -1.0])

EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a / b,
    "scaled": lambda a, b: 0.5 * a + b * 3,
    "shifted": lambda a, b: 1 - a + 2,
    "negative": lambda a, b: -a,
    "mean": lambda a, b: sum([a, b, a]) / 3,
    "numpy": lambda a, b: np.float64(0.25) * a - np.float64(1) + b,
    "half": lambda a, b: a / 2,
}


def test_a_part_of_a_value_is_a_value() -> None:
    """An entry by its index, an attribute by its name; its size is that which was given."""
    graph = Graph(None, 0)
    graph.engine = object()  # type: ignore[assignment]  # there is nothing to train
    pair = graph.call(torch.sort, graph.constant(A), size=6)
    least, order = pair.part(0, 3), pair.part("indices", 3)

    assert (least.size, order.size) == (3, 3)
    assert graph.read(least).tolist() == [-2.0, 1.0, 4.0]
    assert graph.read(order).tolist() == [1, 0, 2]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_are_those_of_tensors(name: str) -> None:
    """An expression of values is computed when read, to the same last bit; its size is known before."""
    graph = Graph(None, 0)
    graph.engine = object()  # type: ignore[assignment]  # there is nothing to train
    a, b = graph.constant(A), graph.constant(B)

    made = EXPRESSIONS[name](a, b)

    assert made.size == 3
    assert torch.equal(graph.read(made), torch.as_tensor(EXPRESSIONS[name](A, B), dtype=torch.float32))


def test_a_number_goes_with_any_size() -> None:
    """A loss times a model is a model; two models of different sizes are refused at once."""
    graph = Graph(None, 0)
    graph.engine = object()  # type: ignore[assignment]
    model, loss = graph.constant(A), graph.constant(2.0)

    assert (loss * model).size == (model * loss).size == 3
    assert graph.read(model - loss).tolist() == [-1.0, -4.0, 2.0]
    with pytest.raises(AlgorithmError, match="different sizes do not go together, got 3 and 2 numbers"):
        model + graph.constant(torch.zeros(2))


def test_each_operator_is_one_value_in_order() -> None:
    """Numbers of values follow the text, also in a timing-only graph; a sum of k values makes k - 1."""
    timing_only = Graph(None)
    a, b = timing_only.constant(A), timing_only.constant(B)

    made = sum([a, b, a]) * 0.5

    assert (a.number, b.number, made.number, made.size) == (1, 2, 5, 3)
    assert not made.done


def test_what_is_no_value_and_no_number_is_refused() -> None:
    """Tensors and lists go through `fed.defer`."""
    for other in (A, [1.0], np.ones(3), None):
        with pytest.raises(AlgorithmError, match=r"write fed\.defer"):
            operator.mul(Graph(None).constant(A), other)


def test_engines_agree_and_timing_only_takes_the_same_time() -> None:
    """Averaging by arithmetic is FedAvg with equal shares: the same losses with either engine, and the same events."""
    runs = {name: small_federation(f"training.engine={name}") for name in ("serial", "batched")}
    for fed in runs.values():
        fed.run(Sound())
    timed = small_federation(timing_only=True)
    timed.run(Sound())
    losses = [list(fed.ledger.frame("evaluations")["loss"]) for fed in runs.values()]

    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert losses[0] == pytest.approx(list(run_small().ledger.frame("evaluations")["loss"]), rel=1e-6)
    assert len({fed.ledger.event_digest() for fed in (*runs.values(), timed)}) == 1

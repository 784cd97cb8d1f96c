"""Claims about parts of deferred values: getters, which are known with the whole, and what a training job comes to."""

import weakref
from operator import attrgetter, itemgetter, methodcaller

import pytest
import torch

from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.engine import Engine, TrainResult
from fednet_emu.learning.graph.graph import Graph
from tests.learning.graph.test_graph import job


def test_a_part_of_a_value_is_known_with_the_whole():
    """Reading one getter of a value settles the others; whoever waits for a part goes on."""
    graph = Graph(SerialEngine())
    whole = graph.call(lambda: (1.0, {"b": 2.0}), size=2)
    first, second = graph.call(itemgetter(0), whole), graph.call(itemgetter(1), whole)
    inner = graph.call(itemgetter("b"), second)
    later = graph.call(lambda x: x + 1, inner)

    assert graph.read(first) == 1.0
    assert (second.done, inner.value, later.done) == (True, 2.0, False)
    assert graph.read(later) == 3.0


def test_a_getter_of_a_list_gets_an_item_of_the_list():
    """Whether or not the item is known when the getter is asked for."""
    graph = Graph(SerialEngine())
    pending = graph.call(lambda: (1.0, 2.0), size=2)
    before = graph.call(itemgetter(0), [pending], size=2)
    known = graph.read(pending)
    after = graph.call(itemgetter(0), [pending], size=2)

    assert graph.read(before) == graph.read(after) == known == (1.0, 2.0)


def test_parts_of_parts_may_be_many():
    """A chain of ten thousand getters settles without a stack that deep."""
    graph = Graph(SerialEngine())
    value = ()
    for _ in range(10_000):
        value = (value,)
    node = graph.call(lambda: value, size=1)
    for _ in range(10_000):
        node = graph.call(itemgetter(0), node)

    assert graph.read(node) == ()


def test_a_part_that_does_not_exist_fails_when_it_is_read():
    """The error comes out at the part, with a note that says where; the other parts and the whole are as they were."""
    graph = Graph(SerialEngine())
    whole = graph.call(lambda: (1.0,), size=1)
    wrong, right = graph.call(itemgetter(1), whole), graph.call(itemgetter(0), whole)

    assert graph.read(right) == 1.0
    for _ in range(2):
        with pytest.raises(IndexError) as caught:
            graph.read(wrong)
        assert caught.value.__notes__[0].endswith("(deferred 2)")


class Doubling(Engine):
    """Trained parameters are twice those before, the loss is 0.25; knows whether the latest parameters still exist."""

    def run(self, jobs):
        for one in jobs:
            made = 2 * one.params
            self.latest = weakref.ref(made)
            yield one, TrainResult(made, 0.25)


def test_a_getter_of_a_model_or_a_loss_gets_it_from_that():
    """Not from all that the job has come to, of which the two are parts."""
    graph = Graph(Doubling())
    trained = graph.train(job(graph.constant(torch.ones(4))))
    shape, kind = graph.call(attrgetter("shape"), trained.params), graph.call(attrgetter("__class__"), trained.loss)
    total = graph.call(methodcaller("sum"), trained.params, size=1)

    assert (graph.read(trained.loss), kind.value) == (0.25, float)
    assert (shape.value, total.value) == ((4,), 8.0)


def test_a_loss_keeps_no_model():
    """It is a number, whether it is read or not; a model that nobody asks for is given back at once."""
    engine = Doubling()
    graph = Graph(engine)
    loss = graph.train(job(graph.constant(torch.ones(4)))).loss

    assert graph.read(loss) == 0.25
    assert engine.latest() is None

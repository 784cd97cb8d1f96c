import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.engine import Engine, TrainResult
from fednet_emu.learning.graph.graph import Graph, Trained
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel
from tests.quick import examples

MODEL = FlatModel(nn.Linear(1, 2), "cross-entropy", (1,))
DATA = TrainData(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64))
PLAN = SgdPlan(lr=0.1, steps=1)


class HalvingEngine(Engine):
    """A stand-in that is exact and counts: trained parameters are 0.5 w + 1 and the loss is the sum of w."""

    def __init__(self):
        self.wavefronts = []

    def run(self, jobs):
        self.wavefronts.append([job.job.label for job in jobs])
        for job in jobs:
            yield job, halved(job.params)


class FailingEngine(Engine):
    """Diverges always."""

    def run(self, jobs):
        raise ScenarioError(f"{jobs[0].job.label}: training diverges")


def halved(params):
    return TrainResult(0.5 * params + 1, float(params.sum()))


def job(params, label="dev", **terms):
    """A job whose data and plan do not matter."""
    return TrainJob(MODEL, DATA, slice(0, 3), params, PLAN, Streams(0), (1,), label, **terms)


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def add(a, b):
    return a + b


def weighted(parts):
    return sum(weight * part for weight, part in parts)


OPERATIONS = st.lists(st.tuples(st.sampled_from(["add", "train", "mix"]), st.integers(0, 99), st.integers(0, 99)))


def eager(operations):
    """The values of a random program, computed at once."""
    values = [vector(1, 2, 3, 4), vector(-5, 0, 1, 7)]
    for kind, i, j in operations:
        a, b = values[i % len(values)], values[j % len(values)]
        if kind == "train":
            values.append(halved(a).params + halved(a).loss)
        else:
            values.append(a + b if kind == "add" else 0.25 * a + 0.75 * b)
    return values


def deferred(graph, operations):
    """The nodes of the same random program."""
    nodes = [graph.constant(vector(1, 2, 3, 4)), graph.constant(vector(-5, 0, 1, 7))]
    for kind, i, j in operations:
        a, b = nodes[i % len(nodes)], nodes[j % len(nodes)]
        if kind == "train":
            trained = graph.train(job(a))
            nodes.append(graph.call(add, trained.params, trained.loss))
        else:
            nodes.append(graph.call(add, a, b) if kind == "add" else graph.call(weighted, [(0.25, a), (0.75, b)]))
    return nodes


@examples(60)
@given(operations=OPERATIONS, data=st.data(), limit=st.sampled_from([0, 5000, 2**30]))
def test_values_are_those_of_eager_evaluation(operations, data, limit):
    """Whatever is deferred, in whatever order it is read and however often the graph flushes, values are the same."""
    expected = eager(operations)
    graph = Graph(HalvingEngine(), pending_limit_byte=limit)
    nodes = deferred(graph, operations)

    for place in data.draw(st.permutations(range(len(nodes)))):
        assert torch.equal(graph.read(nodes[place]), expected[place])


@examples(30)
@given(operations=OPERATIONS, kept=st.sets(st.integers(0, 99)))
def test_only_reachable_jobs_run(operations, kept):
    """Exactly the training jobs that some kept value is computed from are run, each once."""
    needed = [place in kept for place in range(len(operations) + 2)]
    for place in reversed(range(len(operations))):
        kind, i, j = operations[place]
        if needed[place + 2]:
            needed[i % (place + 2)] = True
            needed[j % (place + 2)] |= kind != "train"
    engine = HalvingEngine()
    graph = Graph(engine)
    nodes = [node for place, node in enumerate(deferred(graph, operations)) if place in kept]

    graph.flush()

    assert all(node.done for node in nodes)
    assert sum(map(len, engine.wavefronts)) == sum(
        need for need, (kind, _, _) in zip(needed[2:], operations, strict=True) if kind == "train"
    )


def test_a_synchronous_round_is_one_wavefront():
    """Ten clients that train from one model run together, once."""
    engine = HalvingEngine()
    graph = Graph(engine)
    w = graph.constant(vector(1, 2, 3, 4))
    updates = [graph.train(job(w, f"dev-{i}")).params for i in range(10)]
    mean = graph.call(lambda parts: sum(parts) / len(parts), updates)

    graph.read(mean)

    assert engine.wavefronts == [[f"dev-{i}" for i in range(10)]]
    assert (graph.statistics.wavefronts, graph.statistics.jobs, graph.statistics.mean_wavefront) == (1, 10, 10.0)


def test_asynchronous_workers_share_wavefronts():
    """Twenty workers restart from the newest model at random times; reading every 50 arrivals batches >= 5 jobs."""
    rng = np.random.default_rng(0)
    graph = Graph(HalvingEngine())
    w = graph.constant(vector(1, 2, 3, 4))
    finish_s = rng.exponential(size=20)
    update = [graph.train(job(w)).params for _ in range(20)]
    for step in range(1, 301):
        worker = int(finish_s.argmin())
        w = graph.call(lambda w, new: 0.9 * w + 0.1 * new, w, update[worker])
        update[worker] = graph.train(job(w)).params
        finish_s[worker] += rng.exponential()
        if step % 50 == 0:
            graph.read(w)

    assert graph.statistics.mean_wavefront >= 5


def test_training_waits_until_nothing_else_is_ready():
    """A job that becomes ready through a cheap node joins the wavefront of the jobs that were ready before."""
    engine = HalvingEngine()
    graph = Graph(engine)
    w = graph.constant(vector(1, 2, 3, 4))
    first = graph.train(job(w, "first"))
    second = graph.train(job(graph.call(torch.neg, w), "second"))

    graph.read(first.params)

    assert engine.wavefronts == [["first", "second"]]
    assert torch.equal(graph.read(second.params), vector(0.5, 0, -0.5, -1))


def test_reading_stops_as_soon_as_the_value_is_known():
    """Reading the first of two rounds does not train the second."""
    engine = HalvingEngine()
    graph = Graph(engine)
    first = graph.train(job(graph.constant(vector(1, 2, 3, 4)), "first"))
    second = graph.train(job(first.params, "second"))

    assert graph.read(first.loss) == 10.0
    assert engine.wavefronts == [["first"]]
    assert not second.params.done


def test_cheap_nodes_run_in_order_of_creation():
    """Calls that are ready together run in order of their numbers."""
    graph = Graph(HalvingEngine())
    order = []
    nodes = [graph.call(order.append, i, size=1) for i in range(5)]

    graph.read(nodes[-1])

    assert order == [0, 1, 2, 3, 4]


def test_terms_of_a_job_are_waited_for():
    """A job runs after the linear term, anchor and scale that it refers to are known."""
    seen = []

    class Noting(HalvingEngine):
        def run(self, jobs):
            seen.extend((job.scale, job.linear.tolist(), job.anchor.tolist()) for job in jobs)
            return super().run(jobs)

    graph = Graph(Noting())
    w = graph.constant(vector(1, 2, 3, 4))
    terms = {"linear": graph.call(torch.neg, w), "anchor": graph.call(torch.abs, w)}
    trained = graph.train(job(w, scale=graph.call(float, 3, size=1), prox=0.5, **terms))

    graph.read(trained.params)

    assert seen == [(3.0, [-1, -2, -3, -4], [1, 2, 3, 4])]


def test_deep_chains_do_not_recurse():
    """A chain of 20,000 pending nodes is computed, and another one dropped, without recursion."""
    graph = Graph(HalvingEngine())
    node = other = graph.constant(0)
    for _ in range(20_000):
        node = graph.call(add, node, 1)
        other = graph.call(add, other, 1)

    assert graph.read(node) == 20_000
    del other
    graph.flush()


def test_computed_nodes_let_go_of_their_inputs():
    """An intermediate value is freed once nothing pending needs it."""
    graph = Graph(HalvingEngine())
    middle = graph.call(torch.neg, graph.constant(vector(1)))
    end = graph.call(torch.neg, middle)
    memory = weakref.ref(middle)

    del middle
    alive_before = memory() is not None
    graph.read(end)

    assert alive_before
    assert memory() is None


def test_pending_work_is_bounded():
    """When pending results would pass the limit everything runs, without a read."""
    engine = HalvingEngine()
    graph = Graph(engine, pending_limit_byte=100_000)
    w = graph.constant(vector(1, 2, 3, 4))
    kept = [graph.train(job(w)) for _ in range(200)]

    assert sum(map(len, engine.wavefronts)) > 100
    assert kept[0].params.done


def test_numbers_and_sizes_do_not_depend_on_training():
    """A timing-only graph gives the same numbers and sizes as one that trains."""
    operations = [("train", 0, 0), ("add", 2, 1), ("mix", 3, 3), ("train", 4, 0)]
    with_training, timing_only = (deferred(graph, operations) for graph in (Graph(HalvingEngine()), Graph(None)))

    assert [(n.number, n.size) for n in timing_only] == [(n.number, n.size) for n in with_training]
    assert timing_only[2].size == 4


def test_call_may_state_another_size():
    """A result need not be as large as its input, and a call without Deferreds has to say how large it is."""
    graph = Graph(None)
    w = graph.constant(vector(1, 2, 3, 4))

    assert graph.call(torch.sum, w, size=1).size == 1
    with pytest.raises(ValueError, match="give size"):
        graph.call(torch.sum, vector(1))


def test_timing_only_runs_compute_and_keep_nothing():
    """Without an engine a call is not made, its inputs are not kept, and reading it says what to do."""
    graph = Graph(None)
    source = graph.constant(vector(1, 2))
    memory = weakref.ref(source)
    result = graph.call(pytest.fail, source)
    trained = graph.train(job(source))

    assert graph.read(source).tolist() == [1, 2]
    del source
    assert memory() is None
    for node in (result, *trained):
        with pytest.raises(ScenarioError, match=r"timing-only run: .* nominal value"):
            graph.read(node)


def test_error_in_a_call_says_where_and_leaves_the_graph_whole():
    """The error comes out of every read until the failing node is dropped; then the others can be read."""
    graph = Graph(HalvingEngine())
    w = graph.constant(vector(1, 2))
    bad = graph.call(torch.reshape, w, (3,))
    good = graph.call(torch.neg, w)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shape") as caught:
            graph.read(good)
        assert "(deferred 2)" in caught.value.__notes__[-1]
    del bad, caught
    gc.collect()

    assert graph.read(good).tolist() == [-1, -2]


def test_error_in_training_leaves_the_jobs_pending():
    """A diverging job raises at each read, and what does not depend on training is not disturbed."""
    graph = Graph(FailingEngine())
    w = graph.constant(vector(1, 2, 3, 4))
    trained = graph.train(job(w, "dev-3, round 12"))
    for _ in range(2):
        with pytest.raises(ScenarioError, match="dev-3, round 12: training diverges"):
            graph.read(trained.params)

    assert graph.read(graph.call(torch.neg, w)).tolist() == [-1, -2, -3, -4]
    assert not trained.loss.done


def test_value_is_known_after_reading_only():
    """The value of a pending Deferred is an error, not None."""
    graph = Graph(HalvingEngine())
    node = graph.call(torch.neg, graph.constant(vector(1)))
    with pytest.raises(RuntimeError, match=r"deferred 2: value is not computed yet; use Graph\.read"):
        _ = node.value

    graph.read(node)

    assert node.value.tolist() == [-1]


def test_modifying_a_value_in_place_is_caught():
    """Weights that change under an asynchronous peer are an error at its next read."""
    graph = Graph(HalvingEngine())
    w = graph.constant(vector(1, 2))
    update = graph.call(torch.Tensor.add_, w, 1)

    with pytest.raises(RuntimeError, match="deferred 1: its tensor was modified in place"):
        graph.read(graph.call(add, update, w))


def test_nested_arguments_keep_their_types():
    """Tuples, named tuples and lists arrive as such, with values for Deferreds; other arguments pass through."""
    graph = Graph(HalvingEngine())
    a, b = graph.constant(1), graph.constant(2)
    found = graph.call(lambda *args: args, (a, [b, "x"]), Trained(a, b), {"kept": a}, size=1)

    pair, named, mapping = graph.read(found)

    assert (pair, named) == ((1, [2, "x"]), Trained(1, 2))
    assert isinstance(named, Trained)
    assert mapping == {"kept": a}

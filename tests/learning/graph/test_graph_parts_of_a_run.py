"""Claims about what a graph tells of itself while it computes: rest, parts of the host's time, wavefronts."""

from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.host_time import REST
from tests.learning.graph.test_graph import HalvingEngine, job, vector


def test_a_graph_that_computes_is_not_at_rest():
    """Neither while all is computed nor while one value is read; before and after it is."""
    graph, seen = Graph(HalvingEngine()), []
    looks = [graph.call(lambda x: seen.append(graph.at_rest()) or x, graph.constant(1.0)) for _ in range(2)]
    assert graph.at_rest()

    graph.read(looks[0])
    graph.flush()

    assert seen == [False, False]
    assert graph.at_rest()


def test_the_host_s_time_is_that_of_training_or_functions_or_the_rest():
    """Also for functions that become ready in the middle of a wavefront."""
    graph = Graph(HalvingEngine())
    first = graph.train(job(graph.constant(vector(1, 2, 3, 4))))

    graph.read(graph.call(lambda w: w + 1, first.params))

    assert {"training"} < set(graph.host.parts()) <= {REST, "training", "deferred functions"}

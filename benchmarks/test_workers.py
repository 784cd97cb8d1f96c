"""Two worker processes against one process on W1, W2 and W3, in turns: needs two free cores.

`python -m pytest -s benchmarks/test_workers.py` prints the host time of a round, the fastest of many.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fednet_emu.federation import mean_update
from fednet_emu.host import rare_garbage_collection
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.rule import RuleEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.workers.workers_engine import WorkersEngine
from fednet_emu.learning.graph.engine import Engine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.feedforward import McMahanCnn, Mlp, Softmax
from fednet_emu.learning.models.flat import FlatModel

SHAPE, SAMPLES = (1, 28, 28), 600
WORKLOADS = {
    "W1": (Softmax(), SgdPlan(lr=0.1, batch_size=32, steps=5), 100, 40, 1.4),
    "W2": (Mlp(), SgdPlan(lr=0.1, batch_size=50, epochs=1), 10, 30, 1.7),
    "W3": (McMahanCnn(), SgdPlan(lr=0.1, batch_size=20, steps=5), 10, 5, 1.7),
}


def rounds_of(engine: Engine, model: FlatModel, data: TrainData, clients: int, plan: SgdPlan) -> Callable[[], float]:
    """What plays one round of averaging, from where the last one ended, and says how many seconds it took."""
    graph, streams, turn = Graph(engine), Streams(0), iter(range(10**9))
    w = graph.constant(model.initial())

    def play() -> float:
        nonlocal w
        start_s, t = time.perf_counter(), next(turn)
        parts = [
            graph.train(
                TrainJob(model, data, slice(k * SAMPLES, (k + 1) * SAMPLES), w, plan, streams, ("b", k, t), f"dev-{k}")
            ).params
            for k in range(clients)
        ]
        w = graph.accumulate(mean_update, parts, w, [1] * clients) + w
        graph.read(w)
        return time.perf_counter() - start_s

    return play


@pytest.mark.parametrize("workload", WORKLOADS)
def test_two_workers_against_one(workload: str) -> None:
    """The same models to the last bit; W1 takes at most 1 / 1.4 of the time of one process, W2 and W3 1 / 1.7."""
    kind, plan, clients, rounds, wanted = WORKLOADS[workload]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((clients * SAMPLES, *SHAPE), dtype=np.float32), rng.integers(0, 10, clients * SAMPLES)
    data = TrainData(torch.from_numpy(x), torch.from_numpy(y))
    model = FlatModel(seeded_module(lambda: kind.build(SHAPE, 10), 0), "cross-entropy", SHAPE)
    torch.set_num_threads(1)
    engines: dict[str, Engine] = {
        "one process": SpreadEngine([RuleEngine()]),
        "two threads": SpreadEngine([RuleEngine(), RuleEngine()]),
        "two workers": WorkersEngine("by-rule", SpreadEngine([RuleEngine()]), 2, at_once=True),
    }
    with rare_garbage_collection():
        plays = {name: rounds_of(engine, model, data, clients, plan) for name, engine in engines.items()}
        taken: dict[str, list[float]] = {name: [] for name in plays}
        for _ in range(rounds):
            for name, play in plays.items():
                taken[name].append(play() * 1e3)
    fastest = {name: min(its[rounds // 5 :]) for name, its in taken.items()}
    for engine in engines.values():
        engine.close()
    print(f"\n{workload}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in fastest.items()))
    print(f"two workers reach {fastest['one process'] / fastest['two workers']:.2f} times one process")

    assert fastest["one process"] / fastest["two workers"] > wanted

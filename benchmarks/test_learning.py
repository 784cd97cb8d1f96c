"""Speed of the learning plane against the best loops written by hand, on one core, in turns.

Processor time is compared, not wall-clock time, and the lowest of many turns: other work on the machine then changes
the ratio little. `python -m pytest -s benchmarks/test_learning.py` prints the figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from reference_loops import draw, mlp_round, serial_round, softmax_round
from torch import Tensor

from fednet_emu.host import rare_garbage_collection
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.graph.engine import Engine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.base import Model, seeded_module
from fednet_emu.learning.models.feedforward import McMahanCnn, Mlp, Softmax
from fednet_emu.learning.models.flat import FlatModel

SHAPE, SAMPLES, LR = (1, 28, 28), 600, 0.1


@pytest.fixture(scope="module")
def data() -> TrainData:
    """100 clients x 600 samples of MNIST's shape."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60_000, *SHAPE), dtype=np.float32)
    return TrainData(torch.from_numpy(x), torch.from_numpy(rng.integers(0, 10, 60_000)))


@pytest.fixture(autouse=True)
def _as_in_a_run_on_one_core() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with rare_garbage_collection():  # as in a run
        yield
    torch.set_num_threads(before)


def flat(model: Model) -> FlatModel:
    """A model for MNIST."""
    return FlatModel(seeded_module(lambda: model.build(SHAPE, 10), 0), "cross-entropy", SHAPE)


def rounds_of(engine: Engine, model: FlatModel, data: TrainData, n_clients: int, plan: SgdPlan) -> Callable[[], Tensor]:
    """Plays one round of averaging through the deferred graph and an engine, from where the last one ended."""
    graph, streams, turn = Graph(engine), Streams(0), iter(range(10**9))
    w = graph.constant(model.initial())

    def play() -> Tensor:
        nonlocal w
        t = next(turn)
        jobs = [
            TrainJob(model, data, slice(k * SAMPLES, (k + 1) * SAMPLES), w, plan, streams, ("batch", k, t), f"dev-{k}")
            for k in range(n_clients)
        ]
        w = graph.call(_mean, [graph.train(job).params for job in jobs])
        value: Tensor = graph.read(w)
        return value

    return play


def _mean(models: list[Tensor]) -> Tensor:
    total = torch.zeros_like(models[0])
    for model in models:
        total += model
    return total / len(models)


def in_turns(plays: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """The lowest processor time of each, in ms; they take turns, so that what slows one down slows all."""
    taken: dict[str, list[float]] = {name: [] for name in plays}
    for turn in range(turns + 2):
        for name, play in plays.items():
            started = time.process_time()
            play()
            if turn >= 2:
                taken[name].append((time.process_time() - started) * 1e3)
    return {name: min(times) for name, times in taken.items()}


def report(workload: str, measured: Mapping[str, float]) -> None:
    """Print what was measured, with the ratio to the loop by hand."""
    ratios = ", ".join(f"{name} {ms:.1f} ms ({ms / measured['by hand']:.2f}x)" for name, ms in measured.items())
    print(f"\n{workload}: {ratios}")


def test_softmax_regression_of_a_hundred_clients(data: TrainData) -> None:
    """W1, 100 clients x 5 steps x 32 samples: with graph, records of jobs and keyed draws at most 1.4x the loop."""
    plan, model = SgdPlan(lr=LR, batch_size=32, steps=5), flat(Softmax())
    w, rng, x = model.initial(), np.random.default_rng(0), data.x.view(-1, 784)
    plays: dict[str, Callable[[], Any]] = {
        "by hand": lambda: softmax_round(w, x, data.y, draw(rng, np.arange(100), 5, 32), LR),
        "batched": rounds_of(BatchedEngine(), model, data, 100, plan),
        "serial": rounds_of(SerialEngine(), model, data, 100, plan),
    }
    measured = in_turns(plays, 15)
    report("W1, processor time per round", measured)
    assert measured["batched"] < 1.4 * measured["by hand"]


def test_perceptrons_of_ten_clients(data: TrainData) -> None:
    """W2, 10 clients x 1 epoch of 600 in batches of 50: at most 1.25x the loop."""
    plan, model = SgdPlan(lr=LR, batch_size=50, epochs=1), flat(Mlp(hidden=(200,)))
    w, rng, x = model.initial(), np.random.default_rng(0), data.x.view(-1, 784)
    plays: dict[str, Callable[[], Any]] = {
        "by hand": lambda: mlp_round(w, x, data.y, draw(rng, np.arange(10), 12, 50), LR),
        "batched": rounds_of(BatchedEngine(), model, data, 10, plan),
        "serial": rounds_of(SerialEngine(), model, data, 10, plan),
    }
    measured = in_turns(plays, 15)
    report("W2, processor time per round", measured)
    assert measured["batched"] < 1.25 * measured["by hand"]


def test_convolutions_of_ten_clients(data: TrainData) -> None:
    """W3, 10 clients x 5 steps x 20 samples: at most 1.25x the loop."""
    plan, model = SgdPlan(lr=LR, batch_size=20, steps=5), flat(McMahanCnn())
    live, w, rng = model.live(), model.initial(), np.random.default_rng(0)
    plays: dict[str, Callable[[], Any]] = {
        "by hand": lambda: serial_round(
            w, data.x, data.y, draw(rng, np.arange(10), 5, 20), LR, live.module, live.vector
        ),
        "serial": rounds_of(SerialEngine(), model, data, 10, plan),
        "serial in 2 threads": rounds_of(SpreadEngine([SerialEngine(), SerialEngine()]), model, data, 10, plan),
    }
    measured = in_turns(plays, 4)
    report("W3, processor time per round", measured)
    assert measured["serial"] < 1.2 * measured["by hand"]


def test_the_loops_by_hand_do_the_same_arithmetic(data: TrainData) -> None:
    """From the same batches the loops and the serial engine come to the same model within 1e-5."""
    for model, by_hand in ((flat(Softmax()), softmax_round), (flat(Mlp(hidden=(200,))), mlp_round)):
        graph, streams, w = Graph(SerialEngine()), Streams(0), model.initial()
        plan, start = SgdPlan(lr=LR, batch_size=32, steps=3), graph.constant(w)
        jobs = [
            TrainJob(model, data, slice(k * SAMPLES, (k + 1) * SAMPLES), start, plan, streams, ("batch", k), f"dev-{k}")
            for k in range(4)
        ]
        rows = torch.from_numpy(np.stack([job.batches().index for job in jobs]))
        expected: Tensor = graph.read(graph.call(_mean, [graph.train(job).params for job in jobs]))
        found = by_hand(w, data.x.view(-1, 784), data.y, rows, LR)

        assert float((found - expected).norm() / expected.norm()) < 1e-5

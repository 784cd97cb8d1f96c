"""Speed of ASPIRE: master iterations with a hundred and with 3,000 workers, and the worst cases of all sets."""

from __future__ import annotations

import statistics
import time

import numpy as np

from fednet_emu.algorithms.robust.uncertainty import (
    Box,
    CdNorm,
    Ellipsoid,
    KlBall,
    Polyhedron,
    UncertaintySet,
    Wasserstein,
)
from fednet_emu.testing import small_federation, small_scenario

SIXTY_EACH = "data={{kind: synthetic, features: 784, classes: 10, n_samples: {}, n_test: 100}}"
WORKERS = (
    "model=softmax",
    "devices.speed={kind: fixed, flop_per_s: 2e7}",
    "devices.straggler={kind: slow-window, devices: [0, 1, 2, 3, 4], factor: 4, from_s: 0, to_s: 1e6}",
    "network.downlink.mode=unicast",
    "channel.rate={kind: fixed, bit_rate_bps: 1e9}",
    "evaluation.every_rounds=1000000",
    "algorithm={kind: aspire, active: 1, lr: 10, prox: 0.001, rho_dual: 0.0001, loss_of: steps, wire: reduced}",
    "algorithm.uncertainty={kind: cd-norm, budget: 20}",
)


def iterations_per_s(workers: int, iterations: int = 6000, *, training: bool = True) -> float:
    """Master iterations per host second, with network, ledger and, if asked, training; planes every N iterations."""
    settings = (*WORKERS, f"devices.count={workers}", f"stop.rounds={iterations}", f"algorithm.plane_every={workers}",
                SIXTY_EACH.format(60 * workers))  # fmt: skip
    fed = small_federation(*settings, timing_only=not training)
    started = time.perf_counter()
    fed.run(small_scenario(*settings).algorithm)
    return fed.round / (time.perf_counter() - started)


def milliseconds(uncertainty: UncertaintySet, count: int) -> float:
    """Host time of one worst case."""
    rng = np.random.default_rng(0)
    losses, prior, taken_s = rng.exponential(size=count), np.full(count, 1 / count), []
    for _ in range(3):
        started = time.perf_counter()
        uncertainty.worst_case(losses, prior)
        taken_s.append(time.perf_counter() - started)
    return 1e3 * statistics.median(taken_s)


def sets_of(count: int) -> dict[str, UncertaintySet]:
    """One of each kind for so many workers."""
    reach = tuple(np.random.default_rng(1).random(count) / count)
    half = tuple(np.random.default_rng(2).standard_normal(count))
    return {
        "box": Box(upper=3 / count),
        "cd-norm": CdNorm(budget=count / 10, deviation=reach),
        "ellipsoid": Ellipsoid(budget=1 / count),
        "kl": KlBall(budget=0.5),
        "polyhedron": Polyhedron(matrix=(half,), bounds=(0.1,)),
        "wasserstein": Wasserstein(budget=3.0),
    }


def test_a_master_step_does_not_grow_with_the_workers() -> None:
    """With 3,000 workers there are at least half as many iterations per second as with 100."""
    turns = [(iterations_per_s(100), iterations_per_s(3000)) for _ in range(3)]
    few, many = map(max, zip(*turns, strict=True))
    print(f"{few:.0f} iterations per second with 100 workers, {many:.0f} with 3,000")

    assert many > 0.5 * few


def test_training_and_master_take_longer_than_the_time_plane() -> None:
    """With a thousand workers, events and records alone make at least 1.5 times as many iterations per second."""
    turns = [(iterations_per_s(1000), iterations_per_s(1000, training=False)) for _ in range(2)]
    whole, timing = map(max, zip(*turns, strict=True))
    print(f"{whole:.0f} iterations per second with 1,000 workers, {timing:.0f} without training")

    assert timing > 1.5 * whole


def test_worst_cases_of_a_thousand_workers_take_milliseconds() -> None:
    """All sets, from 10 to 1,000 workers; the constrained D-norm stays below 5 ms."""
    taken = {
        count: {kind: milliseconds(own, count) for kind, own in sets_of(count).items()} for count in (10, 100, 1000)
    }
    for count, own in taken.items():
        print(f"{count} workers: " + ", ".join(f"{kind} {value:.2f} ms" for kind, value in own.items()))

    assert taken[1000]["cd-norm"] < 5
    assert all(value < 1000 for value in taken[1000].values())

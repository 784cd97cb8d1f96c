"""What every algorithm of the table must do, in an ideal, a lossy and a lonely network, and with small batteries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from fednet_emu.algorithms import ALGORITHMS
from fednet_emu.emulation.checkpoints import from_bytes, to_bytes
from fednet_emu.errors import Deadlock
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.observer import Models
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import batched
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.models.low_rank import Adapters
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_federation, small_scenario

CLUSTER = (
    "network.sidelink={channel: {include: ideal}, access: spatial-reuse, loss: {kind: random, probability: 0.1}, "
    "topology: {edges: {kind: random-regular, degree: 3}, clusters: {kind: equal, count: 1}}}"
)


def local_sgd(kind: str, more: str = "") -> str:
    """The setting of an algorithm whose devices make local steps, three at a time."""
    return f"algorithm={{kind: {kind}, cohort: 3, lr: 0.1, local_steps: 2, batch_size: 8, {more}}}"


def peers(kind: str, more: str = "") -> str:
    """The setting of an algorithm without a server, whose devices make local steps."""
    return f"algorithm={{kind: {kind}, lr: 0.1, local_steps: 2, batch_size: 8, {more}}}"


TWO_STATIONS = (
    "channel=urban-micro",
    "network.cells={kind: list, xy_m: [[-20, 0], [20, 0]]}",
    "network.edges.backhaul={energy_j_per_bit: 1e-8, loss: {kind: random, probability: 0.1}}",
)

WITH_CLASSES = ("data={kind: synthetic, features: 9, classes: 3, n_samples: 320, n_test: 60}", "model=softmax")
ADAPTED = (
    "data={kind: synthetic, features: 9, classes: 3, n_samples: 320, n_test: 60}",
    'model={kind: module, path: "tests.algorithms.adapters.networks:Adapted"}',
    "model.args={features: 9, outputs: 3, rank: 2}",
)

ALGORITHM_SETTINGS = {
    "afl": ("algorithm={kind: afl, lr: 0.2, lr_weights: 0.1, batch_size: null, averaged: false}",),
    "aspire": (
        "algorithm={kind: aspire, active: 2, max_delay: 8, lr: 0.5, local_steps: 5, prox: 0.2, rho_dual: 0.02}",
        "algorithm.uncertainty={kind: cd-norm, budget: 1}",
    ),
    "cfl": (local_sgd("cfl", "stationary: 1.0, split: 0.1, record_every: 1"),),
    "colrel": (CLUSTER, local_sgd("colrel")),
    "ad-psgd": (CLUSTER, peers("ad-psgd")),
    "d-psgd": (CLUSTER, peers("d-psgd")),
    "gossip": (CLUSTER, peers("gossip")),
    "matcha": (CLUSTER, peers("matcha", "budget: 0.6")),
    "sgp": (CLUSTER, peers("sgp")),
    "connectivity-aware": (CLUSTER, local_sgd("connectivity-aware", "phi_max: 0.06")),
    "ditto": (local_sgd("ditto", "pull: 0.1"),),
    "drfa": ("algorithm={kind: drfa, cohort: 3, local_steps: 3, lr: 0.1, lr_weights: 0.02, batch_size: 8}",),
    "fedasync": ("algorithm={kind: fedasync, alpha: 0.6, lr: 0.2, local_steps: 4, batch_size: 8, concurrency: 3}",),
    "fedavg": (local_sgd("fedavg"),),
    "feddf": (*WITH_CLASSES, "server={samples: 40, flop_per_s: 1e6}", local_sgd("feddf")),
    "feddyn": (local_sgd("feddyn", "alpha: 0.5"),),
    "fedmd": (*WITH_CLASSES, "server={samples: 40}", local_sgd("fedmd")),
    "fednova": (local_sgd("fednova", "prox: 0.01"),),
    "fedbuff": ("algorithm={kind: fedbuff, buffer_size: 3, lr: 0.1, local_steps: 2, batch_size: 8, concurrency: 3}",),
    "fedper": (local_sgd("fedper", "private: ['*.bias']"),),
    "fedproto": (
        *WITH_CLASSES,
        "model={kind: mlp, hidden: [8]}",
        local_sgd("fedproto", "pull: 0.1"),
        "data.separation=6",
        "algorithm.local_steps=4",
    ),
    "fedprox": (local_sgd("fedprox", "mu: 0.1, adaptive: true, partial_work: {kind: random, share: 0.5}"),),
    "fedrep": (local_sgd("fedrep", "private: ['*.bias'], head_epochs: 1"),),
    "fedul": (
        *WITH_CLASSES,
        "partition={kind: surrogate-sets, skew: iid, sets: 3}",
        "server={samples: 40, validation_samples: 40, flop_per_s: 1e6}",
        "algorithm={kind: fedul, cohort: 3, lr: 0.1, batch_size: 8, supervision: M2}",
    ),
    "flexlora": (*ADAPTED, local_sgd("flexlora", "ranks: [2], clip_norm: 1.0"), "algorithm.lr=0.15"),
    "flora": (*ADAPTED, local_sgd("flora", "ranks: [1, 2]")),
    "hetlora": (*ADAPTED, local_sgd("hetlora", "ranks: [1, 2], per_row: true")),
    "frank-wolfe-clustering": (local_sgd("frank-wolfe-clustering", "alpha: 1.0, dual_lr: 0.01, tolerance: 1e-9"),),
    "cyclic-fedavg": (
        "algorithm={kind: cyclic-fedavg, lr: 0.1, structure: {kind: scenario-2, groups: 2}}",
        "algorithm.local_steps=4",
        "algorithm.batch_size=8",
    ),
    "hier-favg": (local_sgd("hier-favg", "edge_rounds: 2"), *TWO_STATIONS),
    "ifca": (local_sgd("ifca", "clusters: 2, record_every: 1"),),
    "individual": ("algorithm={kind: individual, device: 0, lr: 0.1, local_steps: 2, batch_size: null}",),
    "local": (local_sgd("local"),),
    "per-fedavg": (local_sgd("per-fedavg", "order: hessian-free"),),
    "pfedme": (local_sgd("pfedme", "pull: 1, device_lr: 1, device_steps: 2"),),
    "q-ffl": (local_sgd("q-ffl", "q: 0.5"),),
    "scaffold": (local_sgd("scaffold"),),
    "splitfed": (
        "data={kind: synthetic, features: 9, classes: 3, n_samples: 80, n_test: 60}",
        "model={kind: mlp, hidden: [8]}",
        "server.flop_per_s=1e7",
        local_sgd("splitfed"),
    ),
    "safa": ("algorithm={kind: safa, fraction: 0.5, lag_tolerance: 3, lr: 0.1, local_steps: 2, batch_size: 8}",),
}
"""Settings with which each algorithm runs on four devices; each keeps its learning rate in `algorithm.lr`."""

OURS = {kind for kind in ALGORITHMS if not ALGORITHMS[kind].own_learning}
"""Algorithms that train a model of the scenario; `flower` has tests in tests/flower."""

LONELY = {
    "aspire": ("algorithm.active=1",),
    "cyclic-fedavg": ("algorithm.structure.groups=1",),
    "drfa": ("algorithm.cohort=1",),
    "fedavg": ("algorithm.cohort=1",),
}
"""What each algorithm needs beside `devices.count=1`."""

CROWDED = {"fedavg": ("algorithm.cohort=12",), "individual": ("algorithm.device=3",)}
"""What it takes to invite all of twelve devices, or one that has samples."""

CONDITIONS = {
    "ideal": (),
    "30 % loss": (
        "network.uplink.loss={kind: random, probability: 0.3}",
        "network.downlink.loss={kind: random, probability: 0.3}",
    ),
    "one device": ("devices.count=1",),
    "small batteries": (
        "devices.compute_energy={kind: measured, active_w: 1.0}",
        "devices.battery={capacity_j: 1e-3, harvesting: {kind: poisson, arrival_j: 5e-4, mean_interval_s: 1e-3}}",
    ),
}
ROUNDS = 4
EVERYWHERE = ("devices.straggler={kind: shifted-exponential, mean_factor: 0.5}", f"stop.rounds={ROUNDS}")

SPLIT_ANEW = {"flexlora", "flora"}
"""Algorithms that give a product other factors in each round, or move it into the weights."""

SHUFFLED = {"ifca"}
"""Algorithms that start some models from the initial one with its entries in another order."""

OWN_PARTITION = {"fedul"}
"""Algorithms that need a partition of their own, which gives samples to everybody."""

CASES = list(product(ALGORITHM_SETTINGS, CONDITIONS))


def settings_of(algorithm: str, condition: str, *more: str) -> tuple[str, ...]:
    """The scenario of one case."""
    lonely = LONELY.get(algorithm, ()) if condition == "one device" else ()
    return (*EVERYWHERE, *ALGORITHM_SETTINGS[algorithm], *CONDITIONS[condition], *lonely, *more)


def finals(*settings: str) -> tuple[Federation, list[torch.Tensor]]:
    """The federation after a run, and its final model, or those of all devices."""
    fed = small_federation(*settings)
    final = fed.run(small_scenario(*settings).algorithm)
    assert final is not None
    return fed, [fed.read(w) for w in ([final] if isinstance(final, Deferred) else final)]


def compared(algorithm: str, fed: Federation, models: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Models beside the initial one: in one order of their entries, or the products of their factors and the rest."""
    initial = fed.task.model.initial()
    if algorithm in SHUFFLED:
        return [(w.sort().values, initial.sort().values) for w in models]
    if algorithm in SPLIT_ANEW:
        adapters, size = Adapters(fed.task.model), fed.task.model.size

        def function(w: torch.Tensor) -> torch.Tensor:
            base = w[size:] if len(w) > size else adapters.base()
            return torch.cat([w[:size][adapters.others], adapters.grown(base, adapters.factors(w))])

        return [(function(w), function(initial)) for w in models]
    return [(w, initial) for w in models]


def in_turns(fed: Federation) -> frozenset[str]:
    """The links that carry one transmission at a time: with several base stations none does."""
    return frozenset({"uplink", "downlink"} if fed.network.settings.cells.count == 1 else ())


def digest_of(fed: Federation) -> str:
    """The fingerprint of a run."""
    return fed.ledger.event_digest()


class Played(NamedTuple):
    """A run: its fingerprint, the rounds it has ended, why it is a deadlock if it is one, and the laws it breaks."""

    digest: str
    rounds: int
    deadlock: str
    broken: list[str]


@cache
def first(*settings: str) -> Played:
    """The first run with these settings, with which others are compared."""
    fed, deadlock = small_federation(*settings), ""
    try:
        fed.run(small_scenario(*settings).algorithm)
    except Deadlock as error:
        deadlock = str(error)
        fed.close()
    broken = [text for text in verify(fed.ledger, in_turns(fed)).values() if text]
    return Played(digest_of(fed), fed.round, deadlock, broken)


def test_no_algorithm_is_untested() -> None:
    """Every kind of the table has its settings here, unless it brings its own learning and has tests of its own."""
    assert set(ALGORITHM_SETTINGS) == OURS
    assert all(ALGORITHMS[kind].kind == kind for kind in ALGORITHMS)


@pytest.mark.parametrize(("algorithm", "condition"), CASES)
def test_it_ends_or_says_who_waits(algorithm: str, condition: str) -> None:
    """The run ends by its stop rule and keeps every conservation law, or is a deadlock that names what is missing."""
    run = first(*settings_of(algorithm, condition))
    waits = condition == "30 % loss" and "waits for" in run.deadlock and "last lost: " in run.deadlock

    assert run.rounds == ROUNDS or waits
    assert run.broken == []


@pytest.mark.parametrize(("algorithm", "condition"), CASES)
def test_events_are_a_function_of_the_seed(algorithm: str, condition: str) -> None:
    """The same seed has the same event digest, another seed another one."""
    settings = settings_of(algorithm, condition)

    assert first(*settings).digest == digest_of(run_small(*settings)) != digest_of(run_small(*settings, "seed=1"))


@pytest.mark.parametrize(("algorithm", "condition"), CASES)
def test_events_do_not_depend_on_how_training_is_run(algorithm: str, condition: str) -> None:
    """Serial, batched and no training at all have one event digest, unless the scenario says that it cannot be."""
    settings = settings_of(algorithm, condition)
    serial, batched = first(*settings).digest, digest_of(run_small(*settings, "training.engine=batched"))
    timed = digest_of(run_small(*settings, timing_only=True))

    assert serial == batched
    assert small_scenario(*settings).events_depend_on_learning or timed == serial


@pytest.mark.parametrize("algorithm", ALGORITHM_SETTINGS)
@pytest.mark.parametrize(
    ("engine", "counts"),
    [
        ("by-rule", (1, 2)),
        pytest.param("by-rule", (1, 4, 16), marks=pytest.mark.slow),
        pytest.param("batched", (1, 2, 4, 16), marks=pytest.mark.slow),
    ],
)
def test_the_number_of_workers_changes_no_bit(
    algorithm: str, engine: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of processes have the same final models, to the last bit; every wavefront is sent to them."""
    monkeypatch.setattr(batched, "WORTH_FLOP", 0)
    monkeypatch.setattr(batched, "_FEW", 1)
    monkeypatch.setattr(batched, "STACK_PAYS", 1)
    settings = settings_of(algorithm, "ideal", f"training.engine={engine}", "training.threads=1")
    (_, one), *others = (finals(*settings, f"training.workers={count}") for count in counts)

    for fed, models in others:
        assert all(torch.equal(a, b) for a, b in zip(models, one, strict=True))
        assert fed.graph.engine is not None
        assert fed.graph.engine.statistics or fed.graph.statistics.mean_wavefront == 1


@pytest.mark.parametrize(("algorithm", "condition"), CASES)
def test_a_learning_rate_of_zero_changes_nothing(algorithm: str, condition: str) -> None:
    """With lr = 0 every model is bit for bit the initial one: updates are not taken for models, or the reverse."""
    fed, models = finals(*settings_of(algorithm, condition, "algorithm.lr=0"))

    assert all(torch.equal(w, initial) for w, initial in compared(algorithm, fed, models))


@pytest.mark.parametrize("algorithm", ALGORITHM_SETTINGS)
def test_it_learns(algorithm: str) -> None:
    """Sixty rounds leave at most a tenth of the distance to the known optimum, or of the errors where none is known."""
    settings = settings_of(algorithm, "ideal", "stop.rounds=60", "evaluation.every_rounds=60")
    fed, models = finals(*settings)
    optimum = small_scenario(*settings).data.load(None, Streams(0)("data")).optimum
    if optimum is None:
        errors = 1 - fed.ledger.evaluations.column("accuracy")
        assert errors[-1] <= 0.1 * errors[0]
        return
    far = 0.1 * (fed.task.model.initial() - optimum).norm()

    assert all((w - optimum).norm() < far for w in models)


@pytest.mark.parametrize("kind", sorted(OURS - OWN_PARTITION))
def test_devices_without_samples_are_left_out(kind: str) -> None:
    """A partition may leave devices with nothing; they take no part, and the run ends."""
    fed = run_small(
        *ALGORITHM_SETTINGS[kind],
        "data={kind: synthetic, n_samples: 60, n_test: 30, features: 9, classes: 3}",
        "model=softmax",
        *ALGORITHM_SETTINGS[kind],
        "devices.count=12",
        "partition={kind: dirichlet, alpha: 0.05, min_samples: 0}",
        *CROWDED.get(kind, ()),
    )
    empty = np.flatnonzero(fed.task.n_samples == 0)

    assert len(empty) > 0
    assert not set(empty) & set(fed.ledger.computes.column("device"))
    assert fed.round == 3


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHM_SETTINGS) - {"individual"}))
def test_rounds_wait_for_somebody_to_be_there(algorithm: str) -> None:
    """While all devices are away no round is spent: the first one ends after a return, with something to show."""
    away = ", ".join(f"{device}: [[5, 1000]]" for device in range(4))
    fed = run_small(*settings_of(algorithm, "ideal", f"devices.availability={{kind: windows, devices: {{{away}}}}}"))

    assert fed.round == ROUNDS
    assert fed.ledger.frames()["rounds"]["ended_s"].min() >= 5
    assert fed.ledger.rounds.column("arrived").min() > 0


@pytest.mark.parametrize("algorithm", ALGORITHM_SETTINGS)
def test_a_learning_rate_of_zero_changes_nothing_for_seven(algorithm: str) -> None:
    """With lr = 0 and seven devices, whose sevenths do not add up to one in floats, models stay bit for bit."""
    fed, models = finals(*settings_of(algorithm, "ideal", "algorithm.lr=0", "devices.count=7", "stop.rounds=3"))

    assert all(torch.equal(w, initial) for w, initial in compared(algorithm, fed, models))


WITHOUT_DEADLINE = {"ad-psgd", "aspire", "individual"}
"""Two wait for the first updates or reports instead of all devices, the other for nobody."""

ENOUGH_ROUNDS = {"fedasync": 1500, "fedbuff": 1000}
"""Rounds that take more than a second even though nobody waits for a slow device; 12 of the others do."""
GOES_ON = {"safa"}
"""A late device is not cancelled: its model counts in a later round."""

EDGES = "{kind: random-regular, degree: 1, redraw: false}"
TWO_CLUSTERS = f"network.sidelink.topology={{edges: {EDGES}, clusters: {{kind: equal, count: 2}}}}"


def test_every_round_based_algorithm_has_a_deadline() -> None:
    """All but those that wait for nobody in particular."""
    assert {kind for kind in OURS if "deadline_s" not in ALGORITHMS[kind].model_fields} == WITHOUT_DEADLINE


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHM_SETTINGS) - WITHOUT_DEADLINE))
def test_who_is_late_is_left_out(algorithm: str) -> None:
    """With a device that needs minutes and a deadline of a second, rounds go on with the others, and the run ends."""
    settings = [setting for setting in ALGORITHM_SETTINGS[algorithm] if "sidelink" not in setting]
    if len(settings) < len(ALGORITHM_SETTINGS[algorithm]):
        settings += [CLUSTER, TWO_CLUSTERS, "network.sidelink.loss=none"]
    speed = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 10]}"
    n_rounds = ENOUGH_ROUNDS.get(algorithm, 12)
    fed = run_small(*settings, speed, "algorithm.deadline_s=1", f"stop.rounds={n_rounds}", timing_only=True)
    frames = fed.ledger.frames()
    rounds, computes = frames["rounds"], frames["computes"]
    trips = 2 if algorithm in ("drfa", "hier-favg") else 1
    slow, server = computes[computes["device"] == 3], computes[computes["device"] == -1]
    serving_s = (server["ended_s"] - server["started_s"]).sum() / n_rounds

    assert fed.round == n_rounds
    assert 0 < rounds["arrived"].sum() < rounds["invited"].sum()
    assert (rounds["ended_s"] - rounds["started_s"]).max() <= trips * 1.0 + serving_s + 1e-9
    assert len(slow) > 0
    assert algorithm in GOES_ON or (slow["ended_s"] - slow["started_s"]).max() <= 1.0 + 1e-9
    assert not any(verify(fed.ledger, in_turns(fed)).values())


def resumed_every_round(rounds: int, *settings: str) -> tuple[Federation, Models | None]:
    """A run cut after each of its rounds, every part resumed from the file of the one before; and its final model."""

    def cut(after_round: int) -> Callable[[Federation], None]:
        def observe(fed: Federation) -> None:
            if fed.round == after_round:
                raise KeyboardInterrupt

        return observe

    data = b""
    for after_round in range(1, rounds + 1):
        part = small_federation(*settings)
        if data:
            part.learner.resume(from_bytes(data, {}))
        part.observers.append(cut(after_round))
        with pytest.raises(KeyboardInterrupt):
            part.run(small_scenario(*settings).algorithm)
        data = to_bytes(part.learner.checkpoint(), {})
    last = small_federation(*settings)
    last.learner.resume(from_bytes(data, {}))
    return last, last.run(small_scenario(*settings).algorithm)


@pytest.mark.parametrize("engine", ["serial", "batched"])
@pytest.mark.parametrize("algorithm", ALGORITHM_SETTINGS)
def test_it_goes_on_from_a_checkpoint_file(algorithm: str, engine: str) -> None:
    """Cut after each of its rounds, every part resumed from the file of the one before: nothing differs in a bit."""
    settings = settings_of(algorithm, "30 % loss", f"training.engine={engine}", "evaluation.every_rounds=2")
    whole = run_small(*settings)
    last, _ = resumed_every_round(whole.round, *settings)

    frames, expected = last.ledger.frames(), whole.ledger.frames()
    assert frames.keys() == expected.keys()
    for name in frames:
        pd.testing.assert_frame_equal(frames[name], expected[name], check_exact=True)
    assert last.graph.statistics == whole.graph.statistics

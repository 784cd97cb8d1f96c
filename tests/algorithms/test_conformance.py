"""What every algorithm of the table must do, in an ideal, a lossy and a lonely network, and with small batteries."""

from __future__ import annotations

from functools import cache
from itertools import cycle, product
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fednet_emu.errors import Deadlock
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import batched
from fednet_emu.learning.models.low_rank import Adapters
from fednet_emu.records.laws import verify
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import (
    ALGORITHM_SETTINGS,
    CLUSTER,
    CONDITIONS,
    ENGINES,
    ROUNDS,
    assert_it_goes_on,
    digest_of,
    finals,
    in_turns,
    settings_of,
)

OURS = {kind for kind in ALGORITHMS if not ALGORITHMS[kind].own_learning} - {"idle"}
"""Algorithms that train a model of the scenario; `flower` has tests in tests/flower."""

CROWDED = {"fedavg": ("algorithm.cohort=12",), "individual": ("algorithm.device=3",)}
"""What it takes to invite all of twelve devices, or one that has samples."""

SPLIT_ANEW = {"flexlora", "flora"}
"""Algorithms that give a product other factors in each round, or move it into the weights."""

SHUFFLED = {"ifca"}
"""Algorithms that start some models from the initial one with its entries in another order."""

OWN_PARTITION = {"fedul"}
"""Algorithms that need a partition of their own, which gives samples to everybody."""

CASES = list(product(ALGORITHM_SETTINGS, CONDITIONS))
LOSSY_FIRST = [pytest.param(*case, marks=[] if case[1] == "30 % loss" else pytest.mark.slow) for case in CASES]
"""All cases, of which those with losses stand for the others in `make test`."""
FIRST = {ALGORITHMS[kind].__bases__: kind for kind in reversed(ALGORITHM_SETTINGS)}.values()
ONE_EACH = [pytest.param(kind, marks=[] if kind in FIRST else pytest.mark.slow) for kind in ALGORITHM_SETTINGS]
"""All algorithms, of which the first of those with the same base classes stands for the others in `make test`."""
TURNS = dict(zip(ALGORITHM_SETTINGS, cycle(["one device", "small batteries"]), strict=False))
HARD_FIRST = [
    pytest.param(*case, marks=[] if case[1] in ("30 % loss", TURNS[case[0]]) else pytest.mark.slow) for case in CASES
]
"""All cases, of which in `make test` the ideal network, which asks least, is left out; so is one of the last two."""


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


@pytest.mark.parametrize(("algorithm", "condition"), HARD_FIRST)
def test_it_ends_or_says_who_waits(algorithm: str, condition: str) -> None:
    """The run ends by its stop rule and keeps every conservation law, or is a deadlock that names what is missing."""
    run = first(*settings_of(algorithm, condition))
    waits = condition == "30 % loss" and "waits for" in run.deadlock and "last lost: " in run.deadlock

    assert run.rounds == ROUNDS or waits
    assert run.broken == []


@pytest.mark.parametrize(("algorithm", "condition"), LOSSY_FIRST)
def test_events_are_a_function_of_the_seed(algorithm: str, condition: str) -> None:
    """Serial, batched and no training at all have one event digest, unless the scenario says that it cannot be.

    Another seed has another one.
    """
    settings = settings_of(algorithm, condition)
    serial, batched = first(*settings).digest, digest_of(run_small(*settings, "training.engine=batched"))
    timed, other = (digest_of(run_small(*settings, f"seed={seed}", timing_only=True)) for seed in (0, 1))

    assert serial == batched
    assert small_scenario(*settings).events_depend_on_learning or timed == serial
    assert other not in (timed, serial)


@pytest.mark.parametrize("algorithm", ONE_EACH)
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
    settings = settings_of(algorithm, "ideal", "stop.rounds=2", f"training.engine={engine}", "training.threads=1")
    (_, one), *others = (finals(*settings, f"training.workers={count}") for count in counts)

    for fed, models in others:
        assert all(torch.equal(a, b) for a, b in zip(models, one, strict=True))
        assert fed.graph.engine is not None
        assert fed.graph.engine.statistics or fed.graph.statistics.mean_wavefront == 1


@pytest.mark.parametrize(("algorithm", "condition"), LOSSY_FIRST)
def test_a_learning_rate_of_zero_changes_nothing(algorithm: str, condition: str) -> None:
    """With lr = 0 every model is bit for bit the initial one: updates are not taken for models, or the reverse."""
    fed, models = finals(*settings_of(algorithm, condition, "algorithm.lr=0"))

    assert all(torch.equal(w, initial) for w, initial in compared(algorithm, fed, models))


@pytest.mark.parametrize("algorithm", ALGORITHM_SETTINGS)
def test_it_learns(algorithm: str) -> None:
    """Fifteen rounds leave at most 0.3 of the distance to the known optimum, or of the errors where none is known."""
    settings = settings_of(algorithm, "ideal", "stop.rounds=15", "evaluation.every_rounds=15")
    fed, models = finals(*settings)
    optimum = small_scenario(*settings).data.load(None, Streams(0)("data")).optimum
    if optimum is None:
        errors = 1 - fed.ledger.evaluations.column("accuracy")
        assert errors[-1] <= 0.3 * errors[0]
        return
    far = 0.3 * (fed.task.model.initial() - optimum).norm()

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
    assert fed.ledger.frame("rounds")["ended_s"].min() >= 5
    assert fed.ledger.rounds.column("arrived").min() > 0


@pytest.mark.parametrize("algorithm", ONE_EACH)
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
        settings += [CLUSTER, TWO_CLUSTERS, "network.sidelink.message_loss=none"]
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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("algorithm", ALGORITHM_SETTINGS)
def test_it_goes_on_from_a_checkpoint_file(algorithm: str, engine: str) -> None:
    """Cut after each of its rounds, with losses and evaluations in some of them."""
    assert_it_goes_on(*settings_of(algorithm, "30 % loss", f"training.engine={engine}", "evaluation.every_rounds=3"))

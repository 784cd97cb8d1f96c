"""Algorithms on cells, out of reach, planned, and their series."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fednet_emu.algorithms.asynchronous import dispatcher
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.emulation.build import build
from fednet_emu.errors import Deadlock
from fednet_emu.federation import rounds
from fednet_emu.federation.federation import Federation
from fednet_emu.network.planning import PLANNERS
from fednet_emu.records.laws import verify
from fednet_emu.records.summaries import messages
from fednet_emu.scenario.algorithms import ALGORITHMS, brings_own_learning
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import run_small, small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, EVERYWHERE, ROUNDS, WITH_CLASSES, in_turns
from tests.algorithms.test_conformance import WITHOUT_DEADLINE
from tests.quick import crossed

FILES = Path(__file__).parents[2] / "scenarios" / "cells"
CELLS: dict[str, dict[str, Any]] = {
    path.stem: from_text(path.read_text(), path.stem).data for path in sorted(FILES.glob("*.yaml"))
}

LOSS = tuple(f"network.{way}.message_loss={{kind: random, probability: 0.2}}" for way in ("uplink", "downlink"))
DEADLINE = ("algorithm.deadline_s=0.5", "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1e3]}")
DEPARTURES = ("devices.availability={kind: periodic, on_s: 0.7, off_s: 0.1}",)
CONDITIONS = {"loss": LOSS, "deadline": DEADLINE, "departures": DEPARTURES}

QUICK = {
    (algorithm, list(CELLS)[place % len(CELLS)], list(CONDITIONS)[(place + place // len(CELLS)) % len(CONDITIONS)])
    for place, algorithm in enumerate(ALGORITHM_SETTINGS)
    if algorithm != "fedul"
}
"""One cell and one condition for each algorithm but `fedul`, which computes for seconds; the others are slow."""


def cases() -> list[Any]:
    """All of them, but two base stations on one channel of Wi-Fi, which is refused."""
    several = {name for name, its in ALGORITHM_SETTINGS.items() if any("network.cells" in setting for setting in its)}
    every = product(ALGORITHM_SETTINGS, CELLS, CONDITIONS)
    found = [case for case in every if not (case[0] in several and case[1].startswith("wifi"))]
    return [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow) for case in found]


def settings_of(algorithm: str, cell: str, condition: str) -> list[str]:
    """The scenario of one case: devices in a room of the cell, whose computing takes milliseconds."""
    its, network = ALGORITHM_SETTINGS[algorithm], CELLS[cell]["network"]
    settings = [f"channel={json.dumps(CELLS[cell]['channel'])}", "devices.placement.radius_m=15"]
    settings += [
        *(setting for setting in its if not setting.startswith("channel=")),
        f"stop={{rounds: {ROUNDS}, simulated_s: 20}}",
    ]
    for key, value in network.items():
        parts = {f"{key}.{part}": its for part, its in value.items()} if key in {"uplink", "downlink"} else {key: value}
        settings += [f"network.{place}={json.dumps(given)}" for place, given in parts.items()]
    if any("sidelink" in setting for setting in its):
        settings.append("network.sidelink.mode=unicast")
    if any("network.cells" in setting for setting in its) and "oai" in cell:
        settings.append("channel.rate.feedback=ideal")  # transfers climb in one cell
    more = CONDITIONS[condition]
    return [*settings, *(DEADLINE[1:] if condition == "deadline" and algorithm in WITHOUT_DEADLINE else more)]


def played(settings: list[str], *, timing_only: bool) -> tuple[Federation, str]:
    """A federation after its run, and why it is a deadlock if it is one."""
    scenario, deadlock = small_scenario(*settings), ""
    assert list(scenario.contradictions()) == []
    fed = build(scenario, timing_only=timing_only)
    try:
        fed.run(scenario.algorithm)
    except Deadlock as error:
        deadlock = str(error)
        fed.close()
    return fed, deadlock


@pytest.mark.parametrize(("algorithm", "cell", "condition"), cases())
def test_it_ends_and_keeps_the_laws(algorithm: str, cell: str, condition: str) -> None:
    """By its stop rule, or as a deadlock that names the message lost; twice alike, and every law holds.

    Each transfer has waits, gaps and a tail whose sum with its time on the air is its length, whatever ended it.
    """
    settings = settings_of(algorithm, cell, condition)
    fed, deadlock = played(settings, timing_only=False)
    again, _ = played(settings, timing_only=False)
    lost = set(fed.ledger.frame("transfers")["loss_reason"]) - {""}

    assert not any(verify(fed.ledger, frozenset()).values())
    assert fed.ledger.event_digest() == again.ledger.event_digest()
    assert fed.round == ROUNDS or fed.clock.now_s >= 20 or ("waits for" in deadlock and "last lost: " in deadlock)
    assert lost <= {"erased", "deadline", "away", "left", "end"}


FAR = (
    "channel={include: urban-micro, path_loss: {kind: log-distance, exponent: 3.76, reference_loss_db: 35.3}, "
    "shadowing: none}",
    "devices.placement={kind: list, xy_m: [[30, 0], [50000, 0], [0, 30], [-30, 0]]}",
)
"""Device 1 is 50 km away, the others 30 m."""
SILENT = {"individual", "local"}
"""Algorithms that send nothing."""
AMONG_NEIGHBOURS = {"ad-psgd", "d-psgd", "gossip", "matcha", "sgp"}
"""Algorithms that send to neighbours of a topology only, among whom nobody is far away."""
ASYNCHRONOUS = ["fedasync", "fedbuff"]


@pytest.mark.parametrize("algorithm", ALGORITHM_SETTINGS)
def test_a_device_out_of_reach_costs_a_second_each_time(algorithm):
    """All rounds end, in a few seconds each: nobody waits for a timeout, and nobody sends again without end."""
    fed = run_small(*EVERYWHERE, *ALGORITHM_SETTINGS[algorithm], *FAR)

    assert fed.round == ROUNDS
    assert fed.clock.now_s < 3.0 * ROUNDS
    losses = messages(fed.ledger)["losses"]
    assert losses.get("unreachable", 0) > 0 or algorithm in {*SILENT, *AMONG_NEIGHBOURS, "aspire"}
    assert "timeout" not in losses
    broken = {law: text for law, text in verify(fed.ledger, in_turns(fed)).items() if text}
    assert broken == {}


@pytest.mark.parametrize("algorithm", ASYNCHRONOUS)
def test_the_asynchronous_go_on_with_those_in_reach(algorithm):
    """The one far away is asked once, as nobody moves; its place is taken by others, and all are at work."""
    settings = (*ALGORITHM_SETTINGS[algorithm], "algorithm.concurrency=4", "stop.rounds=12")
    fed = run_small(*EVERYWHERE, *settings, *FAR)

    assert messages(fed.ledger)["losses"]["unreachable"] == 1
    arrived = {row["device"] for row in fed.ledger.series["activations"]}
    assert (fed.round, arrived) == (12, {0, 2, 3})


def test_who_works_long_is_waited_for(monkeypatch):
    """With a limit of 20 losses in a row, one device at work for 60 s beside three that move out of reach."""
    monkeypatch.setattr(rounds, "MAX_FRUITLESS_ROUNDS", 20)
    monkeypatch.setattr(rounds, "AWAY_S", 0.0)
    moving = "devices.mobility={kind: gauss-markov, mean_speed_m_s: 0.001, speed_sigma_m_s: 0}"
    near = "devices.placement={kind: list, xy_m: [[30, 0], [50000, 0], [49999, 30], [-50000, 0]]}"
    region = "devices.region={kind: disc, radius_m: 60000}"
    slow = "devices.speed={kind: fixed, flop_per_s: 50}"
    settings = (*ALGORITHM_SETTINGS["fedasync"], "algorithm.concurrency=4", "stop.rounds=1")
    fed = run_small(*settings, *FAR, near, moving, region, slow)

    assert fed.round == 1
    assert messages(fed.ledger)["losses"]["unreachable"] > 20


def test_those_who_move_have_a_day_to_come_back():
    """A thousand losses in a row are the end where nobody moves, or after a day."""
    assert not rounds.is_standstill(999, 1e9, moving=False)
    assert rounds.is_standstill(1000, 0.0, moving=False)
    assert not rounds.is_standstill(1000, 86_399.0, moving=True)
    assert rounds.is_standstill(1000, 86_400.0, moving=True)
    assert not rounds.is_standstill(99_999, 5.0, moving=True)
    assert rounds.is_standstill(100_000, 5.0, moving=True), "with a deadline of 0.4 ms, a day would never pass"
    assert dispatcher.is_standstill is rounds.is_standstill


PLANNED = "network.uplink.access={{kind: planned, planner: {}}}"
CHANNEL = "channel={include: urban-micro, bandwidth_hz: 3e5}"
MORE = {
    "cfl": "stationary: 1e-9, split: 1.0, ",
    "ditto": "pull: 0.1, ",
    "feddyn": "alpha: 0.5, ",
    "fedprox": "mu: 0.1, ",
    "fedper": "personal_layers: ['*.bias'], ",
    "fedrep": "head_epochs: 1, personal_layers: ['*.bias'], ",
    "frank-wolfe-clustering": "alpha: 1.0, dual_lr: 0.01, ",
    "ifca": "clusters: 2, ",
    "q-ffl": "q: 0.5, ",
}
WORLD = {"feddf": (*WITH_CLASSES, "server={samples: 40, flop_per_s: 1e6}")}
"""What some need beside the settings of the algorithm."""
ABLE = sorted(kind for kind, algorithm in ALGORITHMS.items() if "plans" in algorithm.uses)
TROUBLE = (
    "network.uplink.message_loss={kind: random, probability: 0.3}",
    "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}",
    "devices.availability={kind: periodic, on_s: 3, off_s: 0.5}",
)


def planned_settings(algorithm: str, planner: str, *more: str) -> tuple[str, ...]:
    """A cohort of three of four devices in a fading channel."""
    own = f"algorithm={{kind: {algorithm}, {MORE.get(algorithm, '')}cohort: 3, lr: 0.1, local_steps: 2, batch_size: 8}}"
    return *WORLD.get(algorithm, ()), own, CHANNEL, PLANNED.format(planner), *more


def test_cohorts_can_be_planned() -> None:
    """All algorithms whose cohort can be chosen."""
    personal = ["cfl", "ditto", "fedper", "fedrep", "frank-wolfe-clustering", "ifca", "per-fedavg", "pfedme"]
    assert sorted({"fedavg", "feddf", "feddyn", "fednova", "fedprox", "q-ffl", "scaffold", *personal}) == ABLE


@pytest.mark.parametrize(("planner", "algorithm"), crossed(PLANNERS, ABLE))
def test_planned_rounds_need_no_training_and_keep_every_law(algorithm: str, planner: str) -> None:
    """With losses, stragglers and absences, a run without training has the same events, and all records agree."""
    settings = planned_settings(algorithm, planner, *TROUBLE)
    timed, trained = run_small(*settings, timing_only=True), run_small(*settings)

    assert timed.ledger.event_digest() == trained.ledger.event_digest()
    assert not any(verify(trained.ledger, frozenset({"downlink"})).values())
    assert {row["round"] for row in trained.ledger.series["plan"]} == {1, 2, 3}


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_deadline_holds_for_planned_rounds(planner: str) -> None:
    """Devices that are late are left out, and the next round is planned anew."""
    fed = run_small(*planned_settings("fedavg", planner, "algorithm.deadline_s=0.02"), timing_only=True)

    assert fed.round == 3
    assert not any(verify(fed.ledger, frozenset({"downlink"})).values())


@pytest.mark.parametrize("selection", ["oort", "{kind: power-of-choice, candidates: 4}", "fedcs"])
def test_whom_a_rule_has_chosen_is_planned(selection: str) -> None:
    """Questions before a round go without a plan, and what devices tell counts in its sizes."""
    fed = run_small(*planned_settings("fedavg", "least-energy", f"algorithm.selection={selection}"))
    asked = [row["device"] for row in fed.ledger.series["plan"] if row["round"] == 1]
    rounds = fed.ledger.frame("rounds")

    assert len(asked) == rounds["invited"].iloc[0]
    assert rounds["arrived"].min() > 0


def test_several_cells_are_planned_one_by_one() -> None:
    """The parts of each cell add up to one band."""
    cells = "network.cells={kind: list, xy_m: [[-200, 0], [200, 0]]}"
    fed = run_small(*planned_settings("fedavg", "least-time", "devices.count=8", "algorithm.cohort=8", cells))
    total = sum(row["share"] for row in fed.ledger.series["plan"] if row["round"] == 1)

    assert total == pytest.approx(2.0)


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - set(ABLE)))
def test_all_other_algorithms_are_refused(algorithm: str) -> None:
    """Before the run, with those that can be planned."""
    scenario = small_scenario(*planned_settings("fedavg", "least-time"))
    other = scenario.model_copy(update={"algorithm": ALGORITHMS[algorithm].model_construct()})
    found = [what for _, what in other.network.uplink.access.conflicts(other)]

    assert found == [
        f"the algorithm {algorithm} does not choose its devices at the start of a round, got planned; "
        f"choose another access, or one of {', '.join(k for k in ALGORITHMS if k in ABLE)}"
    ]


WORK = "lr: 0.003, batch_size: null"
SERIES = {
    "cfl": (
        ("algorithm={kind: cfl, cohort: 4, local_steps: 1, stationary: 1e-9, split: 1e9, " + WORK + "}",),
        {"updates": "round simulated_s first members mean longest"},
    ),
    "frank-wolfe-clustering": (
        ("algorithm={kind: frank-wolfe-clustering, cohort: 4, local_steps: 1, alpha: 1, dual_lr: 0.01, " + WORK + "}",),
        {"weights": "round simulated_s i j weight", "convergence": "round simulated_s gap moved gradient_norm"},
    ),
    "cyclic-fedavg": (
        ("algorithm={kind: cyclic-fedavg, local_steps: 1, structure: {kind: scenario-1, groups: 2}, " + WORK + "}",),
        {"cyclic_turns": "round cycle group groups structure access started_s ended_s"},
    ),
    "aspire": (
        ("algorithm={kind: aspire, planes: fixed, active: null, lr: 0.1, gap_every: 1}",),
        {
            "aspire": "step simulated_s active arrived planes displaced bits_paper bits_actual",
            "activations": "step device arrived_s staleness",
            "stationarity": "step simulated_s squared_gap",
        },
    ),
}
"""For each algorithm its settings, and the columns of its series."""

COUNTS = {"round", "step", "cycle"}
"""Columns that number the rounds, steps or cycles of a run."""


@pytest.mark.parametrize("kind", SERIES)
def test_series_have_their_columns(kind: str) -> None:
    """As documented, in every row, with a value each; rounds and steps are counted, and time does not run back."""
    settings, expected = SERIES[kind]
    fed = run_small(*settings, "stop.rounds=4")

    for name, columns in expected.items():
        rows = fed.ledger.series[name]
        assert rows
        assert all(set(row) == set(columns.split()) for row in rows)
        assert all(value is not None for row in rows for value in row.values())
        for column in COUNTS & set(columns.split()):
            numbers = [row[column] for row in rows]
            assert numbers == sorted(numbers)
            assert set(numbers) <= set(range(5))


def test_who_brings_learning_of_its_own() -> None:
    """Flower does, by name or by settings; ours do not, nor does what is not known or not named."""
    assert [brings_own_learning(given) for given in ("flower", {"kind": "flower", "app": "x"})] == [True, True]
    ours = ("fedavg", {"kind": "fedavg"}, FedAvg(cohort=1, lr=0.1, batch_size=None, local_steps=1))
    assert [brings_own_learning(given) for given in (*ours, "no-such-kind", {}, None)] == [False] * 6

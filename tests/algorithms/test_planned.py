"""Planned uplinks under every algorithm that says who takes part when a round starts, and refused under all others."""

import pytest

from fednet_emu.network.planning import PLANNERS
from fednet_emu.records.laws.verify import verify
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_scenario
from tests.algorithms.small import WITH_CLASSES
from tests.quick import crossed

PLANNED = "network.uplink.access={{kind: planned, planner: {}}}"
CHANNEL = "channel={include: urban-micro, bandwidth_hz: 3e5}"
MORE = {
    "cfl": "stationary: 1e-9, split: 1.0, ",
    "ditto": "pull: 0.1, ",
    "feddyn": "alpha: 0.5, ",
    "fedprox": "mu: 0.1, ",
    "fedper": "private: ['*.bias'], ",
    "fedrep": "head_epochs: 1, private: ['*.bias'], ",
    "frank-wolfe-clustering": "alpha: 1.0, dual_lr: 0.01, ",
    "ifca": "clusters: 2, ",
    "q-ffl": "q: 0.5, ",
}
WORLD = {"feddf": (*WITH_CLASSES, "server={samples: 40, flop_per_s: 1e6}")}
"""What some need beside the settings of the algorithm."""
ABLE = sorted(kind for kind, algorithm in ALGORITHMS.items() if "plans" in algorithm.uses)
TROUBLE = (
    "network.uplink.loss={kind: random, probability: 0.3}",
    "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}",
    "devices.availability={kind: periodic, on_s: 3, off_s: 0.5}",
)


def settings_of(algorithm: str, planner: str, *more: str) -> tuple[str, ...]:
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
    settings = settings_of(algorithm, planner, *TROUBLE)
    timed, trained = run_small(*settings, timing_only=True), run_small(*settings)

    assert timed.ledger.event_digest() == trained.ledger.event_digest()
    assert not any(verify(trained.ledger, frozenset({"downlink"})).values())
    assert {row["round"] for row in trained.ledger.series["plan"]} == {1, 2, 3}


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_deadline_holds_for_planned_rounds(planner: str) -> None:
    """Devices that are late are left out, and the next round is planned anew."""
    fed = run_small(*settings_of("fedavg", planner, "algorithm.deadline_s=0.02"), timing_only=True)

    assert fed.round == 3
    assert not any(verify(fed.ledger, frozenset({"downlink"})).values())


@pytest.mark.parametrize("selection", ["oort", "{kind: power-of-choice, candidates: 4}", "fedcs"])
def test_whom_a_rule_has_chosen_is_planned(selection: str) -> None:
    """Questions before a round go without a plan, and what devices tell counts in its sizes."""
    fed = run_small(*settings_of("fedavg", "least-energy", f"algorithm.selection={selection}"))
    asked = [row["device"] for row in fed.ledger.series["plan"] if row["round"] == 1]
    rounds = fed.ledger.frames()["rounds"]

    assert len(asked) == rounds["invited"].iloc[0]
    assert rounds["arrived"].min() > 0


def test_several_cells_are_planned_one_by_one() -> None:
    """The parts of each cell add up to one band."""
    cells = "network.cells={kind: list, xy_m: [[-200, 0], [200, 0]]}"
    fed = run_small(*settings_of("fedavg", "least-time", "devices.count=8", "algorithm.cohort=8", cells))
    total = sum(row["share"] for row in fed.ledger.series["plan"] if row["round"] == 1)

    assert total == pytest.approx(2.0)


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - set(ABLE)))
def test_all_other_algorithms_are_refused(algorithm: str) -> None:
    """Before the run, with those that can be planned."""
    scenario = small_scenario(*settings_of("fedavg", "least-time"))
    other = scenario.model_copy(update={"algorithm": ALGORITHMS[algorithm].model_construct()})
    found = [what for _, what in other.network.uplink.access.conflicts(other)]

    assert found == [
        f"the algorithm {algorithm} does not choose its devices at the start of a round, got planned; "
        f"choose another access, or one of {', '.join(k for k in ALGORITHMS if k in ABLE)}"
    ]

"""What a rule sees of a run: what questions cost, that nothing of the future shows, and that fairness is recorded."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.selection import SELECTIONS
from fednet_emu.algorithms.selection.base import RoundWork
from fednet_emu.federation import SgdPlan
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws.verify import verify
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, CONDITIONS, EVERYWHERE, ROUNDS, resumed_every_round
from tests.quick import crossed

KINDS = {
    **{kind: kind for kind in SELECTIONS},
    "cpow-d": "{kind: power-of-choice, variant: cpow-d, batch_size: 4, candidates: 3}",
    "rpow-d": "{kind: power-of-choice, variant: rpow-d}",
    "tight fedcs": "{kind: fedcs, round_s: 0.003}",
    "short oort": "{kind: oort, window: 1, most_rounds: 2}",
}
WITH_SLOT = sorted(kind for kind in ALGORITHMS if issubclass(ALGORITHMS[kind], Synchronous))
OTHERS = set(WITH_SLOT) - {"fedavg", "cfl", "frank-wolfe-clustering"}  # what the last two read decides events, too
POLLED = {kind for kind in WITH_SLOT if "polls" in ALGORITHMS[kind].uses}
HARD = {
    **CONDITIONS,
    "a deadline": (
        "algorithm.deadline_s=0.0035",
        "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.7}",
    ),
    "departures": ("devices.availability={kind: periodic, on_s: 0.006, off_s: 0.004}",),
    "unicast": ("network.downlink.mode=unicast",),
}


def settings_of(algorithm: str, selection: str, condition: str) -> tuple[str, ...]:
    """A run of four rounds on four devices, or one."""
    own = ALGORITHM_SETTINGS[algorithm]
    more = ("algorithm.cohort=1",) if condition == "one device" else ("algorithm.cohort=2",)
    if algorithm == "q-ffl":
        more += ("algorithm.sampling=uniform",)
    alone = condition == "one device" and selection == "cpow-d"
    rule = "{kind: power-of-choice, variant: cpow-d}" if alone else KINDS[selection]
    return (*EVERYWHERE, *own, *HARD[condition], *more, f"algorithm.selection={rule}")


def test_who_has_the_slot() -> None:
    """The synchronous methods that invite a cohort and make local steps."""
    personal = ["cfl", "ditto", "fedper", "fedrep", "frank-wolfe-clustering", "ifca", "per-fedavg", "pfedme"]
    distilled = ["feddf", "fedmd", "fedproto"]
    others = {"fedavg", "feddyn", "fednova", "fedprox", "flexlora", "flora", "hetlora", "q-ffl", "scaffold"}
    assert sorted(others.union(personal, distilled)) == WITH_SLOT


@pytest.mark.parametrize(
    ("algorithm", "selection", "condition"),
    [
        *crossed(["fedavg"], KINDS, HARD),
        *crossed(sorted(OTHERS), ["oort", "age"], ["30 % loss"]),
        *crossed(sorted(OTHERS & POLLED), ["power-of-choice"], ["30 % loss"]),
    ],
)
def test_it_conforms(algorithm: str, selection: str, condition: str) -> None:
    """Rounds end, laws hold, and how training is run changes no event; without training neither, but for losses."""
    settings = settings_of(algorithm, selection, condition)
    fed = run_small(*settings)
    batched, timed = run_small(*settings, "training.engine=batched"), run_small(*settings, timing_only=True)
    rule = small_scenario(*settings).algorithm.selection

    assert fed.round == timed.round == ROUNDS
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())
    assert fed.ledger.event_digest() == batched.ledger.event_digest()
    assert rule.needs_losses == timed.learner.nominal
    assert rule.needs_losses or fed.ledger.event_digest() == timed.ledger.event_digest()
    assert (fed.ledger.rounds.column("invited") <= rule.most(2, 4)).all()


@pytest.mark.parametrize("selection", sorted(KINDS))
def test_it_goes_on_from_a_checkpoint_file(selection: str) -> None:
    """Cut after each of its rounds, resumed from the file of the one before: no table differs in a bit."""
    settings = settings_of("fedavg", selection, "30 % loss")
    whole = run_small(*settings)
    last, _ = resumed_every_round(ROUNDS - 1, *settings)

    frames, expected = last.ledger.frames(), whole.ledger.frames()
    assert frames.keys() == expected.keys()
    for name in frames:
        pd.testing.assert_frame_equal(frames[name], expected[name], check_exact=True)
    assert last.ledger.asked == whole.ledger.asked


@pytest.mark.parametrize("selection", sorted(KINDS))
def test_no_rule_sees_the_future(selection: str) -> None:
    """A device that slows down and goes away later changes no choice before that, and no record of it."""
    settings = settings_of("fedavg", selection, "ideal")[1:]  # without stragglers
    calm = run_small("stop.rounds=12", "devices.count=5", *settings, "stop.rounds=12")
    rounds = calm.ledger.frames()["rounds"]
    middle_s = float(rounds["ended_s"][5])
    slow = f"devices.straggler={{kind: slow-window, devices: [0, 1, 2, 3, 4], factor: 7, from_s: {middle_s}, to_s: 99}}"
    away = f"devices.availability={{kind: windows, devices: {{2: [[0, {middle_s + 0.005}]]}}}}"
    changed = run_small("devices.count=5", *settings, "stop.rounds=12", slow, away)

    def asked(fed: Federation) -> list[tuple[int, ...]]:
        computes, own = fed.ledger.frames()["computes"], fed.ledger.frames()["rounds"]
        return [
            tuple(sorted(set(computes["device"][computes["ended_s"].between(a, b, "right")])))
            for a, b in zip(own["started_s"], own["ended_s"], strict=True)
        ]

    before, after = asked(calm), asked(changed)
    assert before[:6] == after[:6]
    assert calm.ledger.event_digest() != changed.ledger.event_digest()
    if selection != "uniform":
        early = [fed.ledger.frames()["selection"].query("round <= 6") for fed in (calm, changed)]
        pd.testing.assert_frame_equal(*early, check_exact=True)


def test_questions_cost_air_time_and_computing() -> None:
    """Three candidates are sent 320 bit, compute a forward pass each, send 32 bit; then two of them have a round."""
    rule = "{kind: power-of-choice, candidates: 3}"
    unicast = "network.downlink.mode=unicast"
    fed = run_small("algorithm.cohort=2", f"algorithm.selection={rule}", "stop.rounds=1", unicast, timing_only=True)
    frames = fed.ledger.frames()
    transfers, computes = frames["transfers"], frames["computes"]
    up = transfers[transfers["kind"] == "uplink"].sort_values("requested_s")
    forward, whole = fed.task.model.forward_flop_per_sample * 20, fed.task.model.flop_per_sample * 20

    assert up["size_bit"].tolist() == [32, 32, 32, 320, 320]
    assert (transfers["kind"] == "downlink").sum() == 3 + 2
    assert sorted(computes["flop"]) == pytest.approx([forward] * 3 + [whole] * 2)
    assert fed.ledger.sent_bit[:2] == [3 * 32 + 2 * 320, 5 * 320]


def test_what_was_seen_is_recorded() -> None:
    """One row for each device that was asked: whether its upload came, and when, counted from the question."""
    fed = run_small(
        "algorithm.cohort=4",
        "algorithm.selection=all",
        "algorithm.deadline_s=0.01",
        "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1]}",
        "stop.rounds=2",
        timing_only=True,
    )
    asked = fed.ledger.frames()["selection"]

    assert asked["round"].tolist() == [1] * 4 + [2] * 4
    assert asked["device"].tolist() == [0, 1, 2, 3] * 2
    assert asked["arrived"].tolist() == [True, True, True, False] * 2
    assert asked["took_s"][3] == pytest.approx(0.01)
    assert asked["took_s"][:3].is_monotonic_increasing


def test_losses_and_reports_of_lost_uploads_are_not_known() -> None:
    """A device whose uploads are all lost stays unexplored, so that its share of exploration is not spent on others."""
    lossy = "network.uplink.loss={kind: random, probability: 0.999999}"
    fed = run_small("algorithm.cohort=2", "algorithm.selection=oort", lossy, "stop.rounds=5", timing_only=True)

    assert not fed.learner.nominal  # nothing was read
    assert not fed.ledger.frames()["selection"]["arrived"].any()


def test_round_robin_is_fair_and_best_channel_is_not() -> None:
    """After whole turns all were asked alike; by rate, nobody whose link is slower than that of one who never was."""
    settings = ("devices.count=10", "algorithm.cohort=2", "stop.rounds=10", "channel=urban-micro")
    far = ("devices.placement.radius_m=300",)
    fair, fast = (
        run_small(*settings, *far, f"algorithm.selection={kind}", timing_only=True)
        for kind in ("round-robin", "best-channel")
    )

    assert dict(fair.ledger.asked) == dict.fromkeys(range(10), 2)
    rates_bps = np.array([k.expected_rate_bps for k in fast.devices()])
    out = sorted(set(range(10)) - set(fast.ledger.asked))
    assert out
    assert rates_bps[list(fast.ledger.asked)].min() > rates_bps[out].max()


@pytest.mark.parametrize(("compression", "model_bit"), [("none", 320), ("float16", 160)])
def test_the_expected_upload_has_all_numbers(compression: str, model_bit: int) -> None:
    """Of 25 numbers the 10 of the model may be compressed, and 15 take 32 bit each."""
    fed = small_federation(f"network.uplink.compression={compression}")
    work = RoundWork(fed, SgdPlan(lr=0.1, batch_size=None, steps=1), down=10, up=25)

    assert work.up_bit == model_bit + 15 * 32

"""Planned rounds as they are played: times and energies of the plan, clocks, losses, and what is refused."""

import numpy as np
import pytest

from fednet_emu.algorithms.selection.base import RoundWork
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_federation, small_scenario

STEADY = (
    "channel={include: urban-micro, fading: none, bandwidth_hz: 3e5}",
    "devices.speed={kind: list, flop_per_s: [1e6, 2e6, 4e6, 8e6]}",
    "algorithm.local_steps=20",
)


def planned(planner: str, *more: str) -> tuple[str, ...]:
    """A steady federation with a planned uplink."""
    return (*STEADY, f"network.uplink.access={{kind: planned, planner: {planner}}}", *more)


def plan_and_uploads(fed):
    """The rows of the plan and of the uploads, both by round and device."""
    frames = fed.ledger.frames()
    up = frames["transfers"][frames["transfers"]["kind"] == "uplink"].sort_values(["requested_s", "sender"])
    return frames["plan"], up, frames


@pytest.mark.parametrize("planner", ["least-time", "{kind: least-energy, stretch: 1.7}"])
def test_uploads_arrive_when_they_were_planned_to(planner):
    """Without fading and stragglers every upload ends at the planned end of the round, to a microsecond."""
    plan, up, frames = plan_and_uploads(run_small(*planned(planner)))
    rounds = frames["rounds"].set_index("round")
    ends_s = rounds.loc[plan["round"], "started_s"].to_numpy() + plan["ends_s"].to_numpy()

    assert len(up) == len(plan) == 12
    assert np.sort(up["ended_s"].to_numpy()) == pytest.approx(np.sort(ends_s), abs=1e-6)
    assert rounds["ended_s"].to_numpy() == pytest.approx(ends_s[3::4], abs=1e-6)


ONE_CELL = ("devices.placement={kind: list, xy_m: [[20, 0], [90, 0], [40, 30], [150, 0]]}",)
TWO_CELLS = (
    "devices.placement={kind: list, xy_m: [[20, 0], [4910, 0], [90, 0], [4980, 0]]}",
    "network.cells={kind: list, xy_m: [[0, 0], [5000, 0]]}",
)
"""Stations so far apart that they hardly hear each other, each with a near and a far device."""


@pytest.mark.parametrize("where", [ONE_CELL, TWO_CELLS], ids=["one cell", "two cells"])
@pytest.mark.parametrize(
    ("planner", "asked"),
    [
        ("least-time", 4),
        ("{kind: least-energy, stretch: 1.7}", 4),
        ("{kind: fedl, j_per_s: 0.1}", 4),
        ("{kind: fedl, j_per_s: 10}", 4),
        ("{kind: resource-blocks, blocks: 4}", 4),
        ("{kind: resource-blocks, blocks: 1}", None),
    ],
)
def test_each_upload_ends_when_the_plan_says(planner, asked, where):
    """By device, in turns or in parts, where the devices with slow downlinks are not asked, and in each cell."""
    more = (*where, "network.overhead={kind: header, header_bit: 400}", "stop.rounds=2")
    plan, up, frames = plan_and_uploads(run_small(*planned(planner, *more), timing_only=True))
    started_s = dict(zip(frames["rounds"]["round"], frames["rounds"]["started_s"], strict=True))
    ends_s = {(row.round, row.device): started_s[row.round] + row.ends_s for row in plan.itertuples()}
    ended_s = {(1 + (row.requested_s >= started_s[2]), row.sender): row.ended_s for row in up.itertuples()}

    assert len(ends_s) == 2 * (asked or (1 if where is ONE_CELL else 2))
    assert ended_s == pytest.approx(ends_s, abs=1e-6)


def test_least_energy_spends_what_clocks_and_powers_say():
    """Time goes by 1/x and energy by x^2 of a clock, power times time is what an upload takes."""
    plan, up, frames = plan_and_uploads(run_small(*planned("{kind: least-energy, stretch: 1.7}")))
    full = run_small(*planned("least-time")).ledger.frames()["computes"]
    computes = frames["computes"]
    clock = plan["clock_part"].to_numpy()
    order = np.argsort(computes["device"].to_numpy(), kind="stable")
    of_plan = np.argsort(plan["device"].to_numpy(), kind="stable")
    of_full = np.argsort(full["device"].to_numpy(), kind="stable")

    def took_s(rows):
        return (rows["ended_s"] - rows["started_s"]).to_numpy()

    assert took_s(computes)[order] * clock[of_plan] == pytest.approx(took_s(full)[of_full], rel=1e-6)
    assert computes["energy_j"].to_numpy()[order] == pytest.approx(
        full["energy_j"].to_numpy()[of_full] * clock[of_plan] ** 2
    )
    by_device = plan.set_index(["round", "device"])["power_part"]
    part = np.array([by_device[1 + place // 4, sender] for place, sender in enumerate(up["sender"])])
    full_w = 10 ** ((23 - 30) / 10)
    assert up["energy_j"].to_numpy() == pytest.approx(part * full_w * (up["ended_s"] - up["started_s"]).to_numpy())


def test_clocks_of_an_earlier_plan_are_forgotten():
    """Candidates compute their losses before a round is planned: at their full clocks in the second round, too."""
    ask = "algorithm.selection={kind: power-of-choice, candidates: 4}"
    cmos = "devices.compute_energy={kind: cmos, clock_hz: 1e9, flop_per_cycle: 8}"
    rows = run_small(*planned("{kind: least-energy, stretch: 5}", ask, cmos, "stop.rounds=2"), timing_only=True)
    forward = rows.task.model.forward_flop_per_sample * 20
    computes = rows.ledger.frames()["computes"].query(f"flop < {1.5 * forward}")
    took_s = (computes["ended_s"] - computes["started_s"]).to_numpy()

    assert min(row["clock_part"] for row in rows.ledger.series["plan"]) < 0.5
    assert took_s == pytest.approx(forward / np.array([1e6, 2e6, 4e6, 8e6])[computes["device"].to_numpy()], rel=1e-3)
    assert len(took_s) == 8


def test_less_energy_for_more_time():
    """Least energy takes longer than least time, and less energy; both hold every conservation law."""
    quick, slow = (run_small(*planned(planner)).ledger for planner in ("least-time", "least-energy"))

    def spent_j(ledger):
        up = ledger.frames()["transfers"].query("kind == 'uplink'")["energy_j"].sum()
        return up + ledger.frames()["computes"]["energy_j"].sum()

    assert spent_j(slow) < 0.5 * spent_j(quick)
    assert slow.frames()["rounds"]["ended_s"].max() == pytest.approx(2 * quick.frames()["rounds"]["ended_s"].max())
    assert not any(verify(slow, frozenset({"downlink"})).values())


def test_fedl_takes_turns():
    """No two uploads overlap, and all of them use the whole band."""
    plan, up, _ = plan_and_uploads(run_small(*planned("fedl")))
    up = up.sort_values("started_s")

    assert (up["started_s"].to_numpy()[1:] >= up["ended_s"].to_numpy()[:-1]).all()
    assert set(plan["share"]) == {1.0}


def test_uploads_are_lost_as_often_as_the_plan_says():
    """Blocks with an interference at which q = 1 - exp(-m / x) is about a third lose about a third."""
    noisy = "{kind: resource-blocks, blocks: 4, interference_db: [60, 60, 60, 60], waterfall_db: 10}"
    rate = "channel.rate={kind: shannon, min_efficiency_bps_hz: 0}"
    plan, up, _ = plan_and_uploads(run_small(*planned(noisy, rate, "stop.rounds=100"), timing_only=True))
    mean, n = plan["error"].mean(), len(up)

    assert 0.05 < mean < 0.95
    spread = np.sqrt((plan["error"] * (1 - plan["error"])).sum()) / n
    assert (up["lost"] == "erased").mean() == pytest.approx(mean, abs=4 * spread)


def test_devices_without_a_block_are_not_asked():
    """With two blocks two of four devices are in each round, and the record of a round says so."""
    _, up, frames = plan_and_uploads(run_small(*planned("{kind: resource-blocks, blocks: 2}")))

    assert frames["rounds"]["invited"].tolist() == [2, 2, 2]
    assert len(up) == 6


def test_a_plan_that_nobody_fits_into_is_told_once():
    """No upload is short enough: nobody is asked in any round, and a warning says why, once."""
    with pytest.warns(UserWarning, match="the planner resource-blocks lets none of the 4 devices of round 1") as told:
        fed = run_small(*planned("{kind: resource-blocks, upload_s: 1.0e-9}"))

    assert fed.ledger.frames()["rounds"]["invited"].tolist() == [0, 0, 0]
    assert len(told) == 1


def test_spare_band_is_used_if_it_may_be():
    """With `spare: used` no round is longer than planned, and some upload is sooner."""
    idle, used = (
        run_small(
            *planned("least-time", "devices.straggler={kind: shifted-exponential, mean_factor: 1}", f"{SPARE}={w}")
        )
        for w in ("idle", "used")
    )

    assert used.now_s < idle.now_s


SPARE = "network.uplink.access.spare"


def test_clocks_scale_time_and_energy():
    """Half the clock takes twice the time and a quarter of the energy of every computation."""
    full, half = (run_small(f"devices.frequency.part={part}").ledger.frames()["computes"] for part in (1.0, 0.5))

    assert (half["ended_s"] - half["started_s"]).to_numpy() == pytest.approx(
        2 * (full["ended_s"] - full["started_s"]).to_numpy()
    )
    assert half["energy_j"].to_numpy() == pytest.approx(full["energy_j"].to_numpy() / 4)


def expected_s(setting):
    """What the server expects of 720 us of work on each device, as rules of selection see it."""
    fed = small_federation(setting)
    plan = SgdPlan(lr=0.1, batch_size=None, steps=1)
    return RoundWork(fed, plan, 1, 1).compute_s


def test_the_slowest_clock_in_time_is_chosen():
    """720 us of work within 1.8 ms runs at f = C D / T, 0.4 of the clock; within 1 s at the lowest."""
    full = run_small().ledger.frames()["computes"]["energy_j"].to_numpy()
    for within_s, part in ((0.0018, 0.4), (1.0, 0.1), (0.0001, 1.0)):
        computes = run_small(f"devices.frequency.within_s={within_s}").ledger.frames()["computes"]

        assert (computes["ended_s"] - computes["started_s"]).to_numpy() == pytest.approx(720e-6 / part)
        assert expected_s(f"devices.frequency.within_s={within_s}") == pytest.approx(720e-6 / part)
        assert computes["energy_j"].to_numpy() == pytest.approx(full * part**2)


def test_a_clock_of_one_changes_nothing():
    """The default has the digest of a scenario that says nothing."""
    assert run_small("devices.frequency={part: 1.0}").ledger.event_digest() == run_small().ledger.event_digest()


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("algorithm={kind: fedasync, alpha: 0.6, lr: 0.2, local_steps: 4, batch_size: 8}", "does not say who takes"),
        (
            "channel.rate={kind: fixed, bit_rate_bps: 1e6}",
            "closed forms of channel.rate shannon, got planned with fixed",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused(setting, wrong):
    """Algorithms without rounds, and rate laws without closed forms, are refused with a way out."""
    found = [what for path, what in small_scenario(*planned("least-time", setting)).contradictions()]

    assert any(wrong in what for what in found)

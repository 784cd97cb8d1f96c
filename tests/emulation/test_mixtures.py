"""Devices of several kinds in one run: who has which profile."""

from __future__ import annotations

import pytest

from fednet_emu.devices.profiles import dealt
from fednet_emu.emulation.hardware import hardware
from fednet_emu.kernel.streams import Streams
from fednet_emu.testing import run_small, small_scenario
from tests.emulation.test_profiles import MIXED, ended_of, of


@pytest.mark.parametrize(
    ("shares", "count", "counts"),
    [
        ((1, 1), 5, (3, 2)),
        ((0.5, 0.3, 0.2), 7, (4, 2, 1)),
        ((2, 1), 3, (2, 1)),
        ((1, 1, 1), 2, (1, 1, 0)),
        ((9, 1), 4, (4, 0)),
    ],
)
def test_shares_are_dealt_by_largest_remainders(shares, count, counts):
    """Hamilton's method; of equal remainders the first gets it. Which devices it is, is drawn, and repeats."""
    profiles = [of("pi-4b").model_copy(update={"share": float(share)}) for share in shares]

    def deal(seed: int) -> bytes:
        return dealt(profiles, count, lambda: Streams(seed)("profile"))

    assert tuple(deal(0).count(number) for number in range(len(shares))) == counts
    assert deal(0) == deal(0)
    assert len({dealt(profiles, 40, lambda seed=seed: Streams(seed)("profile")) for seed in range(5)}) == 5


def test_each_device_of_a_mixture_has_the_speed_and_the_powers_of_its_own_profile():
    """Of four devices two are boards, which take 11.4 s longer, and draw other powers in each state."""
    starts = "compute: {overhead_s: 11.4}, evidence: {overhead_s: measured}"
    mixed = f"devices.profile=[{{include: pi-4b, share: 0.5, {starts}}}, {{include: phone-2019-mid, share: 0.5}}]"
    scenario = small_scenario(mixed, "devices.speed=null", "stop.rounds=1", "network.downlink.mode=unicast")
    which = hardware(scenario, Streams(scenario.seed)).which
    ended = ended_of(scenario)
    frames, summary = ended.ledger.frames(), ended.summary
    made, sent = frames["computes"].set_index("device"), frames["transfers"]
    up, down = sent[sent["sender"] >= 0].set_index("sender"), sent[sent["sender"] < 0].set_index("receiver")

    assert sorted(which) == [0, 0, 1, 1]
    for device, number in enumerate(which):
        board = number == 0
        due_s = 11.4 + 720 / 1.389e10 if board else 720 / 1.7563e9
        took_s = made.loc[device, "ended_s"] - made.loc[device, "started_s"]
        assert took_s == pytest.approx(due_s, abs=2e-9)
        assert made.loc[device, "energy_j"] == pytest.approx((2.4 if board else 2.9) * took_s, rel=1e-9)
        assert up.loc[device, "energy_j"] == pytest.approx((2.1 if board else 1.74) * 320e-6, rel=1e-9)
        assert down.loc[device, "receive_j"] == pytest.approx((0.0 if board else 0.54) * 320e-6, rel=1e-9)
    assert summary["idle_j"] == pytest.approx((2 * 2.7 + 2 * 0.1) * summary["simulated_s"], rel=1e-12)
    assert summary["verified"]


def test_batteries_of_a_mixture_draw_the_powers_of_each_device():
    """Whatever a device draws without a battery, its battery gives, to the last joule that the records know."""
    plain, powered = (
        run_small(MIXED, "devices.speed=null", "stop.rounds=1", *more)
        for more in ((), ("devices.battery={capacity_j: 1000}",))
    )
    last = powered.ledger.frames()["batteries"].groupby("device").last()
    drawn_j = last[["computing_j", "sending_j", "receiving_j", "idle_j"]].to_numpy().sum()
    stations = plain.ledger.transfers.column("sender") < 0

    spent_j = plain.ledger.spent_j(plain.clock.now) - plain.ledger.transfers.column("energy_j")[stations].sum()
    assert drawn_j == pytest.approx(spent_j, rel=1e-9)
    assert len(set(last["idle_j"].round(6))) == 2


def test_a_million_devices_cost_a_byte_each():
    """What profiles say is kept once per profile, with a byte for each device."""
    scenario = small_scenario(MIXED, "devices.count=1000000", "devices.speed=null")
    hard = hardware(scenario, Streams(0))

    assert len(hard.which) == 10**6
    assert hard.powers.idle_w.values == (2.7, 0.1)
    assert hard.powers.idle_w.total == pytest.approx(500_000 * 2.8)

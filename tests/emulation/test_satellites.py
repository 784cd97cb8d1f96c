"""Stories of satellites: rounds by hand from closed forms."""

import math

import pytest

import fednet_emu as fe

SITE = {"lat_deg": 0, "lon_deg": 0, "height_m": -7137}
MASK_DEG = 10
BIT = 32 * (64 * 10 + 10)
RADIUS_M, LIGHT_M_S = 6.371e6, 299_792_458.0
RELATIVE_RAD_S = math.sqrt(3.986004418e14 / 6.921e6**3) - 7.292115e-5
SET_S = math.radians(14.967581) / RELATIVE_RAD_S
"""When the satellite that was overhead at time 0 sets below 10 degrees, by the table of circular orbits."""
RISE_S = 2 * math.pi / RELATIVE_RAD_S - SET_S
ONE = {
    "devices.count": 1,
    "devices.mobility": {"kind": "walker", "planes": 1, "inclination_deg": 0, "height_m": 5.5e5},
    "devices.availability": {"kind": "passes", "mask_deg": MASK_DEG},
    "network.cells.sites": [SITE],
    "model": {"kind": "softmax"},
    "channel.path_loss": {"kind": "free-space"},
    "channel.rate": {"kind": "fixed", "bit_rate_bps": BIT / 100, "threshold_db": -100},
    "algorithm.cohort": 1,
    "algorithm.local_steps": 1,
}


def played(**changes):
    """A run of one satellite above the equator, whose messages take 100 s, and its transfers."""
    run = fe.run("satellites", settings={**ONE, **changes}, timing_only=True)
    return run, run.transfers


def way_s(at_s):
    """Time from the satellite to the station for what starts then."""
    angle = RELATIVE_RAD_S * at_s
    reach_m = math.sqrt(RADIUS_M**2 + 6.921e6**2 - 2 * RADIUS_M * 6.921e6 * math.cos(angle))
    return reach_m / LIGHT_M_S


def test_rounds_of_a_pass_by_hand():
    """Down 100 s and d / c, up 100 s and d / c; the second round is cut at the set, and begins anew at the rise."""
    run, sent = played(**{"stop": {"rounds": 2}, "devices.speed": {"kind": "fixed", "flop_per_s": 1e12}})
    computing_s = run.computes["ended_s"] - run.computes["started_s"]
    first, second = sent.iloc[0], sent.iloc[1]
    assert first["reception_delay_s"] == pytest.approx(way_s(0), abs=1e-8)
    assert second["started_s"] == pytest.approx(100 + way_s(0) + computing_s[0], abs=1e-6)
    assert second["ended_s"] == pytest.approx(second["started_s"] + 100 + way_s(second["started_s"]), abs=1e-6)
    cut, again, last = sent.iloc[2], sent.iloc[3], sent.iloc[4]
    assert (cut["direction"], cut["loss_reason"]) == ("downlink", "left")
    assert cut["ended_s"] == pytest.approx(SET_S, abs=2e-3)
    assert again["started_s"] == pytest.approx(RISE_S, abs=2e-3)
    assert again["ended_s"] == pytest.approx(RISE_S + 100 + way_s(RISE_S), abs=4e-3)
    assert (last["direction"], last["loss_reason"]) == ("uplink", "")
    assert len(sent) == 5


def test_a_model_larger_than_a_pass_never_arrives():
    """It is begun at every pass, cut at every set, and nothing is sent between passes."""
    rate = {"kind": "fixed", "bit_rate_bps": BIT / 600, "threshold_db": -100}
    run, sent = played(**{"stop": {"simulated_s": 30_000}, "channel.rate": rate})
    assert run.summary["rounds"] == 0
    assert set(sent["loss_reason"][:-1]) == {"left"}
    assert len(sent) >= 5
    assert (sent["ended_s"] - sent["started_s"])[1:-1].to_numpy() == pytest.approx(2 * SET_S, abs=4e-3)
    passes = 30_000 * 2 * SET_S / (RISE_S + SET_S) + 2 * SET_S
    assert (sent["ended_s"] - sent["started_s"]).sum() <= passes


def test_an_answer_waits_for_the_next_pass():
    """Training outlasts the pass: the upload is lost as away, costs nothing, and starts at the rise."""
    _, sent = played(**{"stop": {"rounds": 1}, "devices.overhead_s": 1000})
    down, away, up = (sent.iloc[k] for k in range(3))
    assert [down["loss_reason"], away["loss_reason"], up["loss_reason"]] == ["", "away", ""]
    assert math.isnan(away["started_s"])
    assert up["requested_s"] == up["started_s"] == pytest.approx(RISE_S, abs=2e-3)


def test_an_empty_battery_is_no_set():
    """What a battery is too small for is lost as on the ground, and not begun again and again during the pass."""
    battery = {"capacity_j": 5, "harvesting": {"kind": "constant", "power_w": 0.1}}
    _, sent = played(**{"stop": {"rounds": 1}, "devices.battery": battery})
    assert sent[sent["direction"] == "uplink"]["loss_reason"].tolist() == ["empty"]


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        ({"kind": "fedbuff", "concurrency": 2, "buffer_size": 1, "lr": 0.1, "batch_size": 20, "local_steps": 1}, 4),
        ({"kind": "cyclic-fedavg", "structure": {"kind": "scenario-1", "groups": 2}, "lr": 0.1}, 2),
    ],
)
def test_nothing_starts_outside_a_pass(algorithm, rounds):
    """Of four satellites: each transfer begins and leaves the air within one pass of its own, under any algorithm."""
    run = fe.run(
        "satellites",
        settings={**ONE, "devices.count": 4, "algorithm": algorithm, "stop": {"rounds": rounds}},
        timing_only=True,
    )
    sent = run.transfers[run.transfers["started_s"].notna()]
    period_s = 2 * math.pi / RELATIVE_RAD_S
    for row in sent.itertuples():
        device = max(row.sender, row.receiver)
        phase_s = (row.started_s + device * period_s / 4 + SET_S) % period_s - SET_S
        assert phase_s >= -SET_S - 2e-3
        assert phase_s + row.ended_s - row.started_s - row.reception_delay_s <= SET_S + 4e-3
    assert run.summary["rounds"] == rounds


def test_a_fixed_delay_frees_the_band():
    """Two uploads of one second that take turns, ten seconds on their way: the second leaves when the first is sent."""
    bit = 32 * 650
    changes = {
        "devices.count": 2,
        "devices.speed": {"kind": "fixed", "flop_per_s": 1e9},
        "devices.straggler": {"kind": "none"},
        "algorithm.cohort": 2,
        "model": {"kind": "softmax"},
        "channel": {"carrier_hz": 1e9, "path_loss": {"kind": "free-space"}},
        "channel.rate": {"kind": "fixed", "bit_rate_bps": bit, "threshold_db": -100},
        "network.uplink": {"access": "tdma", "delay": {"kind": "fixed", "time_s": 10}},
        "stop": {"rounds": 1},
    }
    run = fe.run("quickstart", settings=changes, timing_only=True)
    one, two = (row for row in run.transfers.query("direction == 'uplink'").itertuples())
    assert (one.ended_s - one.started_s, one.reception_delay_s) == pytest.approx((11, 10))
    assert two.started_s == pytest.approx(max(one.started_s + 1, two.requested_s))
    assert two.ended_s - two.started_s == pytest.approx(11)
    assert run.simulated_s == two.ended_s

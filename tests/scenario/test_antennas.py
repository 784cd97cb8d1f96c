"""Claims about base stations with several antennas in a whole run: who sees the gain, what is refused, same events."""

import math

import pandas as pd
import pytest

from fednet_emu.algorithms.cyclic.admission import candidate_senders
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import digest_of, resumed_every_round
from tests.quick import crossed

CAPACITY = "channel.rate={kind: shannon, gap_db: 0, max_efficiency_bps_hz: null, min_efficiency_bps_hz: 0}"
FADING = "channel.fading={kind: rayleigh, coherence_s: 1.0e-5}"
FAINT = "channel.device.tx_power_dbm=-40"
MRC, ZF = "network.reception={kind: mrc, antennas: 4}", "network.reception={kind: zf, antennas: 4}"
CELLS = "network.cells={kind: hexagonal, rings: 1, inter_site_distance_m: 40}"
ACCESSES = ["tdma", "ofdma", "{kind: ofdma, scheduler: equal-finish}", "{kind: ofdma, scheduler: proportional-fair}",
            "planned", "{kind: shared, max_senders: 3}"]  # fmt: skip
ALOHA = "{kind: slotted-aloha, slot_s: 1.0e-4, capture_db: -3}"
CASES = [(MRC, access) for access in [*ACCESSES, ALOHA]] + [(ZF, access) for access in ACCESSES]
EACH_CASE = pytest.mark.parametrize(("reception", "access"), CASES)


def settings_of(reception: str, access: str, *more: str) -> tuple[str, ...]:
    """Fading links of an uplink with antennas, some of whose packets are lost."""
    loss = "network.uplink.loss={kind: random, probability: 0.2}"
    return (
        CAPACITY,
        FADING,
        FAINT,
        reception,
        f"network.uplink.access={access}",
        loss,
        "algorithm.deadline_s=1",
        *more,
    )


@EACH_CASE
def test_timing_only_has_the_events_of_the_full_run(reception: str, access: str) -> None:
    """Antennas know nothing of what is sent; and they change the events of one antenna."""
    settings = settings_of(reception, access)

    whole = digest_of(run_small(*settings))

    assert whole == digest_of(run_small(*settings, timing_only=True))
    assert whole != digest_of(run_small(*settings, "network.reception=single", timing_only=True))


@EACH_CASE
def test_it_goes_on_from_a_checkpoint_file(reception: str, access: str) -> None:
    """Cut after every round and resumed, with seven base stations: nothing differs in a bit."""
    settings = settings_of(reception, access, "stop.rounds=2", CELLS)

    whole, (last, _) = run_small(*settings), resumed_every_round(2, *settings)

    for name, frame in whole.ledger.frames().items():
        pd.testing.assert_frame_equal(last.ledger.frames()[name], frame, check_exact=True)


@pytest.mark.parametrize(("access", "kind"), crossed(ACCESSES, ["mrc", "zf"]))
def test_one_antenna_is_one_antenna(kind: str, access: str) -> None:
    """However it is called, it has the same events, except that one antenna can null nobody."""
    if kind == "zf" and "shared" in access:
        access = "{kind: shared, max_senders: 1}"
    settings = settings_of(f"network.reception={{kind: {kind}, antennas: 1}}", access)

    assert digest_of(run_small(*settings)) == digest_of(run_small(*settings, "network.reception=single"))


@pytest.mark.parametrize("antennas", [1, 4, 64])
def test_uploads_take_the_time_of_the_array_and_downloads_that_of_one_antenna(antennas: int) -> None:
    """Size over B log2(1 + N snr) without fading, as the server expects it."""
    fed = run_small(CAPACITY, FAINT, f"network.reception={{kind: mrc, antennas: {antennas}}}", "stop.rounds=1")
    one = small_federation(CAPACITY, FAINT)
    rows = fed.ledger.frames()["transfers"]

    for row in rows[rows["kind"] == "uplink"].itertuples():
        rate_bps = 20e6 * math.log2(1 + antennas * one.network.up_links.mean_snr[row.sender])
        assert fed.network.expected_uplink_bps(row.sender) == pytest.approx(rate_bps)
        assert fed.network.expected_downlink_bps(row.sender) == one.network.expected_downlink_bps(row.sender)
        assert row.ended_s - row.started_s == pytest.approx(320 / rate_bps, abs=2e-9)


def test_planned_uploads_end_when_they_were_planned_to() -> None:
    """Planners know the gain: without fading all uploads of a round end together."""
    fed = run_small(CAPACITY, FAINT, MRC, "network.uplink.access=planned", "stop.rounds=1")
    one = run_small(CAPACITY, FAINT, "network.uplink.access=planned", "stop.rounds=1")
    rows = fed.ledger.frames()["transfers"]
    ends_s = rows.loc[rows["kind"] == "uplink", "ended_s"]

    assert ends_s.max() - ends_s.min() < 1e-6
    assert ends_s.max() < one.ledger.frames()["transfers"]["ended_s"].max()


def test_controlled_powers_are_lower_by_the_gain() -> None:
    """The power that reaches a target over noise is a quarter with four antennas, at the same SNR."""
    control = "network.power_control={kind: target-snr, target_snr_db: 10}"
    one, four = (small_federation(CAPACITY, control, more).network.up_links for more in ("seed=0", MRC))

    for device in range(4):
        assert four.power_w(device) == pytest.approx(one.power_w(device) / 4)
        assert four.snr(device, SERVER) == pytest.approx(10.0) == one.snr(device, SERVER)


def test_more_may_send_together_with_more_antennas() -> None:
    """What admission says of four equal senders at 0 dB: one antenna decodes one, four antennas decode all."""
    placement = "devices.placement={kind: list, xy_m: [[20, 0], [0, 20], [-20, 0], [0, -20]]}"
    shared = "network.uplink.access={kind: shared, max_senders: 4, threshold_db: 0}"
    faint, low = "channel.device.tx_power_dbm=-20", "channel.rate={kind: shannon, min_efficiency_bps_hz: 0}"
    decoded = []
    for more in (MRC, ZF):
        rivals = candidate_senders(small_federation(placement, shared, faint, low, more), 0.0)
        decoded.append(rivals.joint_powers([0, 1, 2, 3]) is not None)

    assert decoded == [True, True]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ((MRC, "network.uplink.access=noma"), "network.reception: successive cancellation is that of one antenna"),
        ((ZF, f"network.uplink.access={ALOHA}"), "not known who sends in a slot"),
        ((ZF, "network.uplink.access=shared", "devices.count=5"), "cannot null all senders of a cell, got 4 for 5"),
        ((ZF, "network.uplink.access={kind: shared, max_senders: 5}", "devices.count=8"), "got 4 for 5; give more"),
        ((ZF, "network.uplink.access=shared", CAPACITY, FADING, "channel.long_transfers=ergodic"), "set channel.long"),
        ((MRC, "network.uplink.access=over-the-air"), "network.reception: signals add up at one antenna, got mrc"),
        ((MRC, "network.uplink.trace={kind: lumos-5g}"), "recorded rates are those of the receiver that was there"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: tuple[str, ...], why: str) -> None:
    """Before anything runs, with what to change."""
    found = [f"{'.'.join(path)}: {what}" for path, what in small_scenario(*settings).contradictions()]

    assert any(why in problem for problem in found)


def test_ergodic_rates_take_maximum_ratio() -> None:
    """Long transfers at mean rates take as long as walked blocks, to a few parts in a hundred."""
    settings = (
        CAPACITY,
        "channel.fading={kind: rayleigh, coherence_s: 1.0e-7}",
        "channel.device.tx_power_dbm=-30",
        MRC,
    )
    lasted = []
    for long_transfers in ("walk", "ergodic"):
        rows = run_small(*settings, f"channel.long_transfers={long_transfers}").ledger.frames()["transfers"]
        up = rows[rows["kind"] == "uplink"]
        lasted.append((up["ended_s"] - up["started_s"]).sum())

    assert lasted[0] == pytest.approx(lasted[1], rel=0.03)

"""Networks in scenario files: what cannot work is said before the run, and what can runs."""

import math
import re
from pathlib import Path

import pandas as pd
import pytest

import fednet_emu as fe
from fednet_emu.algorithms.cyclic.structures import candidate_senders
from fednet_emu.emulation.outlook import Outlook, unreachable
from fednet_emu.emulation.plausibility import slots
from fednet_emu.errors import ScenarioError
from fednet_emu.network.access.contention import FullReuse
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.library import names
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import digest_of, resumed_every_round
from tests.quick import crossed
from tests.tables import rows_of

THRESHOLD = "channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: 3}"


@pytest.mark.parametrize(
    "changes",
    [
        ("network.uplink.access=full-reuse", THRESHOLD),
        ("network.uplink.access={kind: full-reuse, max_senders: 2}", THRESHOLD),
        ("network.uplink.access={kind: full-reuse, sinr_threshold_db: 0}",),
    ],
)
def test_a_shared_uplink_that_can_never_deliver_two_at_once_is_refused(changes):
    """One receiver, no cancellation, 0 dB or more: the problem names the key, the threshold and the ways out."""
    [(path, what)] = small_scenario(*changes).contradictions()

    assert path == ("network", "uplink", "access")
    assert "can never decode two at once" in what
    assert ("got full-reuse with a threshold of 3.0 dB" in what) or ("threshold of 0.0 dB" in what)
    assert "max_senders: 1, or choose noma" in what


@pytest.mark.parametrize(
    "changes",
    [
        ("network.uplink.access=full-reuse", "channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: -0.1}"),
        ("network.uplink.access={kind: full-reuse, max_senders: 1}", THRESHOLD),
        ("network.uplink.access=full-reuse", THRESHOLD, "devices.count=1", "algorithm.cohort=1"),
        ("network.uplink.access=full-reuse", THRESHOLD, "network.cells={kind: list, xy_m: [[0, 0], [400, 0]]}"),
        ("network.uplink.access=noma", THRESHOLD),
        ("network.uplink.access=tdma", THRESHOLD),
        ("network.downlink.access=full-reuse", THRESHOLD),
    ],
)
def test_whatever_can_deliver_is_not_refused(changes):
    """A lower threshold, one at a time, a lone device, several receivers, cancellation, turns, one sender."""
    assert list(small_scenario(*changes).contradictions()) == []


@pytest.mark.parametrize("cells", ["single", "{kind: hexagonal, rings: 1, inter_site_distance_m: 60}"])
@pytest.mark.parametrize(
    "access",
    [
        "tdma",
        "{kind: ofdma, scheduler: proportional-fair}",
        "{kind: ofdma, scheduler: equal-finish}",
        "noma",
        "full-reuse",
        "{kind: slotted-aloha, slot_s: 0.0001, capture_db: -20}",
    ],
)
def test_learning_runs_over_every_scheme_in_one_cell_and_in_several(access, cells):
    """Three rounds end, nothing is lost, every law holds."""
    rate = "channel.rate={kind: shannon, min_efficiency_bps_hz: 0}"
    fed = run_small(f"network.uplink.access={access}", f"network.cells={cells}", rate, timing_only=True)
    fed.close()

    assert fed.round == 3
    assert not any(verify(fed.ledger, frozenset()).values())
    assert set(fed.ledger.frame("transfers")["loss_reason"]) == {""}


def test_an_access_scheme_that_serves_both_directions_is_judged_on_the_uplink() -> None:
    """One object may be both: what only a base station cannot decode is a problem of the uplink alone."""
    shared = FullReuse(sinr_threshold_db=3)
    scenario = fe.check("quickstart", settings={"network.downlink.access": shared})

    assert scenario.network.downlink.access.kind == "full-reuse"
    with pytest.raises(ScenarioError) as refused:
        fe.check("quickstart", settings={"network.uplink.access": shared, "network.downlink.access": shared})
    (problem,) = refused.value.problems
    assert "network.uplink.access: one receiver without cancellation can never decode two at once" in problem


CAPACITY = "channel.rate={kind: shannon, gap_db: 0, max_efficiency_bps_hz: null, min_efficiency_bps_hz: 0}"
FADING = "channel.fading={kind: rayleigh, coherence_s: 1.0e-5}"
FAINT = "channel.device.tx_power_dbm=-40"
MRC, ZF = "network.reception={kind: mrc, antennas: 4}", "network.reception={kind: zf, antennas: 4}"
CELLS = "network.cells={kind: hexagonal, rings: 1, inter_site_distance_m: 40}"
ACCESSES = ["tdma", "ofdma", "{kind: ofdma, scheduler: equal-finish}", "{kind: ofdma, scheduler: proportional-fair}",
            "planned", "{kind: full-reuse, max_senders: 3}"]  # fmt: skip
ALOHA = "{kind: slotted-aloha, slot_s: 1.0e-4, capture_db: -3}"
CASES = [(MRC, access) for access in [*ACCESSES, ALOHA]] + [(ZF, access) for access in ACCESSES]
EACH_CASE = pytest.mark.parametrize(("reception", "access"), CASES)


def settings_of(reception: str, access: str, *more: str) -> tuple[str, ...]:
    """Fading links of an uplink with antennas, some of whose packets are lost."""
    loss = "network.uplink.message_loss={kind: random, probability: 0.2}"
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
        pd.testing.assert_frame_equal(last.ledger.frame(name), frame, check_exact=True)


@pytest.mark.parametrize(("access", "kind"), crossed(ACCESSES, ["mrc", "zf"]))
def test_one_antenna_is_one_antenna(kind: str, access: str) -> None:
    """However it is called, it has the same events, except that one antenna can null nobody."""
    if kind == "zf" and "full-reuse" in access:
        access = "{kind: full-reuse, max_senders: 1}"
    settings = settings_of(f"network.reception={{kind: {kind}, antennas: 1}}", access)

    assert digest_of(run_small(*settings)) == digest_of(run_small(*settings, "network.reception=single"))


@pytest.mark.parametrize("antennas", [1, 4, 64])
def test_uploads_take_the_time_of_the_array_and_downloads_that_of_one_antenna(antennas: int) -> None:
    """Size over B log2(1 + N snr) without fading, as the server expects it."""
    fed = run_small(CAPACITY, FAINT, f"network.reception={{kind: mrc, antennas: {antennas}}}", "stop.rounds=1")
    one = small_federation(CAPACITY, FAINT)
    rows = fed.ledger.frame("transfers")

    for row in rows[rows["direction"] == "uplink"].itertuples():
        rate_bps = 20e6 * math.log2(1 + antennas * one.network.up_links.mean_snr[row.sender])
        assert fed.network.expected_uplink_bps(row.sender) == pytest.approx(rate_bps)
        assert fed.network.expected_downlink_bps(row.sender) == one.network.expected_downlink_bps(row.sender)
        assert row.ended_s - row.started_s == pytest.approx(320 / rate_bps, abs=2e-9)


def test_planned_uploads_end_when_they_were_planned_to() -> None:
    """Planners know the gain: without fading all uploads of a round end together."""
    fed = run_small(CAPACITY, FAINT, MRC, "network.uplink.access=planned", "stop.rounds=1")
    one = run_small(CAPACITY, FAINT, "network.uplink.access=planned", "stop.rounds=1")
    rows = fed.ledger.frame("transfers")
    ends_s = rows.loc[rows["direction"] == "uplink", "ended_s"]

    assert ends_s.max() - ends_s.min() < 1e-6
    assert ends_s.max() < one.ledger.frame("transfers")["ended_s"].max()


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
    shared = "network.uplink.access={kind: full-reuse, max_senders: 4, sinr_threshold_db: 0}"
    faint, low = "channel.device.tx_power_dbm=-20", "channel.rate={kind: shannon, min_efficiency_bps_hz: 0}"
    decoded = []
    for more in (MRC, ZF):
        rivals = candidate_senders(small_federation(placement, shared, faint, low, more), 0.0)
        decoded.append(rivals.joint_powers([0, 1, 2, 3]) is not None)

    assert decoded == [True, True]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ((MRC, "network.uplink.access=noma"), "network.reception: successive cancellation is for one antenna"),
        ((ZF, f"network.uplink.access={ALOHA}"), "the senders of a slot are unknown"),
        ((ZF, "network.uplink.access=full-reuse", "devices.count=5"), "cannot null all senders of a cell, got 4 for 5"),
        ((ZF, "network.uplink.access={kind: full-reuse, max_senders: 5}", "devices.count=8"), "got 4 for 5; give more"),
        (
            (ZF, "network.uplink.access=full-reuse", CAPACITY, FADING, "channel.fading_model=ergodic"),
            "set channel.fading_model",
        ),
        ((MRC, "network.uplink.access=over-the-air"), "network.reception: signals add up at one antenna, got mrc"),
        ((MRC, "network.uplink.trace={kind: lumos-5g}"), "recorded rates belong to one receiver"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: tuple[str, ...], why: str) -> None:
    """Before anything runs, with what to change."""
    found = [f"{'.'.join(path)}: {what}" for path, what in small_scenario(*settings).contradictions()]

    assert any(why in problem for problem in found)


CELLS_CELLS = sorted(path.stem for path in (Path(__file__).parents[2] / "scenarios" / "cells").glob("*.yaml"))
SQUEEZENET_BIT = 24_132_984
"""727,598 numbers with the headers of TCP, HTTP/2 and gRPC: 3,015,024 bytes in packets of TCP, and 0.06 % of gRPC."""


def last_s(cell, devices):
    """The longest of so many uploads that start at once, in s."""
    settings = {
        "title": cell,
        "include": f"cells/{cell}",
        "devices": {
            "count": devices,
            "placement": {"kind": "disc", "radius_m": 6, "inner_radius_m": 4},
            "speed": {"kind": "fixed", "flop_per_s": 1e12},
        },
        "data": {"kind": "synthetic", "features": [3, 32, 32], "n_samples": 480, "n_test": 100},
        "partition": "iid",
        "model": {"kind": "mlp", "hidden": [236]},
        "algorithm": {"kind": "fedavg", "cohort": devices, "batch_size": 32},
        "stop": {"rounds": 1},
    }
    run = fe.run(settings, timing_only=True, progress=False)
    uplinks = run.transfers.query("direction == 'uplink'")
    assert run.summary["verified"]
    assert set(uplinks.wire_bit) == {SQUEEZENET_BIT}
    return float((uplinks.ended_s - uplinks.requested_s).max())


def test_they_are_no_scenarios_by_themselves():
    """The library lists scenarios that run; these are parts of one."""
    assert len(CELLS_CELLS) == 6
    assert not [name for name in names() if name.startswith("cells")]


@pytest.mark.parametrize(
    ("cell", "devices", "min_s", "max_s"),
    [
        # what the published ratios of a testbed imply of its cell: 8.66 Mbit/s with eight devices to 11.1 with one
        ("oai-n78-20mhz", 5, 5 * 24.13 / 11.1, 5 * 24.13 / 8.66),
        ("oai-n78-20mhz", 1, 2.5, 3.4),  # a climb to scheme 24, or 16, from what OpenAirInterface's code does
        ("oai-n78-40mhz", 1, 1.5, 1.8),
        ("oai-n78-40mhz", 5, 5.0, 8.0),
        ("srsran-n78-100mhz", 1, 24.13 / 86.9, 24.13 / 50),  # below the peak of 64QAM in 273 blocks
        ("wifi-n20", 1, 0.35, 0.395),  # the fluid, and ns-3 with acknowledgements of TCP on the air
        ("wifi-n20", 5, 2.12, 2.39),
        ("wifi-ac80", 1, 0.066, 0.082),
        ("wifi-ac80", 5, 0.40, 0.46),
        ("gigabit", 5, 5 * 0.02413, 5 * 0.0247 + 0.0006),  # packets, and frames of Ethernet with two round trips
    ],
)
def test_an_upload_takes_what_others_found(cell, devices, min_s, max_s):
    """Of 2.91 MB, alone and five at once."""
    assert min_s < last_s(cell, devices) < max_s


TCP = "network.transport={kind: tcp, rtt_s: 0.1, initial_window: 1}"
UNICAST = "network.downlink.mode=unicast"


@pytest.mark.parametrize(
    "changes",
    [
        ("network.uplink.access=tdma", "network.downlink.access=ofdma"),
        ("network.uplink.access=noma", "network.session={kind: grpc, tls: true, per_message_s: 0.01}"),
        ("network.uplink.access=ofdma", "network.cells={kind: list, xy_m: [[0, 0], [400, 0]]}"),
        (
            "network.uplink.access=ofdma",
            "devices.battery={capacity_j: 0.2, restart_share: 0.5}",
            "algorithm.deadline_s=5",
        ),
    ],
)
def test_every_law_holds_with_gaps(changes: tuple[str, ...]) -> None:
    """Turns, parts of the band, interference, several cells, batteries: bits, phases and energies add up."""
    run = fe.run(
        small_scenario(TCP, UNICAST, "model={kind: mlp, hidden: [256]}", *changes), timing_only=True, progress=False
    )
    assert run.summary["broken_laws"] == {}
    assert run.transfers["ack_wait_s"].sum() > 0


def test_nothing_is_written_without_a_transport() -> None:
    """The columns of phases are there only where transfers have some."""
    assert "ack_wait_s" not in fe.run(small_scenario("stop.rounds=1"), timing_only=True, progress=False).transfers


REFERENCE = Path(__file__).parents[1] / "network" / "access" / "reference"
WIFI = (
    "network.uplink.access={kind: dcf, standard: ac}",
    "network.downlink={access: {kind: dcf, standard: ac}, mode: unicast}",
    "channel.bandwidth_hz=8e7",
)
NEAR = ("channel.path_loss={kind: free-space}", "devices.placement={kind: disc, radius_m: 2, inner_radius_m: 1}")


def transfers(*settings):
    """The transfers of a run of the small federation without training; every law holds."""
    fed = run_small(*settings, timing_only=True)
    fed.close()
    assert not any(verify(fed.ledger, frozenset()).values())
    return fed.ledger.frame("transfers")


@pytest.mark.parametrize(("standard", "width_mhz", "name"), [("a", 20, "a54"), ("n", 20, "n20"), ("ac", 80, "ac80")])
@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_uploads_of_a_model_take_what_they_take_in_ns3(standard, width_mhz, name, count):
    """2.91 MB from each of n devices at once: n times the bytes over the rate, ns-3's last one up to 25 % later.

    ns-3's TCP puts its acknowledgements and slow start on the air, too. One of its runs with a timeout is left out.
    """
    found = transfers(
        f"network.uplink.access={{kind: dcf, standard: {standard}}}",
        f"channel.bandwidth_hz={width_mhz}e6",
        "network.overhead={kind: packets, headers: tcp-ipv4-timestamps}",
        f"devices.count={count}",
        f"algorithm.cohort={count}",
        f"data={{kind: synthetic, features: [3, 32, 32], n_samples: {count}, n_test: 1}}",
        "model={kind: mlp, hidden: [236]}",
        "devices.speed={kind: fixed, flop_per_s: 1e12}",
        "stop.rounds=1",
        *NEAR,
    ).query("direction == 'uplink'")
    (table,) = (
        row
        for row in rows_of(REFERENCE / "link_wifi_bianchi.csv")
        if row["mode"] == name and int(row["stations"]) == count
    )
    goodput_mbps = float(table["goodput_block_ack_request_mbps"] or table["goodput_freezing_mbps"])
    wire_bit = 8 * (727_598 * 4 + 52 * -(-727_598 * 4 // 1448))
    last_s = count * wire_bit / (goodput_mbps * 1e6 * 1500 / 1472)

    assert len(found) == count
    assert (found["ended_s"] - found["started_s"]).tolist() == pytest.approx([last_s] * count, rel=1e-4)
    told = [
        float(row["last_done_s"])
        for row in rows_of(REFERENCE / "link_wifi_ns3.csv")
        if row["tcp_upload_byte"] and (row["standard"], int(row["stations"])) == (standard, count)
    ]
    assert all(0.98 * last_s < each < 1.25 * last_s for each in told if each != 3.29901)


@pytest.mark.parametrize(
    "algorithm",
    [
        "{kind: fedasync, lr: 0.1, batch_size: null, local_steps: 1}",
        "{kind: scaffold, cohort: 4, lr: 0.1, batch_size: null, local_steps: 1}",
        "{kind: hier-favg, lr: 0.1, batch_size: null, local_steps: 1}",
    ],
)
@pytest.mark.parametrize("fading", ["none", "{kind: rayleigh, coherence_s: 1.0e-4}"])
def test_learning_runs_over_wifi(algorithm, fading):
    """Both directions, rounds or none, with and without fading: all is delivered and every law holds."""
    found = transfers(*WIFI, f"algorithm={algorithm}", f"channel.fading={fading}", "channel.device.tx_power_dbm=20")

    assert set(found["loss_reason"]) == {""}
    assert {"uplink", "downlink"} <= set(found["direction"])


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        ("channel.bandwidth_hz=1e6", "access.width_mhz", r"channels of 20, 40, 80, 160 MHz, got .* 1e\+06; set"),
        (
            "network.uplink.access={kind: dcf, width_mhz: 160}",
            "access.width_mhz",
            "wider than the band, got 160 MHz in 80; set channel.bandwidth_hz: 160e6",
        ),
        ("channel.subcarrier_spacing_khz=30", "access", "resource blocks belong to 5G NR, got .* 30 with dcf"),
        ("network.cells={kind: list, xy_m: [[0, 0], [400, 0]]}", "access", "got 2 of them with dcf; set network.cells"),
        ("network.downlink.mode=broadcast", "mode", "got broadcast with dcf; set mode: unicast"),
    ],
)
def test_what_wifi_does_not_go_with_is_said_before_the_run(change, where, what):
    """With the key, what was found and the way out."""
    problems = list(small_scenario(*WIFI, change).contradictions())

    assert {(path[0], *path[2:]) for path, _ in problems} == {("network", *where.split("."))}
    assert all(re.search(what, text) for _, text in problems)


def test_mean_rates_over_fading_say_nothing_about_contention():
    """fading_model: ergodic goes with Wi-Fi only where nothing fades."""
    ergodic = "channel.fading_model=ergodic"
    (problem, _) = small_scenario(*WIFI, ergodic, "channel.fading=rayleigh").contradictions()

    assert problem[0] == ("network", "uplink", "access")
    assert "got channel.fading_model ergodic with dcf; set per-block" in problem[1]
    assert not list(small_scenario(*WIFI, ergodic).contradictions())


def test_a_device_below_the_lowest_scheme_is_out_of_reach_before_the_run():
    """The warning judges Wi-Fi's own threshold, 0.9 dB on its channel, and not that of channel.rate."""
    far = ("channel.path_loss={kind: free-space}", "devices.placement={kind: disc, radius_m: 3e4, inner_radius_m: 2e4}")
    scenario = small_scenario(*WIFI, *far)

    up, _ = unreachable(Outlook(scenario))
    assert up[0] == ("network", "uplink", "access")
    assert "got a threshold that needs 0.9 dB" in up[1]
    assert not list(unreachable(Outlook(small_scenario(*far))))


def test_frames_of_wifi_are_not_judged_as_slots_of_5g():
    """320 bits in 0.32 us are less than a slot of 5G NR; Wi-Fi has none."""
    fast = "channel.rate={kind: fixed, bit_rate_bps: 1e9}"

    assert len(list(slots(Outlook(small_scenario(fast))))) == 1
    assert not list(slots(Outlook(small_scenario(*WIFI, fast))))

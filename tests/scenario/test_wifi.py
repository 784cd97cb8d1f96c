"""Claims about Wi-Fi in scenario files: uploads as long as in ns-3, algorithms of every sort, and what is refused."""

import csv
import re
from pathlib import Path

import pytest

from fednet_emu.emulation.outlook import Outlook, unreachable
from fednet_emu.emulation.plausibility import slots
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_scenario

REFERENCE = Path(__file__).parents[1] / "network" / "access" / "reference"
WIFI = (
    "network.uplink.access={kind: dcf, standard: ac}",
    "network.downlink={access: {kind: dcf, standard: ac}, mode: unicast}",
    "channel.bandwidth_hz=8e7",
)
NEAR = ("channel.path_loss={kind: free-space}", "devices.placement={kind: disc, radius_m: 2, inner_radius_m: 1}")


def rows(name):
    """The rows of a table of the reference."""
    with (REFERENCE / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def transfers(*settings):
    """The transfers of a run of the small federation without training; every law holds."""
    fed = run_small(*settings, timing_only=True)
    fed.close()
    assert not any(verify(fed.ledger, frozenset()).values())
    return fed.ledger.frames()["transfers"]


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
    ).query("kind == 'uplink'")
    (table,) = (row for row in rows("link_wifi_bianchi.csv") if row["mode"] == name and int(row["stations"]) == count)
    goodput_mbps = float(table["goodput_block_ack_request_mbps"] or table["goodput_freezing_mbps"])
    wire_bit = 8 * (727_598 * 4 + 52 * -(-727_598 * 4 // 1448))
    last_s = count * wire_bit / (goodput_mbps * 1e6 * 1500 / 1472)

    assert len(found) == count
    assert (found["ended_s"] - found["started_s"]).tolist() == pytest.approx([last_s] * count, rel=1e-4)
    told = [
        float(row["last_done_s"])
        for row in rows("link_wifi_ns3.csv")
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

    assert set(found["lost"]) == {""}
    assert {"uplink", "downlink"} <= set(found["kind"])


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (
            "channel.bandwidth_hz=1e6",
            "access.width_mhz",
            r"channels of 20, 40, 80, 160 MHz, got .* 1e\+06; set",
        ),
        (
            "network.uplink.access={kind: dcf, width_mhz: 160}",
            "access.width_mhz",
            "wider than the band, got 160 MHz in 80; set channel.bandwidth_hz: 160e6",
        ),
        ("channel.numerology_khz=30", "access", "resource blocks are those of 5G NR, got .* 30 with dcf"),
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
    """long_transfers: ergodic goes with Wi-Fi only where nothing fades."""
    ergodic = "channel.long_transfers=ergodic"
    (problem, _) = small_scenario(*WIFI, ergodic, "channel.fading=rayleigh").contradictions()

    assert problem[0] == ("network", "uplink", "access")
    assert "got channel.long_transfers ergodic with dcf; set walk" in problem[1]
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

"""The network, and its narrow bands."""

import math
from itertools import pairwise

import numpy as np
import pytest

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.devices.mobility.base import StillPaths
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.network import Network
from fednet_emu.network.settings import ACCESSES, Downlink, NetworkSettings, Sidelink, Uplink
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.rates.shannon import CQI_1_BPS_HZ
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER, Ledger, device_label
from fednet_emu.testing import run_small
from tests.network.media import MBIT
from tests.quick import crossed

DEVICE = {"tx_power_dbm": 20, "noise_figure_db": 9, "height_m": 1.5, "amplifier_efficiency": 0.5, "circuit_w": 0.05}
BASE = {"tx_power_dbm": 30, "noise_figure_db": 5, "height_m": 10}


def channel(**changes):
    """A fixed 1 Mbit/s whatever the distance, unless told otherwise."""
    settings = {
        "carrier_hz": 2e9,
        "bandwidth_hz": 1e6,
        "path_loss": {"kind": "log-distance", "exponent": 3.0, "reference_loss_db": 40.0},
        "rate": {"kind": "fixed", "bit_rate_bps": 1e6},
        "device": DEVICE,
        "base_station": BASE,
    }
    return Channel.model_validate({**settings, **changes})


def wire(count=4, *, uplink=None, downlink=None, sidelink=None, **changes):
    """A network with devices in a row, its clock and its ledger."""
    clock, ledger, streams = Clock(), Ledger(), Streams(1)
    xy_m = np.column_stack([np.arange(1, count + 1) * 50.0, np.zeros(count)])
    settings = NetworkSettings(uplink=uplink or Uplink(), downlink=downlink or Downlink(), sidelink=sidelink)
    return Network(clock, ledger, streams, Presence(Always(), 0, count), channel(**changes), StillPaths(xy_m), settings)


def finish(network):
    """Run to the end, check the laws, and give the transfers."""
    ledger = network.uplink.ledger
    network.uplink.clock.run()
    network.close()
    assert not any(verify(ledger, frozenset({"uplink", "downlink", "sidelink"})).values())
    return ledger.frame("transfers")


def test_up_down_and_side_do_not_wait_for_each_other():
    """Three media in bands of their own: all three transfers start at once."""
    network = wire(sidelink=Sidelink(channel=channel()))
    network.uplink.send(0, SERVER, Message("x", MBIT, 0))
    network.downlink.send(SERVER, 1, Message("y", MBIT, 1))
    network.sidelink.send(2, 3, Message("z", MBIT, 2))
    rows = finish(network)

    assert sorted(rows["direction"]) == ["downlink", "sidelink", "uplink"]
    assert rows["started_s"].tolist() == [0.0] * 3
    assert rows["ended_s"].tolist() == [1.0] * 3


def test_each_sender_pays_for_its_own_radio():
    """A device draws 0.1 W / 0.5 + 0.05 W for a second; the base station 1 W."""
    network = wire()
    network.uplink.send(0, SERVER, Message("x", MBIT, 0))
    network.downlink.send(SERVER, 1, Message("y", MBIT, 1))
    energy_j = finish(network).set_index("direction")["energy_j"]

    assert energy_j["uplink"] == pytest.approx(0.25)
    assert energy_j["downlink"] == pytest.approx(1.0)


def test_devices_pay_for_what_they_receive():
    """At 0.3 W for a second: each receiver of a downlink or a sidelink, and not the base station of an uplink."""
    radio = {"device": {**DEVICE, "rx_consumption_w": 0.3}}
    network = wire(sidelink=Sidelink(channel=channel(**radio)), **radio)
    network.uplink.send(0, SERVER, Message("x", MBIT, 0))
    network.sidelink.send(2, 3, Message("z", MBIT, 2))
    for device in (1, 3):
        network.downlink.send(SERVER, device, Message("y", MBIT, 1, 0))
    rx_energy_j = finish(network).set_index("direction")["rx_energy_j"]

    assert rx_energy_j.to_dict() == pytest.approx({"uplink": 0.0, "sidelink": 0.3, "downlink": 0.6})


def test_a_downlink_is_one_broadcast_or_as_many_as_receivers():
    """The mode decides; broadcast is the default."""
    for mode, rows_expected in (("broadcast", 1), ("unicast", 3)):
        network = wire(downlink=Downlink(mode=mode))
        for device in range(3):
            network.downlink.send(SERVER, device, Message("model", MBIT, 0, 0))

        assert len(finish(network)) == rows_expected


def test_closing_closes_every_medium():
    """What any of the three has on the air is accounted for at the end of the run."""
    network = wire(sidelink=Sidelink(channel=channel()))
    network.uplink.send(0, SERVER, Message("x", MBIT, 0))
    network.downlink.send(SERVER, 1, Message("y", MBIT, 1))
    network.sidelink.send(2, 3, Message("z", MBIT, 2))
    network.uplink.clock.run(until=500_000_000)
    network.close()

    rows = network.uplink.ledger.frame("transfers")
    assert rows["loss_reason"].tolist() == ["end"] * 3
    assert rows["transmitted_bit"].tolist() == pytest.approx([MBIT / 2] * 3)


def test_a_transfer_describes_itself():
    """As it stands in the text of a deadlock."""
    network = wire()

    assert network.uplink.send(3, SERVER, Message("x", MBIT, 0)).describe() == "the uplink from dev-3 to server"
    assert device_label(SERVER) == "server"


HEARD = (
    "devices.placement={kind: list, xy_m: [[30, 40], [0, 100], [60, 0], [0, 8]]}",
    *("channel.device.height_m=2", "channel.base_station.height_m=2", "stop.rounds=1"),
)
DISTANCES_M = [50.0, 100.0, 60.0, 8.0]


def snr_db(distance_m, power_dbm, figure_db):
    """Free space at 3.5 GHz, and the noise of 20 MHz."""
    return power_dbm - 20 * np.log10(4 * np.pi * distance_m * 3.5e9 / 3e8) - (-174 + 10 * np.log10(20e6) + figure_db)


@pytest.mark.parametrize("more", [(), ("network.uplink.access=ofdma",), ("network.uplink.access=full-reuse",)])
def test_transfers_have_snr_distance_and_mean_rate(more):
    """Friis' loss over noise alone, and 1 Mbit/s; of a broadcast those of the farthest, each receiver its own."""
    frames = run_small(*HEARD, *more, timing_only=True).ledger.frames()
    down, up, heard = (
        frames["transfers"].query(f"direction == '{kind}'") for kind in ("downlink", "uplink", "sidelink")
    )
    up, heard = up.sort_values("sender"), frames["receptions"]

    assert up["distance_m"].tolist() == pytest.approx(DISTANCES_M)
    assert heard["distance_m"].tolist() == pytest.approx(DISTANCES_M)
    assert up["snr_db"].tolist() == pytest.approx([snr_db(its, 23, 5) for its in DISTANCES_M], abs=1e-3)
    assert heard["snr_db"].tolist() == pytest.approx([snr_db(its, 30, 9) for its in DISTANCES_M], abs=1e-3)
    [farthest] = down[["distance_m", "snr_db", "mean_rate_bps"]].to_numpy().tolist()
    assert farthest == pytest.approx([100.0, snr_db(100.0, 30, 9), 1e6], abs=1e-3)
    assert frames["transfers"]["distance_m"].dtype == np.float32
    if not more:
        assert up["mean_rate_bps"].tolist() == pytest.approx([1e6] * 4)


def test_columns_of_transfers_follow_moving_devices(tmp_path):
    """It walks away at 10 m/s: each upload has the distance and the SNR at the begin of its second."""
    np.savez(tmp_path / "walk.npz", away=np.array([[0.0, 10.0, 0.0], [100.0, 1010.0, 0.0]]))
    walk = f"devices.mobility={{kind: trace, path: '{tmp_path / 'walk.npz'}', start: beginning}}"
    slow = ("devices.count=1", "devices.speed.flop_per_s=1000", "stop.rounds=6", "algorithm.cohort=1")
    frame = run_small(*HEARD[1:3], walk, *slow, timing_only=True).ledger.frame("transfers")
    up = frame.query("direction == 'uplink'")

    expected_m = 10 + 10 * np.floor(up["started_s"].to_numpy())
    assert len(set(expected_m)) > 2
    assert up["distance_m"].tolist() == pytest.approx(expected_m.tolist())
    assert up["snr_db"].tolist() == pytest.approx(snr_db(up["distance_m"], 23, 5).tolist(), abs=1e-3)


@pytest.mark.parametrize(
    "link", ["access={kind: ethernet, port_bps: 1.0e+8}", "trace={kind: csv, path: channels/traces/example_uplink.csv}"]
)
def test_wired_and_recorded_links_have_no_snr_and_no_distance(link):
    """They have a mean rate; a broadcast on the air beside them has all three."""
    frame = run_small(*HEARD, f"network.uplink.{link}", timing_only=True).ledger.frame("transfers")
    up, down = (frame.query(f"direction == '{kind}'") for kind in ("uplink", "downlink"))

    assert up[["snr_db", "distance_m"]].isna().all(axis=None)
    assert (up["mean_rate_bps"] > 0).all()
    assert down[["snr_db", "distance_m", "mean_rate_bps"]].notna().all(axis=None)


def test_sidelinks_have_the_distance_of_two_devices():
    """From (50, 0) to (150, 0), both at 1.5 m, at 20 dBm; what never was on the air has none."""
    network = wire(sidelink=Sidelink(channel=channel()))
    network.sidelink.send(0, 2, Message("z", MBIT, 0))
    network.sidelink.send(1, 3, Message("z", MBIT, 0))
    network.uplink.clock.run(until=1_500_000_000)
    network.sidelink.close()
    first, second = network.uplink.ledger.frame("transfers").to_dict("records")

    noise_dbm = -174 + 60 + 9
    assert (first["distance_m"], first["mean_rate_bps"]) == pytest.approx((100.0, 1e6))
    assert first["snr_db"] == pytest.approx(20 - (40 + 30 * 2) - noise_dbm, abs=1e-3)
    assert (second["distance_m"], second["mean_rate_bps"]) == pytest.approx((100.0, 1e6))


BLOCK_HZ = 180e3
LEAST_SINR = 10**0.2 * (2**CQI_1_BPS_HZ - 1)
WIDTH_HZ, TENTH_M = 20e6, 1000.0
SNR = LEAST_SINR / 10
POWER_DBM = 10 * math.log10(SNR * WIDTH_HZ) - 174 + 10 * math.log10(TENTH_M**2)
TENTH_BPS = WIDTH_HZ * CQI_1_BPS_HZ / 10
TERMINAL = {"tx_power_dbm": POWER_DBM, "noise_figure_db": 0, "height_m": 0}
CHANNEL = {
    "carrier_hz": 2e9,
    "bandwidth_hz": WIDTH_HZ,
    "path_loss": {"kind": "log-distance", "exponent": 2, "reference_loss_db": 0},
    "device": TERMINAL,
    "base_station": TERMINAL,
}


def wire_of_narrowing(access="tdma", side="tdma", **changes):
    """Two devices, each 1 km from the base station and from one another, at a tenth of the least SINR."""
    xy_m = np.array([[TENTH_M, 0.0], [TENTH_M / 2, TENTH_M * math.sqrt(3) / 2]])
    channel = {**CHANNEL, **changes}
    network = {"uplink": {"access": access}, "sidelink": {"channel": channel, "access": side}}
    presence, settings = Presence(Always(), 0, 2), NetworkSettings.model_validate(network)
    return Network(Clock(), Ledger(), Streams(1), presence, Channel.model_validate(channel), StillPaths(xy_m), settings)


def took_s(network, medium, *ends):
    """How long 100 kbit take, and why they are lost."""
    medium.send(*ends, Message("x", 100_000, 0))
    network.uplink.clock.run()
    network.close()
    (row,) = network.uplink.ledger.frame("transfers").to_dict("records")
    return row["ended_s"] - row["started_s"], row["loss_reason"]


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_an_uplink_runs_at_the_rate_that_is_expected(access):
    """A tenth of the least SINR: a tenth of the band at the least efficiency, which is what the server expects."""
    network = wire_of_narrowing(access)
    expected = [
        network.expected_uplink_bps(0),
        *network.expected_bps(np.array([0, 1]), down=False),
        *network.picture(0.0).up_bps,
    ]

    assert expected == pytest.approx([TENTH_BPS] * 5, rel=1e-9)
    assert took_s(network, network.uplink, 0, SERVER) == (pytest.approx(100_000 / TENTH_BPS), "")


def test_a_downlink_narrows():
    """A base station puts its power on a tenth of the band, for one device and for the weakest of a broadcast."""
    network = wire_of_narrowing()

    assert network.expected_downlink_bps(0) == pytest.approx(TENTH_BPS, rel=1e-9)
    network.downlink.send_all(SERVER, [0, 1], Message("x", 100_000, 0, 0))
    network.uplink.clock.run()
    network.close()
    (row,) = network.uplink.ledger.frame("transfers").to_dict("records")
    assert (row["ended_s"], row["loss_reason"]) == (pytest.approx(100_000 / TENTH_BPS), "")


@pytest.mark.parametrize("side", ["tdma", "ofdma", "full-reuse", "spatial-reuse"])
def test_a_sidelink_narrows(side):
    """In turns, side by side, and on a shared band."""
    network = wire_of_narrowing(side=side)

    assert took_s(network, network.sidelink, 0, 1) == (pytest.approx(100_000 / TENTH_BPS), "")


def test_the_former_law_is_a_setting():
    """`narrowing: off` and one repetition: the whole band or nothing."""
    network = wire_of_narrowing(narrowing="off", rate={"kind": "shannon", "max_repetitions": 1})

    assert network.expected_uplink_bps(0) == 0.0
    assert took_s(network, network.uplink, 0, SERVER) == (0.0, "unreachable")


def test_every_scheme_says_whether_its_senders_are_separate():
    """Turns, parts, plans, Wi-Fi and wires are; whole bands at once, random access and sums are not."""
    given = {"slotted-aloha": {"slot_s": 1}}
    overlapping = {name for name, scheme in ACCESSES.items() if scheme.model_validate(given.get(name, {})).overlapping}

    assert ACCESSES.keys() - overlapping == {"tdma", "ofdma", "planned", "nr-grants", "dcf", "ethernet"}


def test_two_at_once_each_narrow_within_their_halves():
    """At full power on half the band each SINR doubles: a fifth of the half at the least efficiency, the same rate."""
    network = wire_of_narrowing("ofdma")
    for device in (0, 1):
        network.uplink.send(device, SERVER, Message("x", 100_000, 0))
    network.uplink.clock.run()

    assert network.uplink.ledger.frame("transfers")["ended_s"].tolist() == pytest.approx([1e5 / TENTH_BPS] * 2)


def test_the_mean_over_fading_is_narrowed_too():
    """Blocks of a tenth of the least SINR on average: the ergodic rate, near that without fading."""
    network = wire_of_narrowing(fading="rayleigh", fading_model="ergodic")

    assert network.expected_uplink_bps(0) == pytest.approx(TENTH_BPS, rel=0.02)
    assert took_s(network, network.uplink, 0, SERVER)[0] == pytest.approx(1e5 / network.expected_uplink_bps(0))


# ---- monotony --------------------------------------------------------------------------------------------------------

BOTH_WAYS = ["tdma", "ofdma", "full-reuse", "nr-grants"]
WAYS = [*((way, access) for way in ("uplink", "downlink") for access in BOTH_WAYS), ("uplink", "noma")]
WAYS += [("sidelink", access) for access in ("tdma", "full-reuse", "spatial-reuse")]
WAYS += [("uplink", "slotted-aloha")]
GIVEN = {
    "slotted-aloha": {"slot_s": 0.01, "capture_db": -50, "probability": 1},
    "nr-grants": {"subcarrier_spacing_khz": 15, "bler": 0},
}
LAWS = ["shannon", "nr-mcs", "nr-blocks"]


def lone_s(way, access, law, *, width_hz=2e7, more_db=0.0, fading="none", others=0):
    """How long 100 kbit take between device 0 and its peer, or the server; infinity if they are lost.

    Meanwhile others send long messages. The mean SINR is that of `wire` in 20 MHz, s_min / 10, and no weaker.
    """
    terminal = {**TERMINAL, "tx_power_dbm": POWER_DBM + more_db}
    access = {"kind": access, **GIVEN.get(access, {})}
    changes = {"bandwidth_hz": width_hz, "device": terminal, "base_station": terminal, "rate": law, "fading": fading}
    channel = {**CHANNEL, **changes, "narrowest_hz": BLOCK_HZ}
    sidelink = {"channel": channel, **({"access": access} if way == "sidelink" else {})}
    network = {"sidelink": sidelink, **({} if way == "sidelink" else {way: {"access": access}})}
    angle = np.arange(6) * math.pi / 3
    places = StillPaths(TENTH_M * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    parts = Clock(), Ledger(), Streams(1), Presence(Always(), 0, 6), Channel.model_validate(channel)
    wired = Network(*parts, places, NetworkSettings.model_validate(network))
    medium, first = getattr(wired, way), SERVER if way == "downlink" else 0
    ends = {"uplink": (0, SERVER), "downlink": (SERVER, 0), "sidelink": (0, 1)}[way]
    for other in range(2, 2 + others):
        medium.send(other, SERVER if way == "uplink" else other % 4 + 2, Message("y", 10**7, 0))
    medium.send(*ends, Message("x", 100_000, 0))
    wired.uplink.clock.run()
    wired.close()
    rows = wired.uplink.ledger.frame("transfers")
    (row,) = rows[(rows["sender"] == first) & (rows["loss_reason"] == "")].to_dict("records") or [{"ended_s": math.inf}]
    return row["ended_s"]


@pytest.mark.parametrize(("way", "law"), crossed(WAYS, LAWS))
def test_more_bandwidth_never_slows_a_lone_transfer(way, law):
    """Of the same power, from one block to 40 MHz, with and without fading; all of them arrive."""
    for fading in ("none", "rayleigh"):
        took = [
            lone_s(*way, law, width_hz=blocks * BLOCK_HZ, more_db=-6.0, fading=fading)
            for blocks in (1, 2, 3, 6, 28, 111, 222)
        ]

        assert math.isfinite(took[0])
        assert all(wide <= narrow * (1 + 1e-9) + 2e-9 for narrow, wide in pairwise(took))


@pytest.mark.parametrize(("way", "law"), crossed(WAYS, LAWS))
def test_more_power_never_slows_a_lone_transfer(way, law):
    """From 17 dB below the least SINR to 30 dB above it."""
    took = [lone_s(*way, law, more_db=more_db) for more_db in (-7, -3, 0, 3, 9, 10, 11, 20, 40)]

    assert math.isfinite(took[0])
    assert took == sorted(took, reverse=True)


@pytest.mark.parametrize(("way", "law"), crossed([each for each in WAYS if each[0] == "uplink"], LAWS))
def test_fewer_interferers_never_slow_a_transfer(way, law):
    """Beside four, three, two, one and no other device, at 6 dB: each arrives, the sooner the fewer they are."""
    took = [lone_s(*way, law, more_db=24.0, others=others) for others in (4, 3, 2, 1, 0)]

    assert math.isfinite(took[0])
    assert all(alone <= disturbed * (1 + 1e-9) for disturbed, alone in pairwise(took))

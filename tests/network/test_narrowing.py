"""Claims about who narrows: every sender, at the rate that is expected; so that no resource ever slows a transfer."""

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
from fednet_emu.network.settings import ACCESSES, NetworkSettings
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.rates.shannon import CQI_1_BPS_HZ
from fednet_emu.records.ledger import SERVER, Ledger

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


def wire(access="tdma", side="tdma", **changes):
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
    (row,) = network.uplink.ledger.frames()["transfers"].to_dict("records")
    return row["ended_s"] - row["started_s"], row["lost"]


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_an_uplink_runs_at_the_rate_that_is_expected(access):
    """A tenth of the least SINR: a tenth of the band at the least efficiency, which is what the server expects."""
    network = wire(access)
    expected = [
        network.expected_uplink_bps(0),
        *network.expected_bps(np.array([0, 1]), down=False),
        *network.picture(0.0).up_bps,
    ]

    assert expected == pytest.approx([TENTH_BPS] * 5, rel=1e-9)
    assert took_s(network, network.uplink, 0, SERVER) == (pytest.approx(100_000 / TENTH_BPS), "")


def test_a_downlink_narrows():
    """A base station puts its power on a tenth of the band, for one device and for the weakest of a broadcast."""
    network = wire()

    assert network.expected_downlink_bps(0) == pytest.approx(TENTH_BPS, rel=1e-9)
    network.downlink.send_all(SERVER, [0, 1], Message("x", 100_000, 0, 0))
    network.uplink.clock.run()
    network.close()
    (row,) = network.uplink.ledger.frames()["transfers"].to_dict("records")
    assert (row["ended_s"], row["lost"]) == (pytest.approx(100_000 / TENTH_BPS), "")


@pytest.mark.parametrize("side", ["tdma", "ofdma", "shared", "spatial-reuse"])
def test_a_sidelink_narrows(side):
    """In turns, side by side, and on a shared band."""
    network = wire(side=side)

    assert took_s(network, network.sidelink, 0, 1) == (pytest.approx(100_000 / TENTH_BPS), "")


def test_the_former_law_is_a_setting():
    """`narrowing: off` and one repetition: the whole band or nothing."""
    network = wire(narrowing="off", rate={"kind": "shannon", "repetitions": 1})

    assert network.expected_uplink_bps(0) == 0.0
    assert took_s(network, network.uplink, 0, SERVER) == (0.0, "unreachable")


def test_every_scheme_says_whether_its_senders_are_separate():
    """Turns, parts, plans, Wi-Fi and wires are; whole bands at once, random access and sums are not."""
    given = {"slotted-aloha": {"slot_s": 1}}
    overlapping = {name for name, scheme in ACCESSES.items() if scheme.model_validate(given.get(name, {})).overlapping}

    assert ACCESSES.keys() - overlapping == {"tdma", "ofdma", "planned", "nr-grants", "dcf", "switch"}


def test_two_at_once_each_narrow_within_their_halves():
    """At full power on half the band each SINR doubles: a fifth of the half at the least efficiency, the same rate."""
    network = wire("ofdma")
    for device in (0, 1):
        network.uplink.send(device, SERVER, Message("x", 100_000, 0))
    network.uplink.clock.run()

    assert network.uplink.ledger.frames()["transfers"]["ended_s"].tolist() == pytest.approx([1e5 / TENTH_BPS] * 2)


def test_the_mean_over_fading_is_narrowed_too():
    """Blocks of a tenth of the least SINR on average: the ergodic rate, near that without fading."""
    network = wire(fading="rayleigh", long_transfers="ergodic")

    assert network.expected_uplink_bps(0) == pytest.approx(TENTH_BPS, rel=0.02)
    assert took_s(network, network.uplink, 0, SERVER)[0] == pytest.approx(1e5 / network.expected_uplink_bps(0))


# ---- monotony --------------------------------------------------------------------------------------------------------

BOTH_WAYS = ["tdma", "ofdma", "shared", "nr-grants"]
WAYS = [*((way, access) for way in ("uplink", "downlink") for access in BOTH_WAYS), ("uplink", "noma")]
WAYS += [("sidelink", access) for access in ("tdma", "shared", "spatial-reuse")]
WAYS += [("uplink", "slotted-aloha")]
GIVEN = {
    "slotted-aloha": {"slot_s": 0.01, "capture_db": -50, "probability": 1},
    "nr-grants": {"spacing_khz": 15, "target_bler": 0},
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
    rows = wired.uplink.ledger.frames()["transfers"]
    (row,) = rows[(rows["sender"] == first) & (rows["lost"] == "")].to_dict("records") or [{"ended_s": math.inf}]
    return row["ended_s"]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("way", "access"), WAYS)
def test_more_bandwidth_never_slows_a_lone_transfer(way, access, law):
    """Of the same power, from one block to 40 MHz, with and without fading; all of them arrive."""
    for fading in ("none", "rayleigh"):
        took = [
            lone_s(way, access, law, width_hz=blocks * BLOCK_HZ, more_db=-6.0, fading=fading)
            for blocks in (1, 2, 3, 6, 28, 111, 222)
        ]

        assert math.isfinite(took[0])
        assert all(wide <= narrow * (1 + 1e-9) + 2e-9 for narrow, wide in pairwise(took))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("way", "access"), WAYS)
def test_more_power_never_slows_a_lone_transfer(way, access, law):
    """From 17 dB below the least SINR to 30 dB above it."""
    took = [lone_s(way, access, law, more_db=more_db) for more_db in (-7, -3, 0, 3, 9, 10, 11, 20, 40)]

    assert math.isfinite(took[0])
    assert took == sorted(took, reverse=True)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("way", "access"), [each for each in WAYS if each[0] == "uplink"])
def test_fewer_interferers_never_slow_a_transfer(way, access, law):
    """Beside four, three, two, one and no other device, at 6 dB: each arrives, the sooner the fewer they are."""
    took = [lone_s(way, access, law, more_db=24.0, others=others) for others in (4, 3, 2, 1, 0)]

    assert math.isfinite(took[0])
    assert all(alone <= disturbed * (1 + 1e-9) for disturbed, alone in pairwise(took))

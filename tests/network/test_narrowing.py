"""Claims about who narrows: devices that have their part of the band to themselves, at the rate that is expected."""

import math

import numpy as np
import pytest

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.devices.mobility.base import StillPaths
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access import ACCESSES
from fednet_emu.network.network import Network
from fednet_emu.network.settings import NetworkSettings
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.rates.shannon import CQI_1_BPS_HZ
from fednet_emu.records.ledger import SERVER, Ledger

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
    medium.send(*ends, "x", 0, 100_000)
    network.uplink.clock.run()
    network.close()
    (row,) = network.uplink._ledger.frames()["transfers"].to_dict("records")
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


def test_a_downlink_does_not_narrow():
    """The power per block of a base station is fixed: nothing gets through."""
    network = wire()

    assert network.expected_downlink_bps(0) == 0.0
    assert took_s(network, network.downlink, SERVER, 0) == (0.0, "unreachable")


@pytest.mark.parametrize(("side", "there"), [("tdma", True), ("ofdma", True), ("shared", False)])
def test_a_sidelink_narrows_where_nobody_else_uses_its_part_of_the_band(side, there):
    """In turns and side by side, not on a shared band."""
    network = wire(side=side)

    lost = took_s(network, network.sidelink, 0, 1)[1]

    assert lost == ("" if there else "unreachable")


def test_the_former_law_is_a_setting():
    """`narrowing: off`: the whole band or nothing."""
    network = wire(narrowing="off")

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
        network.uplink.send(device, SERVER, "x", 0, 100_000)
    network.uplink.clock.run()

    assert network.uplink._ledger.frames()["transfers"]["ended_s"].tolist() == pytest.approx([1e5 / TENTH_BPS] * 2)


def test_the_mean_over_fading_is_narrowed_too():
    """Blocks of a tenth of the least SINR on average: the ergodic rate, near that without fading."""
    network = wire(fading="rayleigh", long_transfers="ergodic")

    assert network.expected_uplink_bps(0) == pytest.approx(TENTH_BPS, rel=0.02)
    assert took_s(network, network.uplink, 0, SERVER)[0] == pytest.approx(1e5 / network.expected_uplink_bps(0))

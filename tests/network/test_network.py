"""Claims about the wired network: its media are independent, and each terminal pays for what it sends."""

import numpy as np
import pytest

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.devices.mobility.base import StillPaths
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access import Ofdma, Tdma
from fednet_emu.network.network import Network
from fednet_emu.network.settings import Downlink, NetworkSettings, Sidelink, Uplink
from fednet_emu.radio.channel import Channel
from fednet_emu.records.laws.verify import verify
from fednet_emu.records.ledger import SERVER, Ledger, device_label

DEVICE = {"tx_power_dbm": 20, "noise_figure_db": 9, "height_m": 1.5, "amplifier_efficiency": 0.5, "circuit_w": 0.05}
BASE = {"tx_power_dbm": 30, "noise_figure_db": 5, "height_m": 10}
MBIT = 1_000_000


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
    ledger = network.uplink._ledger
    network.uplink.clock.run()
    network.close()
    assert not any(verify(ledger, frozenset({"uplink", "downlink", "sidelink"})).values())
    return ledger.frames()["transfers"]


def test_up_down_and_side_do_not_wait_for_each_other():
    """Three media in bands of their own: all three transfers start at once."""
    network = wire(sidelink=Sidelink(channel=channel()))
    network.uplink.send(0, SERVER, "x", 0, MBIT)
    network.downlink.send(SERVER, 1, "y", 1, MBIT)
    network.sidelink.send(2, 3, "z", 2, MBIT)
    rows = finish(network)

    assert sorted(rows["kind"]) == ["downlink", "sidelink", "uplink"]
    assert rows["started_s"].tolist() == [0.0] * 3
    assert rows["ended_s"].tolist() == [1.0] * 3


def test_each_sender_pays_for_its_own_radio():
    """A device draws 0.1 W / 0.5 + 0.05 W for a second; the base station 1 W."""
    network = wire()
    network.uplink.send(0, SERVER, "x", 0, MBIT)
    network.downlink.send(SERVER, 1, "y", 1, MBIT)
    energy_j = finish(network).set_index("kind")["energy_j"]

    assert energy_j["uplink"] == pytest.approx(0.25)
    assert energy_j["downlink"] == pytest.approx(1.0)


def test_devices_pay_for_what_they_receive():
    """At 0.3 W for a second: each receiver of a downlink or a sidelink, and not the base station of an uplink."""
    radio = {"device": {**DEVICE, "receive_w": 0.3}}
    network = wire(sidelink=Sidelink(channel=channel(**radio)), **radio)
    network.uplink.send(0, SERVER, "x", 0, MBIT)
    network.sidelink.send(2, 3, "z", 2, MBIT)
    for device in (1, 3):
        network.downlink.send(SERVER, device, "y", 1, MBIT, group=0)
    receive_j = finish(network).set_index("kind")["receive_j"]

    assert receive_j.to_dict() == pytest.approx({"uplink": 0.0, "sidelink": 0.3, "downlink": 0.6})


def test_a_downlink_is_one_broadcast_or_as_many_as_receivers():
    """The mode decides; broadcast is the default."""
    for mode, rows_expected in (("broadcast", 1), ("unicast", 3)):
        network = wire(downlink=Downlink(mode=mode))
        for device in range(3):
            network.downlink.send(SERVER, device, "model", 0, MBIT, group=0)

        assert len(finish(network)) == rows_expected


def rayleigh_ends(access, count):
    """End of device 0's uplink of one fading block, next to nobody."""
    fading = {"kind": "rayleigh", "coherence_s": 1.0}
    network = wire(count, uplink=Uplink(access=access), rate={"kind": "shannon"}, fading=fading)
    transfer = network.uplink.send(0, SERVER, "x", 0, MBIT)
    finish(network)
    return transfer.value.ended_s


def test_fading_is_the_same_under_every_access_scheme_and_size():
    """Common random numbers: the same channel for TDMA and OFDMA, in a network of 4 and of 40."""
    ends_s = [rayleigh_ends(access, count) for access in (Tdma(), Ofdma()) for count in (4, 40)]

    assert ends_s == pytest.approx([ends_s[0]] * 4, abs=1.1e-9)


def test_closing_closes_every_medium():
    """What any of the three has on the air is accounted for at the end of the run."""
    network = wire(sidelink=Sidelink(channel=channel()))
    network.uplink.send(0, SERVER, "x", 0, MBIT)
    network.downlink.send(SERVER, 1, "y", 1, MBIT)
    network.sidelink.send(2, 3, "z", 2, MBIT)
    network.uplink.clock.run(until=500_000_000)
    network.close()

    rows = network.uplink._ledger.frames()["transfers"]
    assert rows["lost"].tolist() == ["end"] * 3
    assert rows["air_bit"].tolist() == pytest.approx([MBIT / 2] * 3)


def test_a_transfer_describes_itself():
    """As it stands in the text of a deadlock."""
    network = wire()

    assert network.uplink.send(3, SERVER, "x", 0, MBIT).describe() == "the uplink from dev-3 to server"
    assert device_label(SERVER) == "server"

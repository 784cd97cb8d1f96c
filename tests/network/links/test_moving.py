"""Claims about devices that move: their links change where and when they should, and nothing happens in between."""

import numpy as np
import pytest

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.cells import ListedCells
from fednet_emu.network.network import Network
from fednet_emu.network.settings import NetworkSettings
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.receiver.power_control import OpenLoop
from fednet_emu.records.ledger import SERVER, Ledger

TERMINAL = {"tx_power_dbm": 20, "noise_figure_db": 5, "height_m": 0}
CLEAR = {
    "carrier_hz": 2e9,
    "bandwidth_hz": 1e6,
    "path_loss": {"kind": "log-distance", "exponent": 2.0, "reference_loss_db": 40.0},
    "rate": {"kind": "shannon", "gap_db": 0, "max_efficiency_bps_hz": None, "min_efficiency_bps_hz": 0},
    "device": TERMINAL,
    "base_station": TERMINAL,
}


class Straight:
    """All walk east at 1 m/s from where they were placed."""

    speed_m_s = 1.0

    def __init__(self, start_m):
        self.start_m, self.asked = np.array(start_m, float), []

    def positions_m(self, devices, time_s):
        """Where they are."""
        self.asked.append(time_s)
        return self.start_m[devices] + np.array([time_s, 0.0])


def wire(paths, channel=CLEAR, **settings):
    """A network of moving devices."""
    count = len(paths.start_m)
    parts = (Clock(), Ledger(), Streams(1), Presence(Always(), 0, count), Channel.model_validate(channel))
    return Network(*parts, paths, NetworkSettings(**settings))


def upload(network, device, at_s, size_bit=1000):
    """Send at a time, and return the delivery."""
    clock = network.uplink.clock

    def process():
        yield clock.sleep(max(at_s - clock.now_s, 0.0))
        return (yield network.uplink.send(device, SERVER, Message("x", size_bit, 0)))

    return clock.run_process(process())


def test_the_rate_is_that_of_where_the_device_is():
    """At 10 m and, ninety seconds later, at 100 m: 20 dB less at exponent 2, and the very rates of Shannon's law."""
    network = wire(Straight([[10.0, 0.0]]))
    snr = network.up_links.mean_snr[0]
    near, far = upload(network, 0, 0.0), upload(network, 0, 90.0)

    assert near.ended_s - near.started_s == pytest.approx(1000 / (1e6 * np.log2(1 + snr)), abs=2e-9)
    assert far.ended_s - far.started_s == pytest.approx(1000 / (1e6 * np.log2(1 + snr / 100)), abs=2e-9)


def test_nothing_is_worked_out_while_nobody_asks():
    """Between two uploads an hour apart, positions are asked for once, at the last full period."""
    paths = Straight([[10.0, 0.0]])
    network = wire(paths, movement_s=10.0)
    upload(network, 0, 1.0)
    upload(network, 0, 3607.0)

    assert paths.asked == [0.0, 3600.0]


def test_a_walk_changes_the_serving_station():
    """Half-way between two base stations the next upload goes to the other one."""
    cells = ListedCells(xy_m=((0.0, 0.0), (200.0, 0.0)))
    network = wire(Straight([[10.0, 1.0]]), cells=cells)
    links = network.uplink.links

    assert links.now().station_of(0) == -1
    upload(network, 0, 100.0)
    assert links.now().station_of(0) == -2


def test_shadowing_is_a_function_of_place():
    """Correlated as exp(-d / 37 m) over a step of 37 m, and the same again when a device comes back."""
    channel = {**CLEAR, "shadowing": {"kind": "log-normal", "sigma_db": 8}}
    count = 4000
    still = np.tile([[1000.0, 0.0]], (count, 1))
    network = wire(Straight(still), channel)
    shadow = [_shadow_db(network, at_s) for at_s in (0.0, 37.0, 0.0)]

    assert shadow[0] == pytest.approx(shadow[2])
    assert np.std(shadow[0]) == pytest.approx(8.0, rel=0.05)
    correlation_m = -37.0 / np.log(np.corrcoef(shadow[0], shadow[1])[0, 1])
    assert 20.0 < correlation_m < 80.0


def _shadow_db(network, at_s):
    """Shadowing in dB at a time: the SNR against that without shadowing."""
    snr = network._cell_links(at_s)[0].mean_snr
    distance_m = 1000.0 + at_s
    noise_dbm = -174 + 60 + 5
    return 10 * np.log10(snr) - (20 - 40 - 20 * np.log10(distance_m) - noise_dbm)


def test_power_control_is_paid_for_as_chosen():
    """Full compensation to -100 dBm per block: near devices send, and pay, less than far ones, up to the cap."""
    network = wire(Straight([[10.0, 0.0], [100.0, 0.0]]), power_control=OpenLoop(target_dbm=-100.0))
    deliveries = [upload(network, device, 0.0) for device in (0, 1)]
    rows = network.uplink.ledger.frames()["transfers"]
    blocks_db = 10 * np.log10(1e6 / 180e3)
    wanted_w = [10 ** ((-100 + blocks_db + 40 + 20 * np.log10(distance_m) - 30) / 10) for distance_m in (10.0, 100.0)]
    airtime_s = [delivery.ended_s - delivery.started_s for delivery in deliveries]

    assert rows["energy_j"].tolist() == pytest.approx([p * t for p, t in zip(wanted_w, airtime_s, strict=True)])
    assert airtime_s[0] == pytest.approx(airtime_s[1])


@pytest.mark.parametrize("access", ["tdma", "ofdma", "shared"])
def test_a_transfer_has_the_link_of_the_moment_at_which_it_starts(access):
    """A device that has moved from 10 m to 100 m is served at its new place, though the air was never free meanwhile.

    A second device keeps the downlink busy. Whether the first one was sent anything while it was near does not matter.
    """
    ends_s = []
    for near_too in (False, True):
        network = wire(Straight([[10.0, 0.0], [0.0, 5.0]]), downlink={"access": access, "mode": "unicast"})
        medium, clock = network.downlink, network.downlink.clock

        def process(medium=medium, clock=clock, near_too=near_too):
            busy = medium.send(SERVER, 1, Message("x", 3_000_000_000, 0))
            yield clock.sleep(1.5)
            if near_too:
                yield medium.send(SERVER, 0, Message("x", 0, 0))
            yield clock.sleep(90.0 - clock.now_s if clock.now_s < 90.0 else 0.0)
            late = medium.send(SERVER, 0, Message("x", 2_000_000, 0))
            return (yield late), (yield busy)

        late, busy = clock.run_process(process())
        assert busy.started_s == 0.0
        assert busy.ended_s > 90.0
        ends_s.append(late.ended_s - late.started_s)

    assert ends_s[0] == pytest.approx(ends_s[1], rel=0.02)

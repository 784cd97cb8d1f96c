"""Links and their draws."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import special

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.devices.placement import Disc
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams, mix, uniform
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.cells import ListedCells
from fednet_emu.network.links.links import (
    Asymmetry,
    CellEnvironment,
    OneWay,
    PairLinks,
    moving_draws,
    network_links,
    radio_of,
    still_draws,
)
from fednet_emu.network.network import Network
from fednet_emu.network.settings import NetworkSettings
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.propagation.link import Hop
from fednet_emu.radio.propagation.shadowing import WAVES, shadow_normals
from fednet_emu.radio.receiver.power_control import FullPower, OpenLoop
from fednet_emu.records.ledger import SERVER, Ledger
from tests.quick import crossed

COUNT = 3000
TERMINAL = {"tx_power_dbm": 20, "noise_figure_db": 5}
PLACES = {
    "3gpp-rma": ({"kind": "3gpp-rma"}, 35.0, 60.0),
    "3gpp-uma": ({"kind": "3gpp-uma"}, 25.0, 50.0),
    "3gpp-umi": ({"kind": "3gpp-umi"}, 10.0, 50.0),
    "3gpp-inh": ({"kind": "3gpp-inh"}, 3.0, 10.0),
    "3gpp-inf": ({"kind": "3gpp-inf", "hall": "SL"}, 1.5, 5.0),
}


def in_sight_normals(path_loss, height_m, east_m):
    """Standard normals behind the line of sight of many devices at 50 m, after a step to the east."""
    channel = Channel.model_validate(
        {
            "carrier_hz": 2e9,
            "bandwidth_hz": 1e6,
            "path_loss": path_loss,
            "device": {**TERMINAL, "height_m": 1.5},
            "base_station": {**TERMINAL, "height_m": height_m},
        }
    )
    xy_m = np.tile([[50.0 + east_m, 0.0]], (COUNT, 1))
    devices_m = np.column_stack([xy_m, np.full(COUNT, 1.5)])
    hop = Hop.between(devices_m, np.array([0.0, 0.0, height_m]))
    return special.ndtri(moving_draws(channel, hop, xy_m, Streams(2), np.arange(len(xy_m))).los)


@pytest.mark.parametrize(("kind", "part"), crossed(PLACES, [1.0, 1 / 3]))
def test_line_of_sight_is_correlated_over_the_distance_of_its_environment(kind, part):
    """After the distance of TR 38.901 Table 7.6.3.1-2 the correlation over devices is 1/e, after a third exp(-1/3)."""
    path_loss, height_m, correlation_m = PLACES[kind]
    here, there = (in_sight_normals(path_loss, height_m, moved * correlation_m) for moved in (0.0, part))

    assert np.corrcoef(here, there)[0, 1] == pytest.approx(np.exp(-part), abs=0.04)


def test_cells_see_a_device_differently_but_in_the_same_building():
    """Line of sight and shadowing belong to the link, what surrounds the device to the device."""
    first, second, third = (still_draws(Streams(2), np.arange(5), cell) for cell in (0, 1, 2))

    for here, there in ((first, second), (second, third)):
        assert not np.any(here.los == there.los)
        assert not np.any(here.shadowing == there.shadowing)
        np.testing.assert_array_equal(here.building, there.building)


@pytest.mark.parametrize(
    ("shadowing", "in_sight_m", "hidden_m"),
    [({"kind": "of-path-loss"}, 10.0, 13.0), ({"kind": "log-normal", "sigma_db": 4, "decorrelation_m": 0.5}, 0.5, 0.5)],
)
def test_shadowing_is_correlated_over_the_distance_of_the_state_of_the_link(shadowing, in_sight_m, hidden_m):
    """TR 38.901 Table 7.5-6, UMi: 10 m with line of sight, 13 m without, which each device's own draw decides."""
    ends = {"device": {**TERMINAL, "height_m": 1.5}, "base_station": {**TERMINAL, "height_m": 10.0}}
    bands = {"carrier_hz": 2e9, "bandwidth_hz": 1e6, "path_loss": {"kind": "3gpp-umi"}}
    channel, streams = Channel.model_validate({**bands, **ends, "shadowing": shadowing}), Streams(2)
    xy_m = np.column_stack([np.linspace(20.0, 200.0, 40), np.linspace(0.0, 30.0, 40)])
    hop = Hop.between(np.column_stack([xy_m, np.full(40, 1.5)]), np.array([0.0, 0.0, 10.0]))

    draws = moving_draws(channel, hop, xy_m, streams, np.arange(len(xy_m)))

    d_m = np.hypot(*xy_m.T)
    in_sight = draws.los < np.minimum(18 / d_m + np.exp(-d_m / 36) * (1 - 18 / d_m), 1.0)
    assert 5 < in_sight.sum() < 35
    for name, values, correlation_m in (
        ("los", special.ndtri(draws.los), np.full(40, 50.0)),
        ("shadowing", draws.shadowing, np.where(in_sight, in_sight_m, hidden_m)),
    ):
        key = streams.key("waves", name, 0)
        uniforms = [[uniform(mix(key, device), n) for n in range(3 * WAVES)] for device in range(40)]
        waves = np.array(uniforms).reshape(40, WAVES, 3)
        assert values == pytest.approx(shadow_normals(xy_m, correlation_m, waves), abs=1e-6)


DEVICE = {"tx_power_dbm": 23, "noise_figure_db": 9, "height_m": 1.5}
BASE = {"tx_power_dbm": 30, "noise_figure_db": 5, "height_m": 1.5}


def channel(**changes):
    """40 dB at 1 m and exponent 3, without shadowing, over 1 MHz."""
    law = {"kind": "log-distance", "exponent": 3.0, "reference_loss_db": 40.0}
    settings = {"carrier_hz": 2e9, "bandwidth_hz": 1e6, "path_loss": law, "device": DEVICE, "base_station": BASE}
    return Channel.model_validate({**settings, **changes})


SHADOWED = {"shadowing": {"kind": "log-normal", "sigma_db": 8.0}}
ORIGIN = np.zeros((1, 2))
XY_M = np.array([[100.0, 0.0], [0.0, 200.0], [-300.0, 400.0]])


def db(ratio):
    return 10 * math.log10(ratio)


def test_a_link_budget_adds_up_in_decibels():
    """At 100 m: 23 dBm - (40 + 60) dB against -174 + 60 + 5 dBm is 32 dB up, and 30 against + 9 is 35 dB down."""
    up, down = network_links(CellEnvironment(channel(), Streams(1), FullPower()), XY_M, ORIGIN)

    assert db(up.snr(0, SERVER)) == pytest.approx(32.0, abs=1e-9)
    assert db(down.snr(SERVER, 0)) == pytest.approx(35.0, abs=1e-9)
    assert db(up.snr(2, SERVER)) == pytest.approx(32.0 - 30 * math.log10(5), abs=1e-9)
    assert up.mean_snr.tolist() == [up.snr(device, SERVER) for device in range(3)]


def placed(count):
    return Disc(radius_m=300.0).positions_m(count, Streams(5)("placement"))


def test_more_devices_change_no_link_of_the_others():
    """Place, shadow, SNR and fading key of device k are the same in a network of 10 and of 100."""
    few, more = (
        network_links(CellEnvironment(channel(**SHADOWED), Streams(5), FullPower()), placed(count), ORIGIN)[0]
        for count in (10, 100)
    )

    assert few.mean_snr.tolist() == more.mean_snr[:10].tolist()
    assert [few.fading_key(k, SERVER) for k in range(10)] == [more.fading_key(k, SERVER) for k in range(10)]


def test_devices_hear_each_other_equally_well():
    """The budget of 223.6 m between two handsets, the same both ways; each direction fades on its own."""
    pairs = PairLinks(channel(), XY_M, Streams(1))

    expected_db = 23 - 40 - 30 * math.log10(math.hypot(100, 200)) - (-174 + 60 + 9)
    assert db(pairs.snr(0, 1)) == pytest.approx(expected_db, abs=1e-9)
    assert pairs.snr(0, 1) == pairs.snr(1, 0)
    assert len({pairs.fading_key(0, 1), pairs.fading_key(1, 0), pairs.fading_key(0, 2)}) == 3


def test_pairs_are_shadowed_symmetrically_and_in_any_order():
    """One shadow per pair, whoever asks first, one by one or all at once."""
    one, other = (PairLinks(channel(**SHADOWED), XY_M, Streams(1)) for _ in range(2))
    asked = [one.snr(*pair) for pair in ((2, 1), (0, 1), (2, 0))]
    other.snr(0, 2)
    sender, receiver = np.array([1, 0, 2]), np.array([2, 1, 0])

    assert asked == [other.snr(1, 2), other.snr(1, 0), other.snr(0, 2)]
    assert other.snrs(sender, receiver).tolist() == asked == other.snrs(receiver, sender).tolist()
    assert len(set(asked)) == 3


@pytest.mark.parametrize("stations", [1, 2])
def test_a_link_is_its_snr_and_its_key_both_ways(stations):
    """Of one station, whose links are kept in lists, as of several: what the arrays say, for uplinks and downlinks."""
    environment, stations_m = CellEnvironment(channel(**SHADOWED), Streams(1), FullPower()), 80.0 * np.eye(2)[:stations]
    for links in network_links(environment, XY_M, stations_m):
        for device, station in itertools.product(range(len(XY_M)), range(stations)):
            ends = device, radio_of(station)
            found = float(links.snrs(*map(np.array, ends))), int(links.fading_keys(*map(np.array, ends)))
            assert links.link(*ends) == links.link(*reversed(ends)) == found
            assert (links.snr(*ends), links.fading_key(*ends)) == found


@pytest.mark.parametrize("cell", [0, 2])
def test_the_fading_of_a_direction_is_keyed_by_its_name_and_cell(cell):
    """A second draw of every key, in the two directions; the lowest bit says whether there is line of sight."""
    name = (cell,) if cell else ()
    stations_m = np.vstack([ORIGIN + 50.0 * number for number in range(cell + 1)])
    up, down = network_links(CellEnvironment(channel(), Streams(1), FullPower()), XY_M, stations_m)

    for links, direction, ends in ((up, "uplink", (1, radio_of(cell))), (down, "downlink", (radio_of(cell), 1))):
        assert links.fading_key(*ends) | 1 == mix(Streams(1).key("fading", direction, *name), 1) | 1


def test_pairs_share_the_building_of_a_device_and_nothing_else(monkeypatch):
    """Of the pairs (0, 1), (0, 2) and (1, 2) the first two have device 0's building; all else is drawn per pair."""
    seen, large_scale = [], Channel.large_scale
    monkeypatch.setattr(Channel, "large_scale", lambda self, *args: seen.append(args[1]) or large_scale(self, *args))
    PairLinks(channel(**SHADOWED), XY_M, Streams(1)).snrs(np.array([0, 0, 1]), np.array([1, 2, 2]))
    (draws,) = seen
    key = Streams(1).key

    for name in ("indoor", "building", "depth"):
        assert sorted(getattr(draws, name).tolist()) == sorted(uniform(key(name, "pair"), low) for low in (0, 0, 1))
    for name in ("los", "environment"):
        pairs = [uniform(mix(key(name, "pair"), low), high) for low, high in ((0, 1), (0, 2), (1, 2))]
        assert sorted(getattr(draws, name).tolist()) == sorted(pairs)


def test_every_radio_is_its_own_quantile_of_the_normal_law():
    """Powers and noise figures in dB are sigma times the normal quantile of the device's uniform draw."""
    streams = Streams(7)
    law = Asymmetry(tx_power_sigma_db=3.0, noise_figure_sigma_db=2.0, obstacle_probability=0.5, obstacle_loss_db=10.0)
    one_way = OneWay(law, 6, streams)

    for values, name, sigma_db in ((one_way.tx, "power", 3.0), (one_way.rx, "noise", 2.0)):
        draws = [uniform(streams.key("asymmetry", name), device) for device in range(6)]
        assert 10 * np.log10(values) == pytest.approx([sigma_db * NormalDist().inv_cdf(draw) for draw in draws])

    hit = [uniform(mix(streams.key("asymmetry", "obstacle"), 2), receiver) < 0.5 for receiver in range(6)]
    loss = one_way.factors(np.array(2), np.arange(6)) / (one_way.tx[2] * one_way.rx)
    assert loss == pytest.approx([0.1 if behind else 1.0 for behind in hit])


TERMINAL_MOVING = {"tx_power_dbm": 20, "noise_figure_db": 5, "height_m": 0}
CLEAR = {
    "carrier_hz": 2e9,
    "bandwidth_hz": 1e6,
    "path_loss": {"kind": "log-distance", "exponent": 2.0, "reference_loss_db": 40.0},
    "rate": {"kind": "shannon", "gap_db": 0, "max_efficiency_bps_hz": None, "min_efficiency_bps_hz": 0},
    "device": TERMINAL_MOVING,
    "base_station": TERMINAL_MOVING,
}


class Straight:
    """All walk east at 1 m/s from where they were placed."""

    speed_m_s = 1.0

    def __init__(self, start_m):
        self.start_m, self.asked = np.array(start_m, float), []

    def positions_m(self, devices, time_s):
        self.asked.append(time_s)
        return self.start_m[devices] + np.array([time_s, 0.0])


def wire(paths, channel=CLEAR, **settings):
    count = len(paths.start_m)
    parts = (Clock(), Ledger(), Streams(1), Presence(Always(), 0, count), Channel.model_validate(channel))
    return Network(*parts, paths, NetworkSettings(**settings))


def upload(network, device, at_s, size_bit=1000):
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
    network = wire(paths, position_update_s=10.0)
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
    assert links.now().station_of(0) == -3


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
    rows = network.uplink.ledger.frame("transfers")
    blocks_db = 10 * np.log10(1e6 / 180e3)
    wanted_w = [10 ** ((-100 + blocks_db + 40 + 20 * np.log10(distance_m) - 30) / 10) for distance_m in (10.0, 100.0)]
    airtime_s = [delivery.ended_s - delivery.started_s for delivery in deliveries]

    assert rows["energy_j"].tolist() == pytest.approx([p * t for p, t in zip(wanted_w, airtime_s, strict=True)])
    assert airtime_s[0] == pytest.approx(airtime_s[1])


@pytest.mark.parametrize("access", ["tdma", "ofdma", "full-reuse"])
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

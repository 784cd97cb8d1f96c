"""Claims about links: budgets in dB, reciprocity, and draws that belong to their link."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fednet_emu.devices.placement import Disc
from fednet_emu.kernel.streams import Streams, mix, uniform
from fednet_emu.network.air.band import Band
from fednet_emu.network.links.links import CellEnvironment, PairLinks, network_links
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.radio.receiver.power_control import FullPower
from fednet_emu.records.ledger import SERVER

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
    """Decibels."""
    return 10 * math.log10(ratio)


def test_a_link_budget_adds_up_in_decibels():
    """At 100 m: 23 dBm - (40 + 60) dB against -174 + 60 + 5 dBm is 32 dB up, and 30 against + 9 is 35 dB down."""
    up, down = network_links(CellEnvironment(channel(), Streams(1), FullPower()), XY_M, ORIGIN)

    assert db(up.snr(0, SERVER)) == pytest.approx(32.0, abs=1e-9)
    assert db(down.snr(SERVER, 0)) == pytest.approx(35.0, abs=1e-9)
    assert db(up.snr(2, SERVER)) == pytest.approx(32.0 - 30 * math.log10(5), abs=1e-9)
    assert up.mean_snr.tolist() == [up.snr(device, SERVER) for device in range(3)]


def test_both_directions_have_the_same_shadow_and_their_own_fading():
    """Reciprocity of places, independence of frequencies."""
    up, down = network_links(CellEnvironment(channel(**SHADOWED), Streams(1), FullPower()), XY_M, ORIGIN)
    clear, _ = network_links(CellEnvironment(channel(), Streams(1), FullPower()), XY_M, ORIGIN)
    keys = {links.fading_key(*ends) for links, ends in ((up, (0, SERVER)), (down, (SERVER, 0)), (up, (1, SERVER)))}

    assert np.allclose(10 * np.log10(down.mean_snr / up.mean_snr), 3.0)
    assert np.all(np.abs(10 * np.log10(up.mean_snr / clear.mean_snr)) > 0.01)
    assert len(keys) == 3


def test_shadows_are_gaussian_in_decibels():
    """Mean 0 and standard deviation 8 dB over many devices at one distance."""
    xy_m = np.tile([[100.0, 0.0]], (20_000, 1))
    up, _ = network_links(CellEnvironment(channel(**SHADOWED), Streams(3), FullPower()), xy_m, ORIGIN)

    assert stats.kstest((10 * np.log10(up.mean_snr) - 32.0) / 8.0, "norm").pvalue > 1e-3


def placed(count):
    """Devices on a disc."""
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


def test_links_in_sight_fade_less():
    """With fading by line of sight, gains of links in sight scatter as Rician ones, the others' as Rayleigh ones."""
    environment = {**SHADOWED, "path_loss": {"kind": "3gpp-umi"}, "fading": {"kind": "by-line-of-sight", "k_db": 9}}
    xy_m = np.tile([[60.0, 0.0]], (4000, 1))
    up, _ = network_links(CellEnvironment(channel(**environment), Streams(3), FullPower()), xy_m, ORIGIN)
    band = Band.of(1e6, Shannon(), channel(**environment).fading)
    keys = up.fading_keys(np.arange(4000), np.full(4000, SERVER))
    gains = band.gains(keys, np.zeros(4000, np.int64))

    assert 0.1 < up.in_sight.mean() < 0.9
    assert gains[~up.in_sight].var() == pytest.approx(1.0, rel=0.15)
    k = 10**0.9
    assert gains[up.in_sight].var() == pytest.approx((1 + 2 * k) / (1 + k) ** 2, rel=0.15)
    assert up.fading_key(7, SERVER) == int(keys[7])


def test_every_device_has_its_own_fading_in_both_forms():
    """One link and many are the same, the first device's included, whichever end it is."""
    up, down = network_links(CellEnvironment(channel(), Streams(1), FullPower()), XY_M, ORIGIN)
    devices, server = np.arange(3), np.full(3, SERVER)

    assert [up.fading_key(k, SERVER) for k in range(3)] == up.fading_keys(devices, server).tolist()
    assert [down.fading_key(SERVER, k) for k in range(3)] == down.fading_keys(server, devices).tolist()
    assert len({down.fading_key(SERVER, k) for k in range(3)}) == 3


@pytest.mark.parametrize("stations", [1, 2])
def test_a_link_is_its_snr_and_its_key_both_ways(stations):
    """Of one station, whose links are kept in lists, as of several: what the arrays say, for uplinks and downlinks."""
    environment, stations_m = CellEnvironment(channel(**SHADOWED), Streams(1), FullPower()), 80.0 * np.eye(2)[:stations]
    for links in network_links(environment, XY_M, stations_m):
        for device, station in itertools.product(range(len(XY_M)), range(stations)):
            ends = device, -1 - station
            found = float(links.snrs(*map(np.array, ends))), int(links.fading_keys(*map(np.array, ends)))
            assert links.link(*ends) == links.link(*reversed(ends)) == found
            assert (links.snr(*ends), links.fading_key(*ends)) == found


@pytest.mark.parametrize("cell", [0, 2])
def test_the_fading_of_a_direction_is_keyed_by_its_name_and_cell(cell):
    """A second draw of every key, in the two directions; the lowest bit says whether there is line of sight."""
    name = (cell,) if cell else ()
    stations_m = np.vstack([ORIGIN + 50.0 * number for number in range(cell + 1)])
    up, down = network_links(CellEnvironment(channel(), Streams(1), FullPower()), XY_M, stations_m)

    for links, direction, ends in ((up, "uplink", (1, -1 - cell)), (down, "downlink", (-1 - cell, 1))):
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

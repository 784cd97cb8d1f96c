"""Channels, and surveys of their rates."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from fednet_emu.radio.channel import Channel, DeviceRadio, StationRadio
from fednet_emu.radio.fading import NoFading, coherence_time_s
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.path_loss import LogDistance
from fednet_emu.radio.survey import uplink_rates
from fednet_emu.units import linear_to_db

FILES = sorted((Path(__file__).parents[2] / "channels").glob("*.yaml"))
HANDSET = DeviceRadio(tx_power_dbm=23, noise_figure_db=9, height_m=1.5)
STATION = StationRadio(tx_power_dbm=30, noise_figure_db=5, height_m=10)


def load(name, **changes):
    """The channel of a file in channels/, by name, with some settings changed."""
    path = next(path for path in FILES if path.stem == name)
    return Channel.model_validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")) | changes)


def channel(**changes):
    settings = {"carrier_hz": 3.5e9, "bandwidth_hz": 20e6, "path_loss": "free-space", "device": HANDSET}
    return Channel.model_validate({**settings, "base_station": STATION, **changes})


def uplink(*distances_2d_m, of):
    """Hops from devices to the base station of a channel, at the heights it gives them."""
    device_m, station_m = of.device.height_m, of.base_station.height_m
    return Hop(np.array(distances_2d_m), tx_height_m=np.array(device_m), rx_height_m=np.array(station_m))


def loss_db(of, *distances_2d_m):
    gains = of.large_scale(uplink(*distances_2d_m, of=of), np.zeros(len(distances_2d_m))).gain
    return -10 * np.log10(gains)


def test_gain_is_path_loss_and_shadowing_together():
    """60 dB of distance and 16 dB of two standard deviations leave 10^-7.6 of the power."""
    law = LogDistance(exponent=2.0, reference_distance_m=10, reference_loss_db=40)
    shadowed = channel(path_loss=law, shadowing={"kind": "log-normal", "sigma_db": 8})
    flat = Hop(np.array([100.0, 100.0]), tx_height_m=np.array(1.5), rx_height_m=np.array(1.5))

    gains = shadowed.large_scale(flat, np.array([2.0, 0.0])).gain

    assert gains == pytest.approx([10**-7.6, 10**-6.0])


def test_noise_uses_the_receiver_the_channel_density_and_the_share_of_the_band():
    """Half of 20 MHz at -170 dBm/Hz and 5 dB is -95 dBm at the station, 4 dB more at a handset."""
    noisy = channel(noise_density_dbm_hz=-170)

    assert 30 + linear_to_db(noisy.noise_w(noisy.base_station, 10e6)) == pytest.approx(-95.0)
    assert 30 + linear_to_db(noisy.noise_w(noisy.device, 10e6)) == pytest.approx(-91.0)


def test_draws_pick_the_state_and_its_shadowing():
    """At 100 m in a street canyon, a link in sight has 4 dB of shadowing over 10 m, another 7.82 dB over 13 m."""
    micro = load("urban-micro")
    luck = dataclasses.replace(LinkDraws.typical(np.array([1.0, 1.0])), los=np.array([0.1, 0.9]))
    median = dataclasses.replace(luck, shadowing=np.zeros(2))
    hop = uplink(100.0, 100.0, of=micro)

    links = micro.large_scale(hop, luck)

    np.testing.assert_array_equal(links.los, [True, False])
    np.testing.assert_array_equal(links.correlation_m, [10.0, 13.0])
    shadow_db = 10 * np.log10(micro.large_scale(hop, median).gain / links.gain)
    assert shadow_db == pytest.approx([4.0, 7.82])


def test_named_draws_come_from_named_uniforms():
    """The source is asked once per name; normals are quantiles of its uniforms."""
    asked = []

    def uniform(name):
        asked.append(name)
        return np.array([0.975])

    luck = LinkDraws.of(uniform)

    assert asked == [field.name for field in dataclasses.fields(LinkDraws)]
    assert luck.shadowing == pytest.approx([1.959964], abs=1e-6)
    np.testing.assert_array_equal(luck.los, [0.975])


def test_resource_blocks_leave_part_of_the_band_unused():
    """51 blocks of 30 kHz fill 18.36 of 20 MHz; without a numerology all of it is used."""
    assert channel(subcarrier_spacing_khz=30).usable_hz == pytest.approx(18.36e6)
    assert channel().usable_hz == 20e6


def test_long_transfers_may_run_at_the_ergodic_rate():
    """Then the medium gets a mean rate and no fading; by default it gets the block's law and the fading."""
    walked = channel(fading="rayleigh")
    averaged = channel(fading="rayleigh", fading_model="ergodic")

    assert (walked.medium_rate(), walked.medium_fading) == (walked.block_rate, walked.fading)
    assert isinstance(averaged.medium_fading, NoFading)
    assert averaged.medium_rate().rate_bps(10.0, 1e6) < averaged.rate.rate_bps(10.0, 1e6)


def test_without_fading_the_ergodic_rate_is_the_rate():
    """There is nothing to average."""
    still = channel(fading_model="ergodic")

    assert still.medium_rate() == still.block_rate


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_a_channel_that_says_where_it_is_from(path):
    """Each file validates, comes back equal from its own dump, and names its title, use, source and licence."""
    loaded = load(path.stem)

    assert Channel.model_validate(loaded.model_dump()) == loaded
    assert loaded.title
    assert loaded.use
    assert loaded.source
    assert "# Units" in path.read_text(encoding="utf-8")
    assert "Licence" in path.read_text(encoding="utf-8")


def test_urban_micro_follows_the_3gpp_street_canyon():
    """At 100, 1000 and 5000 m a typical link is the UMi NLOS row of ns-3's suite at 5 GHz, moved to 3.5 GHz."""
    to_5_ghz_db = 21.3 * math.log10(5 / 3.5)

    assert loss_db(load("urban-micro"), 100.0, 1000.0, 5000.0) + to_5_ghz_db == pytest.approx(
        [107.9432, 143.1886, 167.8617], abs=1e-4
    )


@pytest.mark.parametrize("name", ["urban-macro-classic", "fl-paper"])
def test_classic_cells_are_the_law_of_the_papers(name):
    """128.1 + 37.6 log10(d_km): 128.1 dB at 1 km, 11.3 dB less at half of it, 90.5 dB at 100 m."""
    losses_db = loss_db(load(name), 1000.0, 500.0, 100.0)

    assert losses_db == pytest.approx([128.1, 128.1 - 37.6 * math.log10(2), 90.5])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_blocks_last_as_long_as_movement_makes_them(path):
    """The coherence time in each file is that of 3 km/h (60 km/h between vehicles) at the file's own carrier."""
    here = load(path.stem)
    if isinstance(here.fading, NoFading):
        assert path.stem in {"ideal", "fl-paper"}
        return
    speed_m_s = (60 if path.stem == "v2v" else 3) / 3.6

    assert here.fading.coherence_s == pytest.approx(coherence_time_s(speed_m_s, here.carrier_hz), rel=3e-3)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_another_carrier_changes_how_long_blocks_last(path):
    """At 0.8 times the carrier 1.25 times as long, for the same speed; a coherence time that is given stays."""
    there = load(path.stem)
    if isinstance(there.fading, NoFading):
        return
    lower = {"carrier_hz": 0.8 * there.carrier_hz, "bandwidth_hz": 1e6, "subcarrier_spacing_khz": None}

    slower = load(path.stem, **lower)
    stated = load(path.stem, **lower, fading={"kind": "rayleigh", "coherence_s": 0.02, "speed_m_s": 1.0})

    assert slower.fading.coherence_s == pytest.approx(1.25 * there.fading.coherence_s, rel=5e-3)
    assert stated.fading.coherence_s == 0.02


def test_ideal_carries_one_megabit_in_one_second_anywhere():
    """The rate is 1 Mbit/s at any SINR and in any share of the band, and nothing is ever in outage."""
    ideal = load("ideal")

    assert ideal.rate.rate_bps(1e-15, 1.0) == 1e6
    assert (ideal.rate.outage_sinr, ideal.rate.min_sinr) == (0.0, 0.0)
    assert math.isinf(ideal.fading.coherence_s)


def test_without_randomness_all_links_are_one():
    """Free space at 500 m: 97.3 dB, an SNR of 21.7 dB, and a cap of 5.5547 bit/s/Hz at 50 m."""
    rates = uplink_rates(channel(), np.array([50.0, 500.0]))
    snr = 10 ** ((23 - 20 * np.log10(4 * np.pi * np.hypot(500, 8.5) * 3.5e9 / 3e8) + 174 - 73.0103 - 5) / 10)

    assert rates.median_bps[0] == pytest.approx(20e6 * 5.5547)
    assert rates.median_bps[1] == pytest.approx(20e6 * min(np.log2(1 + snr / 10**0.2), 5.5547), rel=1e-6)
    np.testing.assert_array_equal(rates.low_bps, rates.high_bps)


def test_the_median_over_places_is_that_of_the_median_shadowing():
    """Without fading, log-normal shadowing leaves the median rate at the median loss."""
    law = {"kind": "log-distance", "exponent": 2.8}
    still = uplink_rates(channel(path_loss=law), np.array([300.0]))
    shadowed = uplink_rates(channel(path_loss=law, shadowing={"kind": "log-normal", "sigma_db": 8}), np.array([300.0]))

    assert shadowed.median_bps == pytest.approx(still.median_bps, rel=0.01)
    assert shadowed.low_bps < still.median_bps < shadowed.high_bps


def test_distances_out_of_range_have_no_rate():
    """An office ends at 150 m; what comes after in the list is nearer and has one."""
    office = channel(path_loss="3gpp-inh", shadowing="of-path-loss")

    rates = uplink_rates(office, np.array([50.0, 200.0, 100.0]))

    assert rates.median_bps[0] > rates.median_bps[2] > 0
    assert np.isnan(rates.median_bps[1])


def test_each_state_fades_by_its_own_law():
    """In sight all links are Rician, behind corners all are Rayleigh."""
    distance = np.array([80.0])
    for los, same in (("always", {"kind": "rician", "k_db": 9}), ("never", "rayleigh")):
        mixed = channel(path_loss={"kind": "3gpp-umi", "los": los}, fading="by-line-of-sight")
        plain = channel(path_loss={"kind": "3gpp-umi", "los": los}, fading=same)
        assert uplink_rates(mixed, distance).median_bps == pytest.approx(uplink_rates(plain, distance).median_bps)


def test_a_weak_device_sends_on_part_of_its_band():
    """At 40 km a lone device of 20 MHz is 9 dB below the least SINR, and reaches it on an eighth of the band."""
    gain_db = -20 * np.log10(4 * np.pi * np.hypot(40e3, 8.5) * 3.5e9 / 3e8)
    snr = 10 ** ((23 + gain_db + 174 - 73.0103 - 5) / 10)
    part = snr / (10**0.2 * (2**0.1523 - 1))

    once = {"kind": "shannon", "max_repetitions": 1}
    rates = {on: uplink_rates(channel(narrowing=on, rate=once), np.array([40e3])).median_bps[0] for on in ("on", "off")}

    assert 0.12 < part < 0.14
    assert rates["on"] == pytest.approx(20e6 * 0.1523 * part, rel=1e-5)
    assert rates["off"] == 0.0

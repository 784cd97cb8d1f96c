"""Claims about the survey of rates over distance."""

import numpy as np
import pytest

from fednet_emu.radio.channel import Channel, DeviceRadio, StationRadio
from fednet_emu.radio.survey import uplink_rates

HANDSET = DeviceRadio(tx_power_dbm=23, noise_figure_db=9, height_m=1.5)
STATION = StationRadio(tx_power_dbm=30, noise_figure_db=5, height_m=10)


def channel(**changes):
    """A small channel with some settings changed."""
    settings = {"carrier_hz": 3.5e9, "bandwidth_hz": 20e6, "path_loss": "free-space", "device": HANDSET}
    return Channel.model_validate({**settings, "base_station": STATION, **changes})


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

    once = {"kind": "shannon", "repetitions": 1}
    rates = {on: uplink_rates(channel(narrowing=on, rate=once), np.array([40e3])).median_bps[0] for on in ("on", "off")}

    assert 0.12 < part < 0.14
    assert rates["on"] == pytest.approx(20e6 * 0.1523 * part, rel=1e-5)
    assert rates["off"] == 0.0

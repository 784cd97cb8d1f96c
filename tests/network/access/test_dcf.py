"""Claims about Wi-Fi on the air: rates follow from who is there, and power is drawn for what is sent."""

import numpy as np
import pytest

from fednet_emu.network.wifi.contention import Mode, contend
from fednet_emu.network.wifi.dcf import Dcf
from fednet_emu.network.wifi.standards import schemes
from fednet_emu.radio.fading import Rayleigh

MBIT = 1_000_000
GOOD, LOWEST = 10**3, 10**0.0925
IP = 1500 / 1472
"""Bits of a packet over those of its UDP payload, which is what published rates count."""
ALONE_BPS, TWO_BPS = 66.406e6 * IP, 62.568e6 * IP
"""802.11n, 20 MHz, MCS 7, aggregates and block-ack requests: one station, and two together."""
N = Dcf(standard="n")


def bps(*scheme):
    """Rates of stations of 802.11n with these schemes."""
    return contend(Mode("n", 20), np.array(scheme)[:, None], np.arange(len(scheme))).rate_bps[:, 0]


def test_who_stays_has_the_channel_to_itself(cell):
    """20 and 40 Mbit: both at half of the rate of two until the first has ended, then the other alone."""
    first_s = 20 * MBIT / (TWO_BPS / 2)
    found = cell(N, snr=[GOOD, GOOD], bandwidth_hz=20e6).play((0.0, 0, 20 * MBIT), (0.0, 1, 40 * MBIT))

    assert [each.ended_s for each in found] == pytest.approx([first_s, first_s + 20 * MBIT / ALONE_BPS], rel=1e-5)


def test_a_slow_station_takes_most_of_the_time(cell):
    """MCS 0 and 7: 31.6 and 3.06 Mbit/s of payload together (ns-3: 34.7 in all, 3.0), then the fast one alone."""
    slow_bps, fast_bps = 3.060e6 * IP, 31.622e6 * IP
    slow_s = MBIT / slow_bps
    found = cell(N, snr=[LOWEST * 1.001, GOOD], bandwidth_hz=20e6).play((0.0, 0, MBIT), (0.0, 1, 20 * MBIT))

    rest_s = (20 * MBIT - slow_s * fast_bps) / ALONE_BPS
    assert [each.ended_s for each in found] == pytest.approx([slow_s, slow_s + rest_s], rel=1e-3)


def test_a_station_below_the_lowest_scheme_is_out_of_reach(cell):
    """At 0.925 dB a station carries bits, just below it never: the loss does not disturb the other."""
    found = cell(N, snr=[LOWEST * 0.999, GOOD], bandwidth_hz=20e6).play((0.0, 0, MBIT), (0.0, 1, MBIT))

    assert [each.lost for each in found] == ["unreachable", ""]
    assert found[1].ended_s == pytest.approx(MBIT / ALONE_BPS, rel=1e-5)


@pytest.mark.parametrize(("factor", "lost"), [(1.001, ""), (0.999, "unreachable")])
def test_a_channel_that_is_part_of_the_band_has_the_whole_power(cell, factor, lost):
    """20 of 80 MHz: a quarter of the SNR of the band suffices, and rates are those of 20 MHz."""
    world = cell(Dcf(standard="n", width_mhz=20), snr=[LOWEST / 4 * factor], bandwidth_hz=80e6)
    (found,) = world.play((0.0, 0, MBIT))

    assert found.lost == lost
    if not lost:
        assert found.ended_s == pytest.approx(MBIT / bps(0)[0], abs=1e-9)


def test_two_streams_need_twice_the_power(cell):
    """Each has a half of it; 802.11n with two streams carries nearly twice as much."""
    (lost,) = cell(Dcf(standard="n", streams=2), snr=[LOWEST * 1.999], bandwidth_hz=20e6).play((0.0, 0, MBIT))
    (found,) = cell(Dcf(standard="n", streams=2), snr=[LOWEST * 2.001], bandwidth_hz=20e6).play((0.0, 0, MBIT))

    assert lost.lost == "unreachable"
    assert 1.8 < MBIT / found.ended_s / bps(0)[0] < 2


@pytest.mark.parametrize("mode", ["downlink", "uplink"])
def test_a_sender_draws_power_while_it_sends(cell, mode):
    """802.11a at 54 Mbit/s alone: 248 us of each 326 us of exchange, with the series and slots of frozen backoff."""
    world = cell(Dcf(standard="a"), snr=[GOOD], bandwidth_hz=20e6, multicast=mode == "downlink", drawn_w=0.5)
    (found,) = world.play((0.0, 0, 10 * MBIT))

    series_us = (326 + 1 / 15 * 326 + 9) + 7.5 * 9
    airtime = 248 * 16 / 15 / series_us
    assert found.ended_s == pytest.approx(10 * MBIT / (12000 * 16 / 15 / series_us * 1e6), abs=1e-9)
    assert world.rows["energy_j"].tolist() == pytest.approx([0.5 * found.ended_s * airtime], rel=1e-8)


def test_stations_take_the_fastest_scheme_of_each_fading_block(cell, gain_of):
    """Three under Rayleigh fading around 18 dB, one of them nearly lost: block by block, by hand."""
    fading, snr, size_bit = Rayleigh(coherence_s=0.01), [60.0, 60.0, 1.0], 3 * MBIT
    found = cell(N, fading=fading, snr=snr, bandwidth_hz=20e6).play(*((0.0, device, size_bit) for device in range(3)))
    needed = [10 ** (scheme.snr_db / 10) for scheme in schemes("n", 20)]
    left, ends_s, block = [float(size_bit)] * 3, [0.0] * 3, 0
    while any(left):
        now_s, until_s = block * 0.01, (block + 1) * 0.01
        own = [
            sum(snr[device] * gain_of(fading, device, block) >= least for least in needed) - 1 if left[device] else -1
            for device in range(3)
        ]
        while now_s < until_s and any(number >= 0 for number in own):
            rate = bps(*own)
            step_s = min(until_s - now_s, *(left[k] / rate[k] for k in range(3) if own[k] >= 0))
            now_s += step_s
            for k in range(3):
                if own[k] >= 0:
                    left[k] -= rate[k] * step_s
                    if left[k] < 1e-3:
                        left[k], own[k], ends_s[k] = 0.0, -1, now_s
        block += 1

    assert [each.ended_s for each in found] == pytest.approx(ends_s, rel=1e-7)

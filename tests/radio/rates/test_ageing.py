"""Claims about reports that are old when they are used, against loops played slot by slot on fading links."""

import math
from bisect import bisect_right

import numpy as np
import pytest
from scipy.special import j0, ndtr

from fednet_emu.radio.ageing import AgedRate, aged_efficiency, aged_gains
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.fading import CombinedRician, Nakagami, NoFading, Rayleigh, Rician
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.rates.ergodic import ErgodicRate

SLOT_S = 5e-4
LAW = NrBlocks(margin_db=0, resource_blocks=51, feedback="aged")
FADINGS = [Rayleigh(), Rician(k_db=6), Nakagami(m=2.5), CombinedRician(k_db=3, branches=4)]
NAMES = ["rayleigh", "rician", "nakagami", "four antennas"]


def coherence_s(speed_km_h):
    """Coherence time at 3.5 GHz."""
    return 0.423 / (speed_km_h / 3.6 * 3.5e9 / 3e8)


def course(draws, doppler_hz, slots, k):
    """Power gains of a link over time: 64 waves from all around, and a line of sight."""
    time_s = np.arange(slots) * SLOT_S
    angle = 2 * math.pi * (np.arange(64) + draws.random()) / 64
    phase = 2 * math.pi * draws.random(64)
    field = np.zeros(slots, complex)
    for one, start in zip(angle, phase, strict=True):
        field += np.exp(1j * (2 * math.pi * doppler_hz * math.cos(one) * time_s + start))
    return np.abs(math.sqrt(k / (k + 1)) + field / math.sqrt(64 * (k + 1))) ** 2


def played_bps_hz(mean_db, doppler_hz, period, delay, k=0.0, seconds=150, up_db=0.05):
    """Efficiency of first attempts of a loop: the report of every `period` slots serves from `delay` slots on."""
    draws = np.random.default_rng(3)
    snr_db = (mean_db + 10 * np.log10(course(draws, doppler_hz, round(seconds / SLOT_S), k))).tolist()
    thresholds_db, luck = LAW.thresholds_db.tolist(), draws.random(len(snr_db)).tolist()
    schemes = [(curve.efficiency_bps_hz, curve.half_db) for curve in LAW.curves]
    offset_db, carried, first = 4.0, 0.0, len(snr_db) // 10
    for slot in range(delay + period, len(snr_db)):
        reported_db = snr_db[(slot - delay) // period * period] - offset_db
        efficiency, half_db = schemes[max(bisect_right(thresholds_db, reported_db) - 1, 0)]
        if luck[slot] < 0.5 * math.erfc((snr_db[slot] - half_db) / (0.2 * math.sqrt(2))):
            offset_db += up_db
        else:
            offset_db -= up_db / 9
            carried += efficiency if slot >= first else 0.0
    return carried / (len(snr_db) - first)


@pytest.mark.parametrize(
    ("speed_km_h", "report_slots", "k"),
    [(30, 40, 0.0), (3, 40, 4.0), *(pytest.param(3, slots, 0.0, marks=pytest.mark.slow) for slots in (40, 160))],
)
def test_it_is_the_rate_of_a_loop_at_15_db(speed_km_h, report_slots, k):
    """Reports every 20 or 80 ms, 4 ms old at first, at 3 and 30 km/h: 150 s of a slow loop within 5 %."""
    lasting_s = coherence_s(speed_km_h)
    fading = Rician(k_db=10 * math.log10(k), coherence_s=lasting_s) if k else Rayleigh(coherence_s=lasting_s)
    before, now = aged_gains(fading, 0.004, (report_slots - 1) * SLOT_S)

    expected, _ = aged_efficiency(LAW, 15.0, before, now)

    played = played_bps_hz(15.0, 0.423 / fading.coherence_s, report_slots, 8, k)
    assert played == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("speed_km_h", "report_s", "expected", "offset_db"),
    [(3, 0.0195, 2.05, 5.2), (3, 0.0795, 1.50, 7.9), (30, 0.0195, 1.37, 8.7)],
)
def test_published_integrals(speed_km_h, report_s, expected, offset_db):
    """Rayleigh at 15 dB and 10 % errors: efficiency per data symbol within 3 %, offset within 0.2 dB."""
    before, now = aged_gains(Rayleigh(coherence_s=coherence_s(speed_km_h)), 0.004, report_s)

    efficiency, offset = aged_efficiency(LAW, 15.0, before, now)

    assert efficiency * 180 / 144 == pytest.approx(expected, rel=0.03)
    assert offset == pytest.approx(offset_db, abs=0.2)


@pytest.mark.parametrize("fading", FADINGS, ids=NAMES)
def test_both_gains_have_the_law_of_the_fading(fading):
    """Shares of pairs below some gains, at the first and at the second time, within 1 %."""
    levels = np.array([0.2, 0.5, 1.0, 1.5, 2.5])

    for gains in aged_gains(fading, 0.01, 0.02):
        shares = np.array([(gains <= level).mean() for level in levels])
        np.testing.assert_allclose(shares, fading.cdf(levels), atol=0.01)


@pytest.mark.parametrize("fading", FADINGS[:1] + FADINGS[2:3], ids=["rayleigh", "nakagami"])
def test_powers_correlate_by_the_square_of_the_field(fading):
    """rho^2 = J0(2 pi f_D tau)^2 for gains without a line of sight, at an age without spread, within 0.02."""
    age_s = 0.01
    before, now = aged_gains(fading, age_s, 1e-9)

    rho = j0(2 * math.pi * 0.423 / fading.coherence_s * age_s)

    assert np.corrcoef(before, now)[0, 1] == pytest.approx(rho**2, abs=0.02)


def test_a_fresh_report_is_as_good_as_knowing_the_block():
    """Without age, at 12 and 20 dB, one offset for all blocks carries as much as one for each, within 4 %."""
    for mean_db in (12.0, 20.0):
        before, now = aged_gains(Rayleigh(), 0.0, 1e-9)
        efficiency, offset_db = aged_efficiency(LAW, mean_db, before, now)

        ideal = ErgodicRate(law=LAW, fading=Rayleigh()).rate_bps(10 ** (mean_db / 10), 1.0)

        assert efficiency == pytest.approx(ideal, rel=0.04)
        assert -1.0 < offset_db < 0.0


def test_a_block_error_rate_is_held():
    """A tenth of the first attempts fails where the loop has schemes above and below; counted pair by pair."""
    before, now = aged_gains(Rayleigh(), 0.004, 0.02)
    _, offset_db = aged_efficiency(LAW, 12.0, before, now)

    chosen = np.searchsorted(LAW.thresholds_db, 12.0 + 10 * np.log10(before) - offset_db, side="right") - 1
    half_db = np.array([curve.half_db for curve in LAW.curves])[np.maximum(chosen, 0)]
    failing = ndtr((half_db - 12.0 - 10 * np.log10(now)) / 0.2)

    assert failing.mean() == pytest.approx(0.1, abs=1e-3)


def test_more_age_lowers_the_rate_and_more_power_raises_it():
    """Reports every 20 and 80 ms at ten mean SNRs, fresh ones at the highest of them as good as any."""
    snr = 10 ** (np.linspace(-5, 40, 10) / 10)
    older = NrBlocks(**{**LAW.model_dump(), "report_s": 0.08})
    young, old = (AgedRate(law=law, fading=Rayleigh()) for law in (LAW, older))

    rates_bps = np.array([law.rates_bps(snr, 1e6) for law in (young, old)])

    assert np.all(np.diff(rates_bps, axis=1) > 0)
    assert np.all(rates_bps[1] < 1.002 * rates_bps[0])
    assert np.all(rates_bps[1, 2:6] < 0.9 * rates_bps[0, 2:6])
    assert [young.rate_bps(float(one), 1e6) for one in snr] == pytest.approx(rates_bps[0].tolist())


def test_the_table_is_the_integral():
    """Between the points of the grid too, within 1 %, but 12 % where the loop falls to its lowest scheme."""
    law = AgedRate(law=LAW, fading=Rayleigh())
    gains = aged_gains(Rayleigh(), LAW.delay_s, LAW.report_s)

    for mean_db, within in ((-4.2, 0.01), (3.75, 0.12), (5.2, 0.01), (10.25, 0.01), (21.7, 0.01)):
        expected, _ = aged_efficiency(LAW, mean_db, *gains)
        assert law.rate_bps(10 ** (mean_db / 10), 1.0) == pytest.approx(expected, rel=within)


def test_a_fixed_number_of_repetitions_helps_weak_links_alone():
    """8 repetitions never slow a link; at -9.03 dB below -3 dB an eighth of the lowest scheme's rate, or more."""
    once = AgedRate(law=NrBlocks(**{**LAW.model_dump(), "max_repetitions": 1}), fading=Rayleigh())
    eight, sinr = AgedRate(law=LAW, fading=Rayleigh()), 10 ** (np.linspace(-20, 30, 101) / 10)

    assert np.all(eight.rates_bps(sinr, 1e6) >= once.rates_bps(sinr, 1e6))
    assert eight.rate_bps(10**-0.3 / 8, 1e6) >= 0.99 / 8 * once.rate_bps(10**-0.3, 1e6)
    assert eight.rate_bps(1000.0, 1e6) == once.rate_bps(1000.0, 1e6)


def test_a_channel_uses_the_aged_mean_and_narrows_by_it():
    """A weak device does better on part of the band, by the mean SNR there."""
    channel = Channel(
        carrier_hz=3.5e9,
        subcarrier_spacing_khz=30,
        path_loss={"kind": "log-distance", "exponent": 3},
        rate={"kind": "nr-blocks", "feedback": "aged", "margin_db": 0, "max_repetitions": 1},
        fading="rayleigh",
        fading_model="ergodic",
    )
    off = Channel(**{**channel.model_dump(exclude_unset=True), "narrowing": "off"})
    whole, parts = off.medium_rate(), channel.medium_rate()

    assert isinstance(whole, AgedRate)
    assert whole.law.resource_blocks == 51
    assert isinstance(channel.medium_fading, NoFading)
    assert parts.rate_bps(0.01, channel.usable_hz) > 5 * whole.rate_bps(0.01, channel.usable_hz)
    assert parts.rate_bps(100.0, channel.usable_hz) == whole.rate_bps(100.0, channel.usable_hz)


def test_the_highest_scheme_is_kept_where_it_hardly_fails():
    """At 70 dB everything goes through, at the size of MCS 28."""
    law = AgedRate(law=LAW, fading=Rayleigh())

    assert law.rate_bps(1e7, 51 * 360e3) / 5 == pytest.approx(16.39e6, rel=1e-3)

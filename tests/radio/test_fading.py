"""Fading, flat and selective."""

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.transfer import Message
from fednet_emu.radio.channel import Channel, median_delay_spread_s
from fednet_emu.radio.fading import (
    FADINGS,
    Fading,
    FadingByLineOfSight,
    InBand,
    Nakagami,
    NoFading,
    Rayleigh,
    Rician,
    coherence_time_s,
    independent_parts,
)
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.rates.ergodic import ErgodicRate, averaged
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import SERVER
from tests.network.media import HandMadeLinks, medium_of
from tests.quick import examples

MIDPOINTS = (np.arange(200_000) + 0.5) / 200_000
LAWS = [NoFading(), Rayleigh(), Rician(k_db=9), Rician(k_db=-20), Nakagami(m=0.5), Nakagami(m=4), FadingByLineOfSight()]
ALL_KINDS = pytest.mark.parametrize("fading", LAWS, ids=lambda law: f"{law.kind}-{getattr(law, 'm', '')}")
BOTH_STATES = pytest.mark.parametrize(
    ("fading", "los"),
    [
        pytest.param(law, los, marks=pytest.mark.slow if los and law is not LAWS[-1] else [], id=f"{law.kind}-{los}")
        for law, los in product(LAWS, (False, True))
    ],
)
"""In `make test` a line of sight is there for the law alone that looks at it."""
UNIFORM = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)


@BOTH_STATES
def test_mean_power_gain_is_one(fading, los):
    """Fading moves power in time, it neither adds nor takes any."""
    assert fading.gains(MIDPOINTS, los).mean() == pytest.approx(1.0, abs=2e-5)


@BOTH_STATES
def test_distribution_function_undoes_the_quantile(fading, los):
    """The share of blocks below the gain of a uniform is that uniform."""
    uniforms = np.linspace(0.001, 0.999, 97)

    share = fading.cdf(fading.gains(uniforms, los), los)

    np.testing.assert_allclose(share, np.ones(97) if fading.kind == "none" else uniforms, rtol=1e-9)


@ALL_KINDS
@examples(60)
@given(low=UNIFORM, high=UNIFORM)
def test_gain_is_a_quantile(fading, low, high):
    """More luck never means less power, and power is never negative."""
    low, high = sorted((low, high))

    assert 0.0 <= fading.gain(low) <= fading.gain(high) < math.inf


@ALL_KINDS
@examples(60)
@given(uniform=UNIFORM)
def test_scalar_and_vector_follow_one_law(fading, uniform):
    """The hot path and its vectorised twin agree to the last digits."""
    for los in (False, True):
        one, many = fading.gain(uniform, los), fading.gains(np.array([uniform]), los)
        assert many[0] == pytest.approx(one, rel=1e-14, abs=0)


@ALL_KINDS
def test_every_kind_says_how_long_a_block_lasts(fading):
    """The coherence time is a positive number of seconds, infinite for a channel that never changes."""
    assert isinstance(fading, Fading)
    assert fading.coherence_s > 0
    assert math.isinf(fading.coherence_s) == isinstance(fading, NoFading)


@pytest.mark.parametrize("m", [0.5, 1, 1.5, 2, 4])
def test_nakagami_power_has_the_gamma_distribution(m):
    """P(gain < 0.1) and P(gain < 1) of the analytic table for each shape; m = 1 is Rayleigh."""
    table = json.loads((Path(__file__).parent / "reference" / "analytic_checkpoints.json").read_text())
    expected = table["nakagami_power_cdf"][f"m={m:g}"]
    gains = Nakagami(m=m).gains(MIDPOINTS)

    assert (gains < 0.1).mean() == pytest.approx(expected["0.1"], abs=1e-5)
    assert (gains < 1.0).mean() == pytest.approx(expected["1"], abs=1e-5)


@pytest.mark.parametrize("k_db", [-10, 0, 9])
def test_rician_power_is_that_of_a_path_and_complex_noise(k_db):
    """Quantiles of |sqrt(K/(K+1)) + CN(0, 1/(K+1))|^2 from 400,000 draws, and its variance (1 + 2K) / (1 + K)^2."""
    k = 10 ** (k_db / 10)
    rng = np.random.default_rng(5)
    noise = rng.normal(scale=np.sqrt(0.5 / (k + 1)), size=(2, 400_000))
    power = (np.sqrt(k / (k + 1)) + noise[0]) ** 2 + noise[1] ** 2
    levels = np.array([0.01, 0.1, 0.5, 0.9, 0.99])

    assert Rician(k_db=k_db).gains(levels) == pytest.approx(np.quantile(power, levels), rel=0.03)
    assert Rician(k_db=k_db).gains(MIDPOINTS).var() == pytest.approx((1 + 2 * k) / (1 + k) ** 2, rel=1e-3)


def test_limits_of_the_families_meet():
    """Rician without a path and Nakagami with m = 1 are Rayleigh; a very strong path hardly fades."""
    uniforms = np.linspace(0.01, 0.99, 50)
    rayleigh = Rayleigh().gains(uniforms)

    assert Nakagami(m=1).gains(uniforms) == pytest.approx(rayleigh, rel=1e-12)
    assert Rician(k_db=-40).gains(uniforms) == pytest.approx(rayleigh, rel=1e-3)
    assert Rician(k_db=40).gains(uniforms) == pytest.approx(np.ones(50), abs=0.04)


def test_line_of_sight_picks_the_law_of_each_link():
    """Links in sight fade as Rician of the same K, others as Rayleigh, in one vectorised call."""
    law, uniforms = FadingByLineOfSight(k_db=6), np.array([[0.1, 0.8], [0.1, 0.8]])

    gains = law.gains(uniforms, np.array([[True], [False]]))

    assert gains[0] == pytest.approx(Rician(k_db=6).gains(uniforms[0]))
    assert gains[1] == pytest.approx(Rayleigh().gains(uniforms[1]))
    assert law.gain(0.1, True) == pytest.approx(gains[0, 0])


def test_without_fading_the_gain_is_one_for_certain():
    """It is never below 1, and always at most 1."""
    assert NoFading().cdf(np.array([0.0, 0.999999, 1.0, 2.0])).tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(("speed_km_h", "expected_s"), [(3, 43.5e-3), (30, 4.35e-3), (120, 1.09e-3)])
def test_coherence_time_at_3_5_ghz(speed_km_h, expected_s):
    """A pedestrian, a bicycle and a car see blocks of 43.5, 4.35 and 1.09 ms."""
    assert coherence_time_s(speed_km_h / 3.6, 3.5e9) == pytest.approx(expected_s, rel=3e-3)


def test_default_coherence_time_is_that_of_a_pedestrian():
    """The default block is 3 km/h at 3.5 GHz to three digits."""
    assert Rayleigh().coherence_s == pytest.approx(coherence_time_s(3 / 3.6, 3.5e9), rel=5e-4)


def test_a_terminal_at_rest_has_one_block_for_ever():
    """Nothing moves, so nothing fades anew."""
    assert math.isinf(coherence_time_s(0.0, 3.5e9))


def test_every_kind_of_fading_has_claims_here():
    """The table and the laws of this file name the same kinds."""
    assert {law.kind for law in LAWS} == set(FADINGS)


MIDPOINTS_SELECTIVE = (np.arange(100_000) + 0.5) / 100_000
CHANNEL = {"carrier_hz": 3.5e9, "bandwidth_hz": 20e6, "path_loss": {"kind": "log-distance", "exponent": 3}}
LAWS_SELECTIVE = [Shannon(), NrBlocks(resource_blocks=51)]


def channel(**change):
    """A channel of 20 MHz at 3.5 GHz with Rayleigh fading and 100 ns of delay spread."""
    return Channel(**{**CHANNEL, "fading": {"kind": "rayleigh", "delay_spread_s": 1e-7}, **change})


@pytest.mark.parametrize("spread", [1e-4, 0.03, 0.3, 1.0, 5.0, 40.0])
def test_parts_are_the_integral_over_the_correlation_of_an_exponential_profile(spread):
    """1 / L = 2 times the integral of (1 - x) / (1 + (2 pi x tau B)^2) over x from 0 to 1."""
    variance, _ = quad(lambda x: 2 * (1 - x) / (1 + (2 * math.pi * x * spread) ** 2), 0, 1)

    assert independent_parts(spread * 1e6, 1e-6) == pytest.approx(1 / variance, rel=1e-6)


def test_a_narrow_band_is_one_part_and_a_wide_one_has_a_coherence_bandwidth_of_half_an_inverse_spread():
    """A block of 180 kHz at 100 ns, and 1000 MHz."""
    assert independent_parts(180e3, 1e-7) == pytest.approx(1.0, abs=0.003)
    assert independent_parts(1e9, 1e-7) == pytest.approx(2 * 1e9 * 1e-7, rel=0.02)


def test_parts_are_those_of_a_link_of_many_paths():
    """3000 links of 60 paths with delays of mean 100 ns over 20 MHz: the variance of the mean gain within 7 %."""
    draws = np.random.default_rng(5)
    delay_s = draws.exponential(1e-7, (3000, 60))
    path = (draws.normal(size=delay_s.shape) + 1j * draws.normal(size=delay_s.shape)) / math.sqrt(120)
    hertz = np.linspace(-10e6, 10e6, 61)
    gain = np.stack([np.abs((path * np.exp(-2j * math.pi * delay_s * f)).sum(axis=1)) ** 2 for f in hertz]).mean(axis=0)

    assert 1 / gain.var() == pytest.approx(independent_parts(20e6, 1e-7), rel=0.07)


@pytest.mark.parametrize(
    ("path_loss", "los", "expected_ns"),
    [
        ("3gpp-uma", True, 93.3), ("3gpp-uma", False, 364.1), ("3gpp-umi", True, 50.5), ("3gpp-umi", False, 103.1),
        ("3gpp-rma", True, 32.4), ("3gpp-rma", False, 37.2), ("3gpp-inh", True, 19.9), ("3gpp-inh", False, 38.9),
    ],
)  # fmt: skip
def test_medians_of_delay_spreads(path_loss, los, expected_ns):
    """Table 7.5-6 at 3.5 GHz, where urban macro and offices have the value of 6 GHz."""
    assert median_delay_spread_s(path_loss, 3.5e9, los=los) * 1e9 == pytest.approx(expected_ns, abs=0.06)


@examples(20)
@given(st.floats(1.5, 50.0), st.floats(0.5, 10.0))
def test_gains_within_a_band_have_mean_1(parts, shape):
    """Whatever the number of parts and their law; the distribution function is that of the quantiles."""
    law = InBand(shape=shape, parts=parts)
    gains = law.gains(MIDPOINTS_SELECTIVE[::100])

    assert gains.mean() == pytest.approx(1.0, abs=0.03)
    assert law.cdf(gains) == pytest.approx(MIDPOINTS_SELECTIVE[::100], abs=1e-5)
    assert law.gain(0.3) == pytest.approx(float(law.gains(np.array([0.3]))[0]))


@pytest.mark.parametrize("law", LAWS_SELECTIVE, ids=lambda law: law.kind)
@pytest.mark.parametrize("fading", [Rayleigh(), Nakagami(m=2.0)], ids=lambda fading: fading.kind)
def test_the_mean_is_exact_and_the_variance_nearly(law, fading):
    """Four parts drawn one by one at 0 and 10 dB: means within 0.5 %, variances of 80 to 102 %, a quarter of one."""
    draws = np.random.default_rng(3)
    gains = fading.gains(draws.random((60_000, 4)))
    selective = averaged(law, fading.in_band(4.0, 1))
    means = fading.over_band(4.0).gains(MIDPOINTS_SELECTIVE)

    for snr in (1.0, 10.0):
        parts_bps, ours_bps = law.rates_bps(snr * gains, 1.0), selective.rates_bps(snr * means, 1.0)
        drawn_bps = parts_bps.mean(axis=1)
        assert ours_bps.mean() == pytest.approx(drawn_bps.mean(), rel=5e-3)
        assert ours_bps.mean() == pytest.approx(ErgodicRate(law=law, fading=fading).rate_bps(snr, 1.0), rel=1e-3)
        assert 0.8 < ours_bps.var() / drawn_bps.var() < 1.02
        assert ours_bps.var() < 0.27 * parts_bps.var()


def test_rician_parts_have_the_mean_of_one_gain_within_a_percent():
    """K of 3 and 9 dB, by a Nakagami law of the same variance."""
    for k_db in (3.0, 9.0):
        fading = Rician(k_db=k_db)
        selective = averaged(Shannon(), fading.in_band(5.0, 1))
        ours_bps = selective.rates_bps(5.0 * fading.over_band(5.0).gains(MIDPOINTS_SELECTIVE), 1.0).mean()
        assert ours_bps == pytest.approx(ErgodicRate(law=Shannon(), fading=fading).rate_bps(5.0, 1.0), rel=0.01)
        assert fading.over_band(5.0).gains(MIDPOINTS_SELECTIVE).var() == pytest.approx(
            fading.gains(MIDPOINTS_SELECTIVE).var() / 5, rel=1e-2
        )


def test_a_channel_has_the_laws_of_its_parts():
    """20 MHz at 100 ns: the fading of the mean gain, the rate within the band, also of four antennas."""
    parts = independent_parts(20e6, 1e-7)
    wide = channel()

    assert wide.parts == parts
    assert wide.medium_fading == Nakagami(m=parts)
    law = wide.medium_rate(4)
    assert isinstance(law, ErgodicRate)
    assert law.fading == InBand(shape=4.0, parts=parts)
    assert wide.medium_fading.combined(4) == Nakagami(m=4 * parts)


def test_the_spread_of_a_scenario_follows_its_path_loss_and_sight():
    """Rayleigh as without, Rician as with line of sight, at the carrier; resource blocks are what counts of a band."""
    place = {"path_loss": "3gpp-umi", "subcarrier_spacing_khz": 30}
    without = channel(**place, fading={"kind": "rayleigh", "delay_spread_s": "from-scenario"})
    with_sight = channel(**place, fading={"kind": "rician", "k_db": 9, "delay_spread_s": "from-scenario"})

    assert without.parts == independent_parts(18.36e6, median_delay_spread_s("3gpp-umi", 3.5e9, los=False))
    assert with_sight.parts == independent_parts(18.36e6, median_delay_spread_s("3gpp-umi", 3.5e9, los=True))


def test_without_a_spread_nothing_changes():
    """One part, the law and the fading of the channel itself."""
    flat = Channel(**CHANNEL, fading="rayleigh")

    assert (flat.parts, flat.medium_rate(), flat.medium_fading) == (1.0, flat.block_rate, flat.fading)


def test_uploads_over_a_wide_band_vary_less():
    """Forty uploads of a block each at 10 dB in 20 MHz, flat and at 1 us: equal in the mean, a third of the spread."""
    took_s = {}
    for delay_spread_s in (None, 1e-6):
        its = channel(
            rate="shannon", fading={"kind": "rayleigh", "coherence_s": 0.05, "delay_spread_s": delay_spread_s}
        )
        links = HandMadeLinks([10.0])
        medium = medium_of(Tdma(), its.medium_rate(), links, 1, fading=its.medium_fading, bandwidth_hz=20e6)
        sent = [medium.send(0, SERVER, Message(None, 2_400_000, 0)) for _ in range(40)]
        medium.clock.run()
        took_s[delay_spread_s] = np.array([one.value.ended_s - one.value.started_s for one in sent])

    assert took_s[1e-6].mean() == pytest.approx(took_s[None].mean(), rel=0.1)
    assert took_s[1e-6].std() < 0.4 * took_s[None].std()

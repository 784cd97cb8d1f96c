"""Claims about several antennas: the laws of combined gains, against channel vectors and sums of single gains."""

import math

import numpy as np
import pytest
from scipy.special import expn, gammainc
from scipy.stats import kstest

from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import mix, uniforms
from fednet_emu.network.air.band import Band
from fednet_emu.radio.fading import Fading, FadingByLineOfSight, Nakagami, NoFading, Rayleigh, Rician
from fednet_emu.radio.rates.ergodic import ErgodicRate
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.radio.receiver.combining import MaximumRatio, SingleAntenna, ZeroForcing

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
LAWS = [Rayleigh(), Rician(k_db=9), Rician(k_db=-3), Nakagami(m=0.5), Nakagami(m=3), FadingByLineOfSight(k_db=6)]
EACH_LAW = pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind}-{getattr(law, 'm', '')}")


def channels(*shape: int) -> np.ndarray:
    """Complex channels with independent Rayleigh fading of mean power 1."""
    rng = np.random.default_rng(11)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / math.sqrt(2)


# ---- the law of a sum of gains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("los", [False, True], ids=["unseen", "seen"])
@pytest.mark.parametrize("branches", [2, 5])
@EACH_LAW
def test_combined_gain_has_the_law_of_a_sum(law: Fading, branches: int, los: bool) -> None:
    """The mean of independent draws of single gains passes a test of the combined law, as do its own draws."""
    combined, draws = law.combined(branches), np.random.default_rng(3).random((branches, 4000))

    for gains in (law.gains(draws, los).mean(axis=0), combined.gains(draws[0], los)):
        assert kstest(gains, lambda gain: combined.cdf(gain, los)).pvalue > 0.01


@EACH_LAW
def test_combined_law_is_a_fading_law(law: Fading) -> None:
    """Its mean is 1, its variance a Nth, scalars and arrays agree, and blocks last as long."""
    levels = (np.arange(20_000) + 0.5) / 20_000
    for los in (False, True):
        combined, single = law.combined(8), law.gains(levels, los)
        gains = combined.gains(levels, los)
        assert gains.mean() == pytest.approx(1.0, abs=1e-3)
        assert gains.var() == pytest.approx(single.var() / 8, rel=0.02)
        assert [combined.gain(float(level), los) for level in levels[::4000]] == pytest.approx(gains[::4000], rel=1e-13)
        assert combined.coherence_s == law.coherence_s


def test_one_antenna_changes_nothing() -> None:
    """One branch is the law itself, and without fading so are many."""
    assert all(law.combined(1) is law for law in LAWS)
    assert NoFading().combined(64) == NoFading()


def test_a_law_without_a_sum_is_refused() -> None:
    """A fading of one's own need not know its sums."""

    class Odd(Fading):
        coherence_s: float = 1.0

        def gain(self, uniform, los=False):
            return 2 * uniform

        def gains(self, uniform, los=False):
            return 2 * uniform

        def cdf(self, gain, los=False):
            return gain / 2

    assert Odd().combined(1) == Odd()
    with pytest.raises(ScenarioError, match="no law of several antennas, got Odd with 4"):
        Odd().combined(4)


# ---- what channel vectors give ---------------------------------------------------------------------------------------


def block_gains(reception, senders: int, count: int = 4000) -> np.ndarray:
    """The emulator's own gains of a signal in consecutive blocks, with so many senders in its part of the band."""
    band, branches = Band.of(1e6, CAPACITY, Rayleigh(), reception=reception), reception.branches(senders)
    return branches * band.gains(np.array([mix(7, 1)], np.uint64), np.arange(count), branches)


@pytest.mark.parametrize(("antennas", "senders"), [(1, 1), (2, 1), (8, 1), (8, 5), (4, 4)])
def test_zero_forcing_leaves_the_gains_of_some_antennas(antennas: int, senders: int) -> None:
    """1 / [(H* H)^-1]_kk of random channels and the gains of blocks have one law: Gamma(N - K + 1, 1)."""
    left = antennas - senders + 1
    h = channels(4000, antennas, senders)
    nulled = 1.0 / np.linalg.inv(h.conj().swapaxes(1, 2) @ h)[:, 0, 0].real

    for gains in (nulled, block_gains(ZeroForcing(antennas=antennas), senders)):
        assert kstest(gains, lambda gain: gammainc(left, gain)).pvalue > 0.01
        assert (gains.mean(), gains.var()) == pytest.approx((left, left), rel=0.08)


@pytest.mark.parametrize("antennas", [1, 2, 8])
def test_maximum_ratio_adds_gains_up_and_leaves_interference_as_it_is(antennas: int) -> None:
    """|h|^2 has the law Gamma(N, 1) as block gains have; |h* g|^2 / |h|^2 that of one antenna, whatever |h|^2 is."""
    h, g = channels(2, 4000, antennas)
    power = (abs(h) ** 2).sum(axis=1)
    other = abs((h.conj() * g).sum(axis=1)) ** 2 / power

    for gains in (power, block_gains(MaximumRatio(antennas=antennas), 3)):
        assert kstest(gains, lambda gain: gammainc(antennas, gain)).pvalue > 0.01
    assert kstest(other, "expon").pvalue > 0.01
    assert abs(np.corrcoef(power, other)[0, 1]) < 0.05


def test_one_branch_has_the_draws_of_one_antenna() -> None:
    """With as many senders as antennas, zero forcing leaves what a single antenna has."""
    expected = -np.log1p(-uniforms(np.array([mix(7, 1)], np.uint64), np.arange(4000)))

    assert block_gains(ZeroForcing(antennas=4), 4) == pytest.approx(expected, rel=1e-12)
    assert block_gains(SingleAntenna(), 4) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("antennas", [1, 2, 4, 16])
def test_capacity_with_maximum_ratio_has_a_closed_form(antennas: int) -> None:
    """log2(e) e^(1/s) sum of E_k(1/s) for k = 1 to N (Alouini and Goldsmith 1999), s the mean SNR of one antenna."""
    snr = 10 ** (np.arange(-10, 40.1, 2.3) / 10)
    orders = np.arange(1, antennas + 1)[:, None]
    expected = math.log2(math.e) * np.exp(1 / snr) * expn(orders, 1 / snr).sum(axis=0)

    rate = ErgodicRate(law=CAPACITY, fading=Rayleigh().combined(antennas)).rates_bps(antennas * snr, 1.0)

    np.testing.assert_allclose(rate, expected, rtol=1e-6)


def test_averages_know_several_antennas_under_rician_fading() -> None:
    """The table of means takes combined laws that are no kind of their own."""
    combined = Rician(k_db=3).combined(4)
    gains = combined.gains((np.arange(100_000) + 0.5) / 100_000)

    rate = ErgodicRate(law=CAPACITY, fading=combined).rate_bps(10.0, 1.0)

    assert rate == pytest.approx(np.log2(1 + 10 * gains).mean(), rel=1e-4)


def test_pairs_of_senders() -> None:
    """Own signals have the gain of the branches; others that of one antenna, or none where they are nulled."""
    snr, receiver = np.full((3, 3), 8.0), np.array([-1, -1, -2])

    combined = MaximumRatio(antennas=4).of_pairs(snr, receiver, 2)
    nulled = ZeroForcing(antennas=4).of_pairs(snr, receiver, 2)

    assert combined.tolist() == [[8, 2, 2], [2, 8, 2], [2, 2, 8]]
    assert nulled.tolist() == [[6, 0, 2], [0, 6, 2], [2, 2, 6]]

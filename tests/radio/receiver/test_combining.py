"""Receivers: combining, interference, sums over the air, and power control."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.special import exp1, expn, gammainc
from scipy.stats import kstest

from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import mix, uniforms
from fednet_emu.network.air.band import Band
from fednet_emu.network.over_the_air import OverTheAir, mean_inverse, misalignment, relative_error
from fednet_emu.radio.fading import Fading, FadingByLineOfSight, Nakagami, NoFading, Rayleigh, Rician
from fednet_emu.radio.rates.ergodic import ErgodicRate
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.radio.receiver.combining import MaximumRatio, SingleAntenna, ZeroForcing
from fednet_emu.radio.receiver.interference import successive_cancellation, sum_of_others
from fednet_emu.radio.receiver.power_control import FullPower, OpenLoop, TargetSnr, feasibility
from tests.quick import examples

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


TABLE = json.loads((Path(__file__).parents[1] / "reference" / "analytic_checkpoints.json").read_text())
POWERS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12).map(np.array)
LEVELS_DB = st.floats(-100, 100)
WIDE_POWERS = st.lists(LEVELS_DB, min_size=1, max_size=12).map(lambda db: 10 ** (np.array(db) / 10))


@examples(200)
@given(powers=WIDE_POWERS)
def test_the_sum_of_others_is_exact_over_200_db(powers):
    """Against fractions: 1e-13 of each sum, however far one power is above the others."""
    values = list(map(Fraction, powers.tolist()))
    exact = [float(sum(values[:i] + values[i + 1 :], Fraction(0))) for i in range(len(values))]

    assert sum_of_others(powers) == pytest.approx(exact, rel=1e-13, abs=0)


def test_the_sum_of_others_goes_along_any_axis():
    """Each cross-section of an array [2, 3, 4] is summed alone; a lone entry has no others."""
    power = np.random.default_rng(5).exponential(size=(2, 3, 4))

    for axis in range(3):
        expected = power.sum(axis=axis, keepdims=True) - power
        assert sum_of_others(power, axis) == pytest.approx(expected, rel=1e-12)
    assert sum_of_others(np.array([[7.0], [2.0]])).tolist() == [[0.0], [0.0]]


def test_cancellation_gives_the_rates_of_the_table():
    """SNRs 10, 3 and 1 in any order: 1.58496, 1.32193 and 1 bit/s/Hz, together log2(15)."""
    case = TABLE["noma_sic"]
    order = [1, 2, 0]

    rates = np.log2(1 + successive_cancellation(np.array(case["snr_lin"], float)[order], 1.0).sinr)

    assert rates == pytest.approx(np.array(case["rates"])[order])
    assert rates.sum() == pytest.approx(case["log2(1+sum)"])


@examples(60)
@given(received_w=POWERS, noise_w=st.floats(1e-3, 1e3))
def test_perfect_cancellation_adds_up_to_the_capacity_of_the_sum(received_w, noise_w):
    """Sum of log2(1 + SINR) = log2(1 + sum p g / N) for any powers, ties included."""
    sinr, decoded = successive_cancellation(np.append(received_w, received_w[0]), noise_w)

    assert decoded.all()
    total = received_w.sum() + received_w[0]
    assert np.log2(1 + sinr).sum() == pytest.approx(np.log2(1 + total / noise_w), rel=1e-6)


def test_who_cannot_be_decoded_stays_in_the_way():
    """Received 10, 6 and 1, noise 1, threshold 1.2: the first passes (10 / 8), 6 / 2 passes, 1 / 1 does not."""
    sinr, decoded = successive_cancellation(np.array([1.0, 6.0, 10.0]), 1.0, threshold=1.2)

    assert sinr == pytest.approx([1.0, 3.0, 1.25])
    np.testing.assert_array_equal(decoded, [False, True, True])


def test_a_failure_of_the_strongest_fails_everybody():
    """Ten against ten: neither is twice the rest, and the third has both against it."""
    sinr, decoded = successive_cancellation(np.array([10.0, 10.0, 1.0]), 1.0, threshold=2.0)

    assert not decoded.any()
    assert sinr == pytest.approx([10 / 12, 10 / 12, 1 / 21])


def test_imperfect_cancellation_leaves_a_share_behind():
    """5 % of 10 stay with the second: 3 / (1 + 1 + 0.5), and 0.65 with the third."""
    sinr, _ = successive_cancellation(np.array([10.0, 3.0, 1.0]), 1.0, residual=0.05)

    assert sinr == pytest.approx([10 / 5, 3 / 2.5, 1 / 1.65])


def test_cancellation_works_on_stacks():
    """Fading blocks along the first axis are independent of each other."""
    received_w = np.random.default_rng(2).exponential(size=(6, 5))

    stacked = successive_cancellation(received_w, 0.1, threshold=0.4, residual=0.02)

    for row in range(6):
        alone = successive_cancellation(received_w[row], 0.1, threshold=0.4, residual=0.02)
        assert stacked.sinr[row] == pytest.approx(alone.sinr)
        np.testing.assert_array_equal(stacked.decoded[row], alone.decoded)


@pytest.mark.parametrize("cutoff", [1e-200, 1e-9, 1e-6, 1e-3, 0.01, 0.2, 1.0, 3.0, 20.0])
def test_the_mean_power_is_the_exponential_integral(cutoff):
    """For Rayleigh fading the mean of 1 / |h|^2 above the cutoff is E1(cutoff); 1.2227 at 0.2."""
    assert mean_inverse(Rayleigh(), cutoff) == pytest.approx(exp1(cutoff), rel=2e-6)
    assert mean_inverse(Rayleigh(), 0.2) == pytest.approx(1.2227, abs=5e-5)


def test_the_mean_power_of_other_laws_is_an_integral_of_their_density():
    """Rician fading, integrated over the derivative of its distribution function."""
    law, step = Rician(k_db=3.0), 1e-5

    def integrand(gain):
        below, above = law.cdf(np.array([gain - step, gain + step]))
        return (above - below) / (2 * step) / gain

    assert mean_inverse(law, 0.3) == pytest.approx(quad(integrand, 0.3, 30.0, limit=200)[0], rel=1e-4)


@pytest.mark.parametrize(("cutoff", "mean"), [(0.2, 1.0), (1.0, 1.0), (1.001, 0.0)])
def test_a_link_that_never_fades_sends_always_or_never(cutoff, mean):
    """Its gain is 1."""
    assert mean_inverse(NoFading(), cutoff) == mean


@pytest.mark.parametrize(("entries", "symbols", "slots"), [(1, 10, 1), (10, 10, 1), (11, 10, 2), (2410, 100, 25)])
def test_a_vector_takes_whole_slots(entries, symbols, slots):
    """ceil(entries / symbols per slot), by `math.ceil` of the fraction."""
    access = OverTheAir(slot_s=1.0, symbols_per_slot=symbols)
    assert access.burst_s(entries, 1e6) == slots == math.ceil(entries / symbols)


def test_a_channel_that_is_known_is_inverted_exactly():
    """Without error every factor is 1, whatever the draws."""
    assert (misalignment(np.array([0.2, 1.0, 5.0]), 0.0, np.array([-3.0, 0.5, 2.0])) == 1.0).all()


def test_misaligned_signals_have_the_moments_of_complex_channels():
    """Factors by complex channels, h = sqrt(1 - e) h' + sqrt(e) z: mean sqrt(1 - e), variance e / (2 |h'|^2)."""
    rng, error, n = np.random.default_rng(0), 0.1, 200_000
    measured = 0.7 * np.exp(0.4j)
    change = (rng.standard_normal(n) + 1j * rng.standard_normal(n)) / math.sqrt(2)
    slow = ((math.sqrt(1 - error) * measured + math.sqrt(error) * change) / measured).real
    fast = misalignment(np.full(n, abs(measured) ** 2), error, rng.standard_normal(n))

    assert fast.mean() == pytest.approx(math.sqrt(0.9), abs=4e-3)
    assert fast.var() == pytest.approx(error / (2 * 0.49), rel=0.02)
    assert (slow.mean(), slow.var()) == (pytest.approx(fast.mean(), abs=4e-3), pytest.approx(fast.var(), rel=0.02))


def test_the_error_falls_with_the_square_of_the_devices():
    """K = 10, eta = 1, sigma^2 = 0.1: 1e-3."""
    assert relative_error(1 / 0.1, 10) == pytest.approx(1e-3)


WORKED = TABLE["foschini_miljanic"]
BOTH = pytest.mark.parametrize("name", ["ggplab_data", "cvxpy_data"])


def problem(name):
    """Gain, noise, targets and caps of a worked example."""
    case = WORKED[name]
    count = len(case["G"])
    return np.array(case["G"], float), np.full(count, case["sigma"]), np.full(count, case["gamma"]), case["p_max"]


@BOTH
def test_closed_form_is_the_worked_optimum(name):
    """(I - D F)^-1 D u gives the published powers, where everybody has exactly the target, and its spectral radius."""
    gain, noise_w, target, cap_w = problem(name)

    verdict = feasibility(target, gain, noise_w, cap_w)

    assert verdict.feasible
    assert verdict.power_w == pytest.approx(WORKED[name]["p_opt"], abs=1e-7)
    assert verdict.power_w.sum() == pytest.approx(WORKED[name]["sum"], abs=1e-7)
    received_w = gain * verdict.power_w
    own_w = np.diagonal(received_w)
    assert own_w / (noise_w + received_w.sum(axis=1) - own_w) == pytest.approx(target, rel=1e-10)
    assert verdict.spectral_radius == pytest.approx(target[0] * WORKED[name]["rho_F"], abs=1e-9)


def test_verdicts_agree_with_linear_programming():
    """On 200 random instances with caps, about half of them feasible, and with the same least powers."""
    rng = np.random.default_rng(11)
    verdicts = []
    for _ in range(200):
        count = int(rng.integers(2, 8))
        gain = rng.uniform(0.01, 0.3, (count, count)) + np.diag(rng.uniform(0.5, 1.5, count))
        target, noise_w = rng.uniform(0.5, 3.0, count), rng.uniform(0.05, 0.5, count)
        cap_w = float(rng.uniform(0.5, 4.0))
        needs = target[:, None] * (gain - np.diag(np.diagonal(gain))) - np.diag(np.diagonal(gain))

        program = linprog(np.ones(count), A_ub=needs, b_ub=-target * noise_w, bounds=(0, cap_w))
        verdict = feasibility(target, gain, noise_w, cap_w)

        assert verdict.feasible == (program.status == 0)
        if verdict.feasible:
            assert verdict.power_w == pytest.approx(program.x, rel=1e-6, abs=1e-9)
        verdicts.append(verdict.feasible)

    assert 60 <= sum(verdicts) <= 140


def test_beyond_the_spectral_radius_no_power_is_enough():
    """Two symmetric pairs with cross gain a reach at most 1 / a."""
    gain, noise_w = np.array([[1.0, 0.25], [0.25, 1.0]]), np.full(2, 0.1)

    below, above = (feasibility(np.full(2, target), gain, noise_w) for target in (3.99, 4.01))

    assert below.feasible
    assert not above.feasible
    assert np.all(np.isinf(above.power_w))


@pytest.mark.parametrize(("alpha", "p0", "key"), [(1.0, -90, "alpha1_p0_-90_dbm"), (0.8, -80, "alpha0.8_p0_-80_dbm")])
def test_open_loop_powers_of_sionna(alpha, p0, key):
    """Ten resource blocks and a cap of 23 dBm at 80, 100, 120 and 140 dB of path loss."""
    gain = 10.0 ** -np.array([8.0, 10.0, 12.0, 14.0])
    cap_w = np.full(4, 10**2.3 / 1000)

    power_w = OpenLoop(target_dbm=p0, compensation=alpha).powers_w(cap_w, gain, 1e-13, 10 * 180e3)

    assert 10 * np.log10(power_w * 1000) == pytest.approx(TABLE["uplink_open_loop_power_control"][key], abs=1e-9)


def test_full_power_is_the_cap():
    """No control leaves everybody at the cap."""
    caps_w = np.array([0.1, 0.2])

    np.testing.assert_array_equal(FullPower().powers_w(caps_w, np.ones(2), 1.0, 1e6), caps_w)


def test_a_target_over_noise_is_met_up_to_the_cap():
    """At 3.01 dB over a noise of 1 pW, gains of 1e-10 and 1e-12 need 0.02 W and 2 W, of which there is 1 W."""
    power_w = TargetSnr(target_snr_db=10 * np.log10(2)).powers_w(np.ones(2), np.array([1e-10, 1e-12]), 1e-12, 1e6)

    assert power_w == pytest.approx([0.02, 1.0])

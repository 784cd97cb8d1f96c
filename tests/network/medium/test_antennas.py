"""Claims about uplinks to several antennas: exact times without fading, closed forms of outage with it."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expn, gammainc, gammaincc

from fednet_emu.network.access.contention import Shared, SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.radio.receiver.combining import MaximumRatio, ZeroForcing

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
MBIT = 1_000_000
BLOCK_S = 0.01
TURNS = 1500


def capacity_bps(sinr: float) -> float:
    """Ideal Shannon in 1 MHz."""
    return 1e6 * math.log2(1 + sinr)


# ---- exact times -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reception", [MaximumRatio(antennas=4), ZeroForcing(antennas=4)], ids=lambda it: it.kind)
@pytest.mark.parametrize("access", [Tdma(), Ofdma(), Ofdma(subchannels=2), Shared(max_senders=4)], ids=lambda a: a.kind)
def test_a_lone_sender_has_all_antennas(cell, access, reception) -> None:
    """B log2(1 + N snr) over its part of the band, whatever combines the antennas."""
    share = access.share(1)

    (delivery,) = cell(access, CAPACITY, snr=[4 * 2.5], reception=reception).play((0.0, 0, MBIT))

    assert delivery.ended_s == pytest.approx(MBIT / (share * capacity_bps(4 * 2.5 / share)), abs=2e-9)


def test_two_with_maximum_ratio_follow_the_closed_form(cell) -> None:
    """The own signal has the array's gain, the other one is noise as at one antenna; then the second is alone."""
    strong, weak = 10.0, 2.0
    first_s = MBIT / capacity_bps(4 * strong / (1 + weak))
    left_bit = MBIT - first_s * capacity_bps(4 * weak / (1 + strong))
    world = cell(Shared(), CAPACITY, snr=[4 * strong, 4 * weak], reception=MaximumRatio(antennas=4))

    deliveries = world.play((0.0, 0, MBIT), (0.0, 1, MBIT))

    ends_s = [first_s, first_s + left_bit / capacity_bps(4 * weak)]
    assert [delivery.ended_s for delivery in deliveries] == pytest.approx(ends_s, abs=2e-9)


def test_two_with_zero_forcing_follow_the_closed_form(cell) -> None:
    """Each loses one antenna's gain while the other sends, and nothing else."""
    strong, weak = 10.0, 2.0
    first_s = MBIT / capacity_bps(3 * strong)
    left_bit = MBIT - first_s * capacity_bps(3 * weak)
    world = cell(Shared(max_senders=4), CAPACITY, snr=[4 * strong, 4 * weak], reception=ZeroForcing(antennas=4))

    deliveries = world.play((0.0, 0, MBIT), (0.0, 1, MBIT))

    ends_s = [first_s, first_s + left_bit / capacity_bps(4 * weak)]
    assert [delivery.ended_s for delivery in deliveries] == pytest.approx(ends_s, abs=2e-9)


def test_antennas_let_two_of_a_slot_through(cell) -> None:
    """With a capture threshold of 3 dB one antenna loses both of two equal senders, four antennas decode both."""
    access = SlottedAloha(slot_s=0.01, probability=1.0, capture_db=3.0)

    one = cell(access, CAPACITY, snr=[10.0, 10.0], timeout_s=1.0).play((0.0, 0, 10_000), (0.0, 1, 10_000))
    four = cell(access, CAPACITY, snr=[40.0, 40.0], reception=MaximumRatio(antennas=4)).play(
        (0.0, 0, 10_000), (0.0, 1, 10_000)
    )

    assert [delivery.lost for delivery in one] == ["timeout", "timeout"]
    assert [delivery.ended_s for delivery in four] == pytest.approx([1e4 / capacity_bps(40 / 11)] * 2, abs=2e-9)


# ---- outage and capacity under Rayleigh fading -----------------------------------------------------------------------


def lost_share(cell, access, reception, snr, threshold_db: float) -> float:
    """Share of the first device's short transfers, one in each block, that are lost in outage."""
    law = FixedRate(bit_rate_bps=1e6, threshold_db=threshold_db)
    world = cell(access, law, Rayleigh(coherence_s=BLOCK_S), snr=snr, reception=reception)
    devices = range(len(snr))
    deliveries = world.play(*((turn * BLOCK_S, device, 1000) for turn in range(TURNS) for device in devices))
    return float(np.mean([delivery.lost == "outage" for delivery in deliveries[:: len(snr)]]))


def near(probability: float) -> object:
    """Within three standard deviations of a share of so many turns."""
    return pytest.approx(probability, abs=3 * math.sqrt(probability * (1 - probability) / TURNS))


@pytest.mark.parametrize("antennas", [1, 2, 4])
def test_outage_of_maximum_ratio_has_a_closed_form(cell, antennas: int) -> None:
    """1 - exp(-x) sum of x^i / i! below N, x being the threshold over the mean SNR of one antenna."""
    x = 2.0
    expected = 1 - math.exp(-x) * sum(x**i / math.factorial(i) for i in range(antennas))

    lost = lost_share(cell, Tdma(), MaximumRatio(antennas=antennas), [antennas / x], 0.0)

    assert lost == near(expected)


def test_outage_of_zero_forcing_has_a_closed_form(cell) -> None:
    """Three senders leave two of four antennas: the law is Gamma(2, 1), however strong the others are."""
    snr = [4 * 0.5, 4 * 100.0, 4 * 3.0]

    lost = lost_share(cell, Shared(max_senders=4), ZeroForcing(antennas=4), snr, 0.0)

    assert lost == near(gammainc(2, 2.0))


def test_outage_of_maximum_ratio_under_interference(cell) -> None:
    """A gain of Gamma(3, 1) over noise and an exponential gain: the mean over the interferer of the lone outage."""
    own, other = 2.0, 3.0
    through, _ = quad(lambda gain: math.exp(-gain) * gammaincc(3, (1 + other * gain) / own), 0, np.inf)

    lost = lost_share(cell, Shared(), MaximumRatio(antennas=3), [3 * own, 3 * other], 0.0)

    assert lost == near(1 - through)


def test_a_long_transfer_runs_at_the_ergodic_capacity(cell) -> None:
    """Over 4000 blocks the mean rate is log2(e) e^(1/s) sum of E_k(1/s) for k = 1 to N, within one in a hundred."""
    expected_bps = 1e6 * math.log2(math.e) * math.exp(0.5) * sum(expn(k, 0.5) for k in (1, 2, 3, 4))
    world = cell(Tdma(), CAPACITY, Rayleigh(coherence_s=1e-3), snr=[4 * 2.0], reception=MaximumRatio(antennas=4))

    (delivery,) = world.play((0.0, 0, round(4 * expected_bps)))

    assert delivery.ended_s == pytest.approx(4.0, rel=0.01)

"""Claims about walking bits over fading blocks, against plain loops that integrate block by block."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.kernel.work import BIT
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air import band as module
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.shared import end_of
from fednet_emu.radio.fading import FadingByLineOfSight, NoFading, Rayleigh, Rician
from fednet_emu.radio.rates.ergodic import ErgodicRate
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from tests.network.media import HandMadeLinks
from tests.quick import examples

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
KEY = 0xFADE


def band_of(fading, law=CAPACITY, access=None):
    """A band of 1 MHz."""
    return (access or Tdma()).use(Band.of(1e6, law, fading), HandMadeLinks([1.0]), 1, 1).band


def test_a_band_keeps_the_key_of_its_draws():
    """What random access draws is keyed by it; 0 if nothing is drawn."""
    assert Band.of(1e6, CAPACITY, NoFading(), 77).access_key == 77
    assert band_of(NoFading()).access_key == 0


def integrate(snr, coherence_ns, size_bit, start_ns, key=KEY):
    """End (ns, exact) and lowest SINR of a transfer at Shannon capacity over 1 MHz, one block after the other."""
    now_ns, left_bit, lowest = float(start_ns), float(size_bit), math.inf
    block = start_ns // coherence_ns
    while True:
        sinr = snr * -math.log(1.0 - uniform(key, block))
        lowest = min(lowest, sinr)
        rate_bit_per_ns = 1e6 * math.log2(1.0 + sinr) / 1e9
        rest_ns = (block + 1) * coherence_ns - now_ns
        if left_bit <= rate_bit_per_ns * rest_ns:
            return now_ns + left_bit / rate_bit_per_ns, lowest
        left_bit -= rate_bit_per_ns * rest_ns
        now_ns, block = now_ns + rest_ns, block + 1


@examples(60)
@example(snr=1.0, size_bit=2_000_000, start_ns=0, coherence_ns=1_000_000)
@example(snr=0.01, size_bit=500_000, start_ns=999_999, coherence_ns=1_000_000)
@given(
    snr=st.floats(0.05, 100.0),
    size_bit=st.integers(1, 1_000_000),
    start_ns=st.integers(0, 10**10),
    coherence_ns=st.sampled_from([1_000_000, 43_500_000, 10**9]),
)
def test_a_walk_is_the_integral_of_the_rate(snr, size_bit, start_ns, coherence_ns):
    """From the first block to the ten thousandth: the end to 1 ns, all bits, and the worst SINR on the way."""
    end_ns, lowest = integrate(snr, coherence_ns, size_bit, start_ns)

    walked = band_of(Rayleigh(coherence_s=coherence_ns / NS_PER_S)).alone(snr, KEY, size_bit, start_ns)

    assert abs(walked[0] - end_ns) <= 1.01
    assert walked[1:] == pytest.approx((size_bit, lowest), rel=1e-9)


@pytest.mark.parametrize(
    ("key", "law"), [(KEY + 1, Rician(k_db=9, coherence_s=0.001)), (KEY, Rayleigh(coherence_s=0.001))]
)
def test_an_odd_key_is_that_of_a_link_with_line_of_sight(key, law):
    """Where fading depends on it, such a link alone fades by the law of Rice, any other by that of Rayleigh."""
    band = band_of(FadingByLineOfSight(k_db=9, coherence_s=0.001))

    for size_bit in (100, 20_000, 500_000):  # within a block, a scalar walk, an array of blocks
        assert band.alone(1.0, key, size_bit, 0) == pytest.approx(band_of(law).alone(1.0, key, size_bit, 0))


@examples(30)
@given(size_bit=st.integers(1, 100_000), start_ns=st.integers(0, 10**9), few=st.integers(1, 20))
def test_scalars_and_arrays_are_one_walk(size_bit, start_ns, few):
    """Where the walk changes from scalars to arrays moves its end by no more than 1 ns."""
    band = band_of(Rayleigh(coherence_s=0.001))
    usual = band.alone(1.0, KEY, size_bit, start_ns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_BLOCKS", few)
        other = band.alone(1.0, KEY, size_bit, start_ns)

    assert abs(usual[0] - other[0]) <= 1
    assert usual[1:] == pytest.approx(other[1:], rel=1e-12)


@examples(40)
@given(cut=st.floats(0.0, 1.0), size_bit=st.integers(1000, 1_000_000))
def test_a_walk_that_is_cut_has_sent_the_integral_so_far(cut, size_bit):
    """What is through at any instant is what a transfer of just those bits would have needed."""
    band, start_ns = band_of(Rayleigh(coherence_s=0.002)), 12_345
    whole_end_ns, _, _ = band.alone(3.0, KEY, size_bit, start_ns)
    until_ns = start_ns + int(cut * (whole_end_ns - start_ns))

    end_ns, air_bit, _ = band.alone(3.0, KEY, size_bit, start_ns, until_ns)

    assert end_ns == until_ns
    if air_bit > 1.0:
        assert 0 <= until_ns - band.alone(3.0, KEY, int(air_bit), start_ns)[0] <= 1e9 / 100


def test_a_constant_link_that_carries_nothing_ends_where_it_starts():
    """There is no point in waiting for a link that never changes."""
    assert band_of(NoFading(), Shannon(gap_db=0)).alone(1e-9, KEY, 1000, 5) == (5, 0.0, 1e-9)


def test_subchannels_narrow_the_band_and_the_noise():
    """One of four subchannels: a quarter of the bandwidth, four times the SNR."""
    end_ns, _, lowest_sinr = band_of(NoFading(), access=Ofdma(subchannels=4)).alone(10.0, KEY, 1_000_000, 0)

    assert end_ns == math.ceil(1e15 / (0.25e6 * math.log2(41.0)))
    assert lowest_sinr == 40.0


def test_a_pace_holds_every_link_in_every_block():
    """Rates of an array of links are those of each link and block alone, on its share of the band."""
    band, snr, keys = band_of(Rayleigh(coherence_s=0.01), access=Ofdma()), np.array([0.5, 8.0]), np.array([11, 12])
    edges_ns, sinrs, rates_bps = band.pace(snr, keys.astype(np.uint64), 25_000_000, 3)

    assert edges_ns.tolist() == [25_000_000, 30_000_000, 40_000_000, 50_000_000]
    for link, key in enumerate(keys.tolist()):
        for column, block in enumerate((2, 3, 4)):
            sinr = snr[link] * -math.log(1.0 - uniform(key, block))
            assert sinrs[link, column] == pytest.approx(sinr, rel=1e-12)
            assert rates_bps[link, column] == pytest.approx(1e6 * math.log2(1 + sinr), rel=1e-12)


@examples(200)
@given(
    rates_bps=st.lists(st.sampled_from([0.0, 1.0, 1e3, 7.7e6, math.pi]), min_size=3, max_size=3),
    size_bit=st.integers(1, 10**7),
)
def test_an_end_is_exact(rates_bps, size_bit):
    """The first nanosecond by which the sum of rate x time is the payload, in fractions."""
    edges_ns = [7, 1_000_000, 2_500_000_000, 4_000_000_000]
    left, exact_ns = Fraction(size_bit) * NS_PER_S, FOREVER_NS
    for rate_bps, start_ns, end_ns in zip(rates_bps, edges_ns, edges_ns[1:], strict=False):
        rate = Fraction(rate_bps)
        if rate and left <= rate * (end_ns - start_ns):
            exact_ns = start_ns + math.ceil(left / rate)
            break
        left -= rate * (end_ns - start_ns)

    assert end_of(size_bit * BIT, np.array(rates_bps), edges_ns) == exact_ns


def test_a_fixed_rate_does_not_care_about_the_share():
    """The rate belongs to a transmission, not to a hertz."""
    band = band_of(NoFading(), FixedRate(bit_rate_bps=2e6), Ofdma(subchannels=4))

    assert band.alone(0.0, KEY, 1_000_000, 0)[0] == NS_PER_S // 2


def test_walking_blocks_and_the_ergodic_rate_agree():
    """Over thousands of blocks the two ways of `long_transfers` take the same time within 2 %, for two rate laws."""
    fading = Rayleigh(coherence_s=0.01)
    for law in (Shannon(), Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)):
        walked = Band.of(1e6, law, fading)
        ergodic = Band.of(1e6, ErgodicRate(law=law, fading=fading), NoFading())
        ends_ns = [band.alone(3.0, 11, 100_000_000, 0)[0] for band in (walked, ergodic)]

        assert ends_ns[0] > 3000 * walked.coherence_ns
        assert ends_ns[0] == pytest.approx(ends_ns[1], rel=0.02)


@pytest.mark.parametrize("start_ns", [0, 7 * NS_PER_S])
def test_many_links_at_once_end_when_each_alone_does(start_ns):
    """The quick estimate is the exact end, whenever it starts."""
    band = band_of(Rayleigh(coherence_s=1.0))
    keys = np.array([3, 4, 5], np.uint64)
    end_ns, is_through, _ = band.soon_through(np.array([10.0, 20.0, 30.0]), keys, 1000, start_ns)
    alone = [
        band.alone(snr, key, 1000, start_ns, FOREVER_NS)[0]
        for snr, key in zip((10.0, 20.0, 30.0), (3, 4, 5), strict=True)
    ]

    assert is_through.all()
    np.testing.assert_allclose(end_ns - start_ns, np.array(alone) - start_ns, rtol=1e-5)


@pytest.mark.parametrize(
    ("coherence_s", "bit_rate_bps", "size_bit", "blocks"),
    [(1.0, 1e6, 500_000, 1), (1.0, 1e6, 1_200_000, 2), (1.0, 1e6, 2_400_000, 3), (10.0, 1e9, 10**10 + 1, 2)],
)
def test_the_lowest_sinr_is_that_of_the_blocks_which_are_used(coherence_s, bit_rate_bps, size_bit, blocks):
    """Of 50 links at one rate, whether they end within the first block, the third, or 1 ns after the first of 10 s."""
    band = band_of(Rayleigh(coherence_s=coherence_s), FixedRate(bit_rate_bps=bit_rate_bps))
    keys = [mix(3, link) for link in range(50)]

    end_ns, is_through, lowest_sinr = band.soon_through(np.full(50, 2.0), np.array(keys, np.uint64), size_bit, 0)

    lowest = [min(-2.0 * math.log(1.0 - uniform(key, block)) for block in range(blocks)) for key in keys]
    assert lowest_sinr == pytest.approx(lowest)
    assert end_ns == pytest.approx(size_bit / bit_rate_bps * 1e9)
    assert is_through.all()


def test_blocks_end_where_time_ends():
    """Blocks of 1 s, 2.5 s before the last whole one: their edges stop at the end of time."""
    second, last = NS_PER_S, FOREVER_NS // NS_PER_S

    edges_ns, numbers = band_of(Rayleigh(coherence_s=1.0)).blocks((last - 2) * second - second // 2, 6)

    ends = [(last - 2) * second, (last - 1) * second, last * second]
    assert edges_ns.tolist() == [ends[0] - second // 2, *ends, *[FOREVER_NS] * 3]
    assert numbers.tolist() == [last - 3 + place for place in range(6)]

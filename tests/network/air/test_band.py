"""Bands: who shares them, sums over the air, and active sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import exp1

from fednet_emu.devices.availability import Always, Windows
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.kernel.work import BIT, SCALE, work_per_ns
from fednet_emu.network.access.contention import FullReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.active_set import ActiveSet
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.separate import BandAir, SeparateAir
from fednet_emu.network.air.shared import end_of
from fednet_emu.network.air.transfer import Message, Transfer
from fednet_emu.network.faults import NoLoss, RandomLoss
from fednet_emu.radio.fading import FadingByLineOfSight, NoFading, Rayleigh, Rician
from fednet_emu.radio.rates.ergodic import ErgodicRate
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.testing import small_federation
from tests.network.beside import MS, Cancelling, Request, World, cancellings, general, instants, instants_of, requests
from tests.network.media import CAPACITY, MBIT, HandMadeLinks, PlainRadios
from tests.quick import examples

KEY = 0xFADE


def band_of(fading, law=CAPACITY, access=None):
    """A band of 1 MHz."""
    return (access or Tdma()).use(Band.of(1e6, law, fading), HandMadeLinks([1.0]), 1, 1).band


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


@examples(40)
@given(cut=st.floats(0.0, 1.0), size_bit=st.integers(1000, 1_000_000))
def test_a_walk_that_is_cut_has_sent_the_integral_so_far(cut, size_bit):
    """What is through at any instant is what a transfer of just those bits would have needed."""
    band, start_ns = band_of(Rayleigh(coherence_s=0.002)), 12_345
    whole_end_ns, _, _ = band.alone(3.0, KEY, size_bit, start_ns)
    until_ns = start_ns + int(cut * (whole_end_ns - start_ns))

    end_ns, transmitted_bit, _ = band.alone(3.0, KEY, size_bit, start_ns, until_ns)

    assert end_ns == until_ns
    if transmitted_bit > 1.0:
        assert 0 <= until_ns - band.alone(3.0, KEY, int(transmitted_bit), start_ns)[0] <= 1e9 / 100


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


def test_walking_blocks_and_the_ergodic_rate_agree():
    """Over thousands of blocks the two ways of `fading_model` take the same time within 2 %, for two rate laws."""
    fading = Rayleigh(coherence_s=0.01)
    for law in (Shannon(), Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)):
        walked = Band.of(1e6, law, fading)
        ergodic = Band.of(1e6, ErgodicRate(law=law, fading=fading), NoFading())
        ends_ns = [band.alone(3.0, 11, 100_000_000, 0)[0] for band in (walked, ergodic)]

        assert ends_ns[0] > 3000 * walked.coherence_ns
        assert ends_ns[0] == pytest.approx(ends_ns[1], rel=0.02)


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


def outcomes(
    snr: Sequence[float],
    asked: Sequence[Request],
    cancelled: Sequence[Cancelling],
    until_ns: int = 10**13,
    **options: Any,
) -> list[Any]:
    """The outcomes of the same play with exact walks only, and as usual; a transfer of too many blocks is an error."""

    def outcome() -> Any:
        try:
            return World(snr, **options).play(asked, cancelled, until_ns)
        except ScenarioError as error:
            return str(error)

    with patch.object(BandAir, "start", SeparateAir.start):
        exact = outcome()
    return [exact, outcome()]


@examples(120)
@given(
    snr=st.lists(st.sampled_from([0.0, 1e-4, 0.05, 1.0, 1.0, 30.0, 1e4]), min_size=4, max_size=4),
    asked=st.lists(requests, min_size=1, max_size=12),
    cancelled=st.lists(cancellings, max_size=6),
    until_ns=instants | st.just(10**13),
    access=st.sampled_from([Tdma(), Ofdma(subchannels=1), FullReuse(max_senders=1, sinr_threshold_db=-3.0)]),
    law=st.sampled_from([Shannon(), FixedRate(bit_rate_bps=3e6, threshold_db=-1.0), FixedRate(bit_rate_bps=1e5)]),
    coherence_s=st.sampled_from([0.0001, 0.0435, math.inf]),
    timeout_s=st.sampled_from([None, 0.004, 0.05, 3600.0]),
    loss=st.sampled_from([NoLoss(), RandomLoss(probability=0.3)]),
    availability=st.sampled_from([Always(), Always(), Windows(devices={0: [[0.005, 0.02]], 2: [[0.0, 0.003]]})]),
    way=st.sampled_from(["uplink", "downlink"]),
    radios=st.sampled_from(["plain", "bits"]),
    rx_consumption_w=st.sampled_from([0.0, 0.1]),
)
def test_whatever_is_asked_and_cancelled_the_books_are_those_of_exact_walks(
    snr,
    asked,
    cancelled,
    until_ns,
    access,
    law,
    coherence_s,
    timeout_s,
    loss,
    availability,
    way,
    radios,
    rx_consumption_w,
):
    """Equal rows in equal order, deliveries in order and time, energies, bits, and transfers that nobody heard of."""
    fading = NoFading() if math.isinf(coherence_s) else Rayleigh(coherence_s=coherence_s)
    bits = PlainRadios(full_w=0.2, tx_j_per_bit=1e-7, rx_j_per_bit=2e-7) if radios == "bits" else None
    general, turns = outcomes(
        snr, asked, cancelled, until_ns, access=access, law=law, fading=fading, timeout_s=timeout_s, loss=loss,
        availability=availability, way=way, radios=bits, rx_consumption_w=rx_consumption_w,
    )  # fmt: skip

    assert turns == general


def test_a_cancellation_at_any_instant_of_a_run_has_the_same_consequences():
    """Each of five requests, cancelled before or after everything else of every instant, and a nanosecond beside it."""
    asked = [Request(0, 0, 20_000), Request(0, 1, 20_000), Request(3 * MS, 2, 800), Request(9 * MS, 0, 1, 1)]
    asked.append(Request(9 * MS, 3, 20_000))  # its link carries nothing
    options = {"snr": (1.0, 10.0, 3.0, 1e-9), "fading": Rayleigh(coherence_s=0.002), "timeout_s": 0.05}
    rows, *_ = World(**options).play(asked, [], 10**13)
    events_ns = instants_of(rows)
    assert len(events_ns) == 8

    for at_ns in sorted({max(time_ns + by, 0) for time_ns in events_ns for by in (-1, 0, 1)}):
        for number in range(5):
            for last in (False, True):
                general, turns = outcomes(asked=asked, cancelled=[Cancelling(number, at_ns, last)], **options)
                assert turns == general


def test_a_loss_that_is_noticed_as_another_transfer_ends_comes_first():
    """One out of reach is given up at once, and noticed after the timeout of 4 ms, in which another one ends."""
    snr, asked = (1.0, 0.0), [Request(0, 0, 800), Request(0, 1, 800)]
    rows, *_ = World(snr, timeout_s=0.004).play(asked, [], 10**13)
    begun_ns = rows[-1][7]
    asked.append(Request(begun_ns + 4 * MS - rows[0][8], 0, 800))
    general, turns = outcomes(snr, asked, [], timeout_s=0.004)

    assert [(number, at_ns) for number, at_ns, _ in general[1][1:]] == [(1, begun_ns + 4 * MS), (2, begun_ns + 4 * MS)]
    assert turns == general


def test_who_has_left_listens_no_longer(cell):
    """Of 0 to 1 and 2 to 3 the first ends: one row and one column remain, and the second leg has row 0."""
    medium, clock = cell(Ofdma()).medium, Clock()
    first, second = ([Transfer(clock, 2, print, *ends, Message(None, 8))] for ends in ((0, 1), (2, 3)))
    on_air = ActiveSet(medium.band, medium.links, 1)
    on_air.add([first, second])
    assert on_air.gains.receivers.tolist() == [1, 3]

    assert on_air.remove_legs(np.array([0])) == [first]

    assert (on_air.gains.senders.tolist(), on_air.gains.receivers.tolist()) == ([2], [3])
    assert (on_air.leg["row"].tolist(), on_air.burst["column"].tolist()) == ([0], [0])
    assert on_air.gains.mean.shape == (1, 1)


def test_senders_in_any_order_of_their_columns_may_leave_at_once(cell):
    """0, 1 and 2 send, then 2 and 0 once more; the bursts of 0 and of 2 leave together, and 1 has the only column."""
    medium, clock = cell(FullReuse()).medium, Clock()
    bursts = [[Transfer(clock, 0, print, sender, -1, Message(None, 8))] for sender in (2, 1, 0, 0, 2)]
    on_air = ActiveSet(medium.band, medium.links, 1)
    for burst in bursts:
        on_air.add([burst])

    on_air.remove_legs(np.array([0, 2]))
    assert (on_air.gains.senders.tolist(), on_air.burst["column"].tolist()) == ([2, 1, 0], [1, 2, 0])
    assert on_air.remove_legs(np.array([1, 2])) == [bursts[3], bursts[4]]

    assert (on_air.gains.senders.tolist(), on_air.burst["column"].tolist()) == ([1], [0])
    assert on_air.gains.lowest <= on_air.gains.mean.min()


@given(
    sizes_bit=st.lists(st.integers(0, 10**12), min_size=1, max_size=5),
    rates_bps=st.lists(st.floats(0, 1e9), min_size=5, max_size=5),
    spans_ns=st.lists(st.integers(1, 10**10), min_size=1, max_size=3),
)
def test_what_is_carried_is_exact_and_never_more_than_there_was(cell, sizes_bit, rates_bps, spans_ns):
    """Whole units of work, block by block; the float beside them is the nearest one."""
    medium, clock = cell(FullReuse(), snr=[1.0] * 5).medium, Clock()
    on_air = ActiveSet(medium.band, medium.links, 1)
    on_air.add([[Transfer(clock, 0, print, k, -1, Message(None, bit))] for k, bit in enumerate(sizes_bit)])
    rates_bps = rates_bps[: len(sizes_bit)]

    on_air.carry([(np.array(rates_bps) / (1 + block), span_ns) for block, span_ns in enumerate(spans_ns)])

    done = [sum(work_per_ns(bps / (1 + block)) * ns for block, ns in enumerate(spans_ns)) for bps in rates_bps]
    left = [max(bit * BIT - work, 0) for bit, work in zip(sizes_bit, done, strict=True)]
    assert on_air.work == left
    assert on_air.leg["left_nbit"].tolist() == [float(work) / SCALE for work in left]


@pytest.fixture
def planned(monkeypatch):
    """Numbers of blocks of all plans, and the number of times that the bursts on the air were gathered."""
    counts, gathered = [], []
    blocks, gather = Band.blocks, ActiveSet.gather
    monkeypatch.setattr(Band, "blocks", lambda band, from_ns, n: counts.append(n) or blocks(band, from_ns, n))
    monkeypatch.setattr(ActiveSet, "gather", lambda on_air: gathered.append(1) or gather(on_air))
    return counts, gathered


def test_a_plan_that_ran_out_is_followed_by_one_four_times_as_long(cell, planned):
    """A second at blocks of 1 ms: 8 + 32 + 128 + 512 blocks are 680 of 1000; who is on the air is gathered once."""
    (delivery,) = cell(general(Ofdma()), fading=Rayleigh(coherence_s=0.001)).play((0.0, 0, MBIT))

    assert delivery.ended_s == 1.0
    assert planned[0] == [8, 32, 128, 512, 2048]
    assert len(planned[1]) == 1


@pytest.mark.parametrize(("at_s", "later"), [(0.0155, [16, 64]), (0.0165, [32, 128])])
def test_a_change_in_the_first_quarter_halves_the_next_plan(cell, planned, at_s, later):
    """The second plan lasts from 8 to 40 ms: its first quarter ends with the block in which 16 ms lies."""
    world = cell(general(Ofdma()), fading=Rayleigh(coherence_s=0.001))
    first, second = world.play((0.0, 0, MBIT), (at_s, 1, MBIT))

    assert planned[0][:4] == [8, 32, *later]
    assert (first.ended_s, second.ended_s) == (1.0, at_s + 1.0)


def test_work_that_fills_a_block_ends_with_it():
    """A microsecond at 1 Mbit/s is done at its very end, and one unit more in the next block."""
    rates, edges_ns, work = np.array([1e6, 2e6]), [500, 1500, 2500], 1000 * work_per_ns(1e6)

    assert end_of(work, rates[:1], edges_ns[:2]) == 1500
    assert [end_of(work + more, rates, edges_ns) for more in (-1, 0, 1)] == [1500, 1500, 1501]


MANY = ("devices.count=100", "data.n_samples=200", "algorithm.cohort=100")
FADING = ("channel.fading={kind: rayleigh, coherence_s: 0.01}", *MANY)
BLOCKS = 300


def bursts(*settings, access="", blocks=BLOCKS):
    """What a hundred devices do in bursts of many fading blocks, and their mean SNRs."""
    fed = small_federation(f"network.uplink.access={{kind: over-the-air, {access}}}", *settings)
    everybody = np.arange(fed.n_devices)
    sent = [fed.network.superposition.sending(everybody, block * 10_000_000, block) for block in range(blocks)]
    return sent, fed.network.up_links.mean_snr


@pytest.mark.parametrize("cutoff", [0.2, 0.7])
def test_the_active_share_and_the_mean_power_are_the_closed_forms(cutoff):
    """Rayleigh fading: exp(-g) of all bursts are sent, with a mean power of eta E1(g) over the channel's gain."""
    sent, mean_snr = bursts(*FADING, access=f"cutoff: {cutoff}")
    active = np.array([[not why for why in burst.silent] for burst in sent])
    power = np.array([burst.power_part for burst in sent]) * mean_snr / sent[0].snr
    n = active.size

    assert active.mean() == pytest.approx(math.exp(-cutoff), abs=5 * math.sqrt(0.25 / n))
    assert power.mean() == pytest.approx(exp1(cutoff), abs=5 * power.std() / math.sqrt(n))
    assert {why for burst in sent for why in burst.silent} == {"", "outage"}


def test_the_weakest_link_spends_its_budget_and_the_others_less():
    """Eta is such that the mean power of the weakest link is the full power of its radio."""
    sent, mean_snr = bursts(*FADING)

    assert sent[0].snr == pytest.approx(mean_snr.min() / exp1(0.2), rel=1e-4)
    assert len({burst.snr for burst in sent}) == 1


def test_a_peak_budget_is_never_exceeded():
    """The weakest link sends with full power at the cutoff, and with less above it."""
    sent, mean_snr = bursts(*FADING, access="budget: peak")
    most = max(burst.power_part.max() for burst in sent)

    assert sent[0].snr == pytest.approx(0.2 * mean_snr.min())
    assert 0.8 < most <= 1.0


def test_devices_beyond_the_given_snr_are_silent():
    """At the SNR that the median link can reach, the worse half never sends, and the better half arrives at it."""
    _, mean_snr = bursts(*MANY, blocks=1)
    level = float(np.median(mean_snr))
    (burst,), _ = bursts(*MANY, access=f"snr_db: {10 * math.log10(level)}", blocks=1)
    reached = burst.power_part * mean_snr

    assert [why == "unreachable" for why in burst.silent] == (mean_snr < level).tolist()
    assert burst.snr == pytest.approx(level)
    assert reached[mean_snr >= level] == pytest.approx(level)
    assert (reached[mean_snr < level] == 0).all()


def test_nobody_knows_the_whole_channel():
    """Factors differ from burst to burst and between devices, with the closed mean; without error all are 1."""
    sent, _ = bursts(*FADING, access="csi_error: 0.04")
    factor = np.array([burst.factor for burst in sent])

    assert factor.mean() == pytest.approx(math.sqrt(0.96), abs=0.02)
    assert len(np.unique(factor)) == factor.size
    assert (np.array([burst.factor for burst in bursts(*FADING, blocks=2)[0]]) == 1.0).all()

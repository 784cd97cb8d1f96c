"""Schedulers, and access of LoRa."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Windows
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.access.schedulers import best_of_each_block, equal_finish_shares
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.lora import Lora
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import run_small, small_scenario
from tests.network.media import CAPACITY
from tests.quick import examples

LINKS = st.lists(st.tuples(st.floats(0.1, 1e4), st.integers(1000, 10**7)), min_size=2, max_size=6)


def times_s(shares, snr, left_bit, law=CAPACITY):
    """How long each link takes on its part of 1 MHz."""
    return left_bit / law.rates_bps(snr / shares, 1e6 * shares)


# ---- equal finish ----------------------------------------------------------------------------------------------------


@examples(30)
@given(links=LINKS, seed=st.integers(0, 1000))
def test_equal_finish_ends_together_and_no_other_split_ends_earlier(links, seed):
    """All times agree to 1e-5, and the last of any other split of the band ends no earlier."""
    snr, left_bit = (np.array(values, float) for values in zip(*links, strict=True))
    shares = equal_finish_shares(snr, left_bit, CAPACITY, 1e6)
    together_s = times_s(shares, snr, left_bit)

    assert shares.sum() == pytest.approx(1.0, rel=1e-12)
    assert together_s == pytest.approx(np.full(len(snr), together_s[0]), rel=1e-5)
    others = np.random.default_rng(seed).dirichlet(np.ones(len(snr)), 50)
    near = shares * np.exp(0.05 * np.random.default_rng(seed + 1).standard_normal((50, len(snr))))
    for other in (*others, *(near / near.sum(axis=1, keepdims=True))):
        assert times_s(other, snr, left_bit).max() >= together_s.max() * (1 - 1e-5)


@pytest.mark.parametrize("repetitions", [1, 8])
def test_a_link_below_the_lowest_rate_gets_what_it_can_use_and_no_more(repetitions):
    """At -13 dB the whole band carries nothing, or no more than a narrow part; the others end together in the rest."""
    snr, left_bit = np.array([0.05, 10.0, 100.0]), np.array([1e6, 1e6, 1e6])
    law = Shannon(max_repetitions=repetitions)
    shares = equal_finish_shares(snr, left_bit, law, 1e6)
    ends_s = times_s(shares, snr, left_bit, law)

    assert shares[0] == pytest.approx(snr[0] / law.lowest[0], rel=5e-3)
    assert shares.sum() == pytest.approx(1.0)
    assert ends_s[1] == pytest.approx(ends_s[2], rel=1e-5)
    assert ends_s[0] > ends_s[1]


def test_who_needs_nothing_and_a_fixed_rate_do_not_stop_it():
    """A link without a signal or without bits leaves the band to the others; a fixed rate makes all parts equal."""
    shares = equal_finish_shares(np.array([0.0, 3.0, 3.0]), np.array([1e6, 1e6, 0.0]), CAPACITY, 1e6)
    fixed = equal_finish_shares(np.array([1.0, 3.0]), np.array([1e6, 1.0]), FixedRate(bit_rate_bps=1e6), 1e6)

    assert shares == pytest.approx([0.0, 1.0, 0.0], abs=1e-8)
    assert fixed.tolist() == [0.5, 0.5]


def test_on_the_air_all_end_in_one_instant(cell):
    """Four uplinks of different size and distance: the ends differ by less than 1e-5 of the time that they take."""
    world = cell(Ofdma(scheduler="equal-finish"), CAPACITY, snr=[100.0, 1.0, 10.0, 0.5])
    deliveries = world.play((0.0, 0, 10**6), (0.0, 1, 2 * 10**6), (0.0, 2, 500_000), (0.0, 3, 10**6))
    ends_s = [delivery.ended_s for delivery in deliveries]

    assert max(ends_s) - min(ends_s) < 1e-5 * max(ends_s)


# ---- proportional fair -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_proportional_fair_gains_the_mean_of_the_maximum(cell, count):
    """At low SNR the rate is as the gain: n Rayleigh links carry 1 + 1/2 + ... + 1/n times what one carries.

    Each has the band for a part 1/n of the blocks, whatever its mean SNR (four standard deviations).
    """
    blocks, snr = 20_000, [1e-4 * (1 + device) for device in range(count)]
    world = cell(Ofdma(scheduler="proportional-fair"), CAPACITY, Rayleigh(coherence_s=0.001), snr=snr, drawn_w=1.0)
    for device in range(count):
        world.medium.send(device, SERVER, Message(None, 10**8, 0))
    world.clock.run(until=blocks * NS_PER_S // 1000)
    world.close()

    gain = world.rows["transmitted_bit"].to_numpy() / (1e6 / math.log(2) * np.array(snr) * blocks * 1e-3)
    harmonic = sum(1 / k for k in range(1, count + 1))
    assert gain.sum() == pytest.approx(harmonic, rel=4 * 1.3 / math.sqrt(blocks) + 1e-3)
    turns = world.rows["energy_j"].to_numpy() / (blocks * 1e-3)
    assert turns == pytest.approx(np.full(count, 1 / count), abs=4 * math.sqrt(1 / count / blocks) + 1e-9)
    assert turns.sum() == pytest.approx(1.0, rel=1e-9)


def test_without_fading_proportional_fair_is_equal_parts(cell):
    """Nobody is ever better than its own mean."""
    requests = [(0.0, 0, 10**6), (0.2, 1, 10**6)]
    fair, equal = (
        [delivery.ended_s for delivery in cell(Ofdma(scheduler=kind), CAPACITY, snr=[3.0, 30.0]).play(*requests)]
        for kind in ("proportional-fair", "equal")
    )

    assert fair == equal


def test_a_broadcast_competes_with_its_worst_receiver():
    """Bursts of legs (0, 1) and (2): relative gains 3 and 1 against 2; in the next block 2 and 2 against 1."""
    signal = np.array([[6.0, 4.0], [10.0, 20.0], [2.0, 1.0]])

    assert best_of_each_block(signal, np.array([2.0, 10.0, 1.0]), np.array([0, 2])).tolist() == [[0, 1], [1, 0]]


def test_gains_that_differ_by_rounding_alone_tie():
    """Two bursts on one link whose device moved in between: the same fading over means of 10 and 3."""
    fading = np.random.default_rng(0).exponential(size=1000)
    mean = np.array([10.0, 3.0])
    signal = mean[:, None] * fading

    assert (best_of_each_block(signal, mean, np.array([0, 1])) == [[1], [0]]).all()


FRAME_S, PERIOD_S = 0.348416, 34.8416
"""222 bytes with spreading factor 7, and that over a duty cycle of 1 %."""
NET_BIT = 209 * 8
STRONG = 10.0


def db(value):
    return 10 ** (value / 10)


@pytest.fixture
def lora(cell):
    """Makes a cell with one LoRa channel of 125 kHz."""

    def make(access=None, **given):
        return cell(access or Lora(), **{"bandwidth_hz": 125e3, "timeout_s": 1e6, "snr": [STRONG] * 3, **given})

    return make


def test_each_frame_is_followed_by_silence(lora):
    """Three full frames: the third ends two periods after the first; the next message waits for 99 frames more."""
    world = lora()
    first, second = world.play((0.0, 0, 3 * NET_BIT), (80.0, 0, NET_BIT))

    assert first.ended_s == pytest.approx(2 * PERIOD_S + FRAME_S, abs=1e-8)
    assert second.ended_s == pytest.approx(3 * PERIOD_S + FRAME_S, abs=1e-8)
    assert world.rows["energy_j"].tolist() == pytest.approx([0.2 * 3 * FRAME_S, 0.2 * FRAME_S], rel=1e-6)


def test_frames_of_one_factor_collide_and_others_do_not(lora):
    """Two with factor 7, one with 10: e^-0.02 of the frames of the two arrive, all of the third."""
    world = lora(snr=[STRONG, STRONG, db(-4.4)])
    found = world.play(*((0.0, device, 10 * NET_BIT) for device in range(3)))

    attempts = 10 * math.exp(0.02)
    assert [each.ended_s for each in found[:2]] == pytest.approx([(attempts - 1) * PERIOD_S + FRAME_S] * 2, rel=1e-8)
    assert found[2].ended_s == pytest.approx(54 * 61.6448 + 0.616448, abs=1e-6)  # 55 frames of 51 bytes


def test_who_stays_is_no_longer_disturbed(lora):
    """With a duty cycle of a half, e^-1 arrive until the other has ended, then all."""
    one, other = lora(Lora(duty_cycle=0.5)).play((0.0, 0, 10 * NET_BIT), (0.0, 1, 40 * NET_BIT))

    period_s, arrives = 2 * FRAME_S, math.exp(-1)
    first_s = (10 / arrives - 1) * period_s + FRAME_S
    left = 40 - first_s / period_s * arrives
    assert one.ended_s == pytest.approx(first_s, rel=1e-8)
    assert other.ended_s == pytest.approx(first_s + (left - 1) * period_s + FRAME_S, rel=1e-8)


def test_a_message_of_one_frame_takes_that_frame(lora):
    """An empty one has a header: 13 bytes in 46.3 ms at factor 7, 82.4 + 10.2 ms at 8."""
    (seven,) = lora(Lora(spreading_factor=7)).play((0.0, 0, 0))
    (eight,) = lora(Lora(spreading_factor=8)).play((0.0, 0, 0))

    assert [seven.ended_s, eight.ended_s] == pytest.approx([0.046336, 0.082432], abs=1e-9)


@pytest.mark.parametrize(("snr_db", "access", "lost"), [
    (-19.9, Lora(), ""), (-20.1, Lora(), "unreachable"),
    (-12.4, Lora(spreading_factor=9), ""), (-12.6, Lora(spreading_factor=9), "unreachable"),
])  # fmt: skip
def test_below_what_a_factor_needs_nothing_arrives(lora, snr_db, access, lost):
    """Factor 12 needs -20 dB, 9 needs -12.5 dB."""
    (found,) = lora(access, snr=[db(snr_db)]).play((0.0, 0, NET_BIT))

    assert found.lost == lost


def test_a_broadcast_has_the_factor_of_the_weakest_that_it_reaches(lora):
    """0 dB has factor 9: two frames of 115 bytes for 204; who is out of reach does not count."""
    world = lora(multicast=True, snr=[STRONG, db(0.0), db(-30.0)])
    found = world.play(*((0.0, device, 2 * 102 * 8) for device in range(3)))

    assert [each.lost for each in found] == ["", "", "unreachable"]
    assert found[0].ended_s == found[1].ended_s == pytest.approx(61.5424 + 0.615424, abs=1e-7)


def test_what_takes_too_long_is_lost_with_what_it_has_carried(lora):
    """A timeout after four and a half periods: 4.5 of 10 frames."""
    world = lora(timeout_s=4.5 * PERIOD_S)
    (found,) = world.play((0.0, 0, 10 * NET_BIT))

    assert (found.lost, found.ended_s) == ("timeout", pytest.approx(4.5 * PERIOD_S))
    assert world.rows["transmitted_bit"].tolist() == pytest.approx([4.5 * NET_BIT], rel=1e-6)


def test_messages_of_one_sender_share_its_time(lora):
    """Two at once by one device: each is sent every other time, and they do not collide."""
    found = lora().play((0.0, 0, 3 * NET_BIT), (0.0, 0, 3 * NET_BIT))

    assert [each.ended_s for each in found] == pytest.approx([4 * PERIOD_S + FRAME_S] * 2, abs=1e-7)


def test_rounds_over_lora_need_a_narrow_band_and_patience():
    """A model of 320 bit is one frame each way; in the next round the server is still silent after the first."""
    ways = ("network.uplink.access=lora", "network.downlink.access=lora")
    ((path, what), _) = small_scenario(*ways).contradictions()
    assert path == ("network", "uplink", "access")
    assert "got channel.bandwidth_hz 2e+07 with lora; set channel.bandwidth_hz: 125e3" in what

    fed = run_small(*ways, "channel.bandwidth_hz=125e3", "stop.rounds=2", timing_only=True)
    fed.close()
    found = fed.ledger.frame("transfers")
    down = found.query("direction == 'downlink'")

    assert not any(verify(fed.ledger, frozenset()).values())
    assert set(found["loss_reason"]) == {""}
    assert down["ended_s"].tolist()[-1] == pytest.approx(100 * 0.102656 + 0.102656, abs=1e-3)  # 53 bytes


def test_who_leaves_during_a_broadcast_has_not_got_it(lora):
    """The second frame ends after 62 s, one receiver leaves after 30 s: it is lost there only."""
    away = Windows(devices={1: ((0.0, 30.0),)})
    found = lora(multicast=True, snr=[db(0.0)] * 2, availability=away).play(
        *((0.0, device, 2 * 102 * 8) for device in range(2))
    )

    assert [each.lost for each in found] == ["", "left"]
    assert found[0].ended_s == pytest.approx(61.5424 + 0.615424, abs=1e-7)

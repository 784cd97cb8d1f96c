"""Claims about the downlink: one transmission for all, or one after the other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Windows
from fednet_emu.kernel.clock import COLLECT, NS_PER_S
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air import separate as air
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.network.faults import RandomLoss
from fednet_emu.radio.fading import NoFading, Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER, SEVERAL
from tests.quick import examples

MBIT = 1_000_000
CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
BOTH_AIRS = pytest.mark.parametrize("access", [Tdma(), Ofdma()], ids=["alone", "shared"])
SNR = [100.0, 1.0, 10.0, 3.0]


def rate_bps(snr, share=1.0):
    """Capacity of a share of 1 MHz."""
    return 1e6 * share * math.log2(1 + snr / share)


@BOTH_AIRS
def test_a_broadcast_ends_with_its_slowest_receiver(cell, access):
    """All get it at that instant: one transmission, as long as the worst link needs, in one row."""
    world = cell(access, CAPACITY, snr=SNR, multicast=True)
    deliveries = world.play(*((0.0, device, MBIT) for device in range(4)))

    end_s = MBIT / rate_bps(1.0)
    assert [delivery.receiver for delivery in deliveries] == [0, 1, 2, 3]
    assert all(delivery.ended_s == pytest.approx(end_s, abs=1e-9) for delivery in deliveries)
    (row,) = world.rows.to_dict("records")
    assert (row["sender"], row["receiver"], row["receivers"], row["size_bit"]) == (SERVER, SEVERAL, 4, MBIT)
    assert (row["delivered_bit"], row["lost_bit"]) == (4 * MBIT, 0)
    assert row["air_bit"] == pytest.approx(MBIT, rel=1e-9)
    assert row["energy_j"] == pytest.approx(0.2 * end_s)
    assert world.ledger.sent_bit == [0, MBIT, 0]
    heard = world.ledger.frames()["receptions"]
    assert heard[["transfer", "receiver", "lost"]].values.tolist() == [[0, device, ""] for device in range(4)]
    assert row["snr_db"] == pytest.approx(heard["snr_db"].min())


@BOTH_AIRS
def test_every_receiver_draws_power_while_it_receives(cell, access):
    """Three receivers of a broadcast at 0.5 W draw 1.5 W until the slowest has it; its sender's draw is apart."""
    world = cell(access, CAPACITY, snr=SNR, multicast=True, receive_w=0.5)
    world.play(*((0.25, device, MBIT) for device in range(3)))

    airtime_s = MBIT / rate_bps(1.0)
    (row,) = world.rows.to_dict("records")
    assert row["receive_j"] == pytest.approx(0.5 * airtime_s * 3, rel=1e-8)
    assert row["energy_j"] == pytest.approx(0.2 * airtime_s, rel=1e-8)
    assert world.ledger.energy_j == pytest.approx((1.5 + 0.2) * airtime_s, rel=1e-8)


def test_a_receiver_without_a_link_holds_no_broadcast_up(cell):
    """One nanosecond before the broadcast ends another message starts; the end stays where it is.

    That nobody answers is known a second after the start.
    """
    law = FixedRate(bit_rate_bps=1e6, threshold_db=0.0, on_outage="stall")
    world = cell(Ofdma(), law, snr=[100.0, 0.0, 100.0], multicast=True)
    first, unreachable, _ = world.play((0.0, 0, 1000), (0.0, 1, 1000), (0.000_999_999, 2, MBIT))

    assert (first.lost, first.ended_s) == ("", 0.001)
    assert (unreachable.lost, unreachable.ended_s) == ("unreachable", 1.0)


def test_unicast_sends_one_after_the_other(cell):
    """Without multicast the same payload is as many transmissions as receivers, by the number of the device."""
    world = cell(law=CAPACITY, snr=SNR)
    deliveries = world.play(*((0.0, device, MBIT) for device in (2, 0, 1)))

    ends_s = {device: MBIT / rate_bps(SNR[device]) for device in range(3)}
    assert deliveries[1].ended_s == pytest.approx(ends_s[0], abs=1e-9)
    assert deliveries[2].ended_s == pytest.approx(ends_s[0] + ends_s[1], abs=3e-9)
    assert deliveries[0].ended_s == pytest.approx(sum(ends_s.values()), abs=3e-9)
    assert world.rows["receivers"].tolist() == [1, 1, 1]


def test_only_one_group_of_one_instant_is_one_broadcast(cell):
    """Another instant, another group or another size is another transmission."""
    world = cell(multicast=True)
    send = world.medium.send
    for receiver, group, size_bit in [(0, 0, 1000), (1, 0, 1000), (2, 5, 1000), (3, 0, 2000)]:
        send(SERVER, receiver, Message("model", size_bit, 0, group))
    world.play((0.0001, 4, 1000))

    assert world.rows[["receivers", "size_bit"]].values.tolist() == [[2, 1000], [1, 1000], [1, 2000], [1, 1000]]


@pytest.mark.parametrize("multicast", [True, False])
def test_requests_made_together_are_requests_made_one_by_one(cell, multicast):
    """The same rows, receptions and offered bits, beside another request of the instant."""
    books = []
    for together in (True, False):
        world = cell(Tdma(), CAPACITY, snr=SNR, multicast=multicast)
        if together:
            world.medium.send_all(SERVER, [2, 0, 1], Message("model", MBIT, 7, 7))
        else:
            for receiver in (2, 0, 1):
                world.medium.send(SERVER, receiver, Message("model", MBIT, 7, 7))
        world.play((0.0, 3, 1000), (0.1, 0, 1000))
        books.append((world.rows.to_csv(), world.ledger.frames()["receptions"].to_csv(),
                      world.ledger.offered_bit, world.ledger.energy_j))  # fmt: skip

    assert books[0] == books[1]
    assert sum(books[0][2]) == 3 * MBIT + 2000


@BOTH_AIRS
def test_a_broadcast_next_to_another_follows_the_closed_form(cell, access):
    """Two broadcasts of one server: in turns, or side by side until the first has ended.

    Side by side each has half the band and half the power, and so half the rate of one alone.
    """
    world = cell(access, CAPACITY, snr=SNR, multicast=True)
    send, both = world.medium.send, []
    for pair in ((0, 1), (2, 3)):
        both.append([send(SERVER, receiver, Message("model", MBIT, 0, pair[0])) for receiver in pair])
    world.clock.run()
    world.close()

    slow_1, slow_3 = SNR[1], SNR[3]
    if access.capacity:
        ends_s = (MBIT / rate_bps(slow_1), MBIT / rate_bps(slow_1) + MBIT / rate_bps(slow_3))
    else:
        second_s = MBIT / (rate_bps(slow_3) / 2)
        left_bit = MBIT - second_s * rate_bps(slow_1) / 2
        ends_s = (second_s + left_bit / rate_bps(slow_1), second_s)
    for transfers, end_s in zip(both, ends_s, strict=True):
        assert [transfer.value.ended_s for transfer in transfers] == pytest.approx([end_s] * 2, abs=2e-9)
    assert world.rows["air_bit"].tolist() == pytest.approx([MBIT, MBIT], rel=1e-9)


@BOTH_AIRS
def test_a_receiver_that_leaves_misses_the_broadcast_and_the_others_do_not(cell, access):
    """The slowest one goes away in the middle: the transmission ends when everybody else has it."""
    leaves = Windows(devices={1: ((0.0, 0.4),)})
    world = cell(access, CAPACITY, snr=SNR, multicast=True, availability=leaves)
    deliveries = world.play(*((0.0, device, MBIT) for device in range(4)))

    assert [delivery.lost for delivery in deliveries] == ["", "left", "", ""]
    assert deliveries[0].ended_s == pytest.approx(MBIT / rate_bps(3.0), abs=1e-9)
    assert world.rows["delivered_bit"].tolist() == [3 * MBIT]


@BOTH_AIRS
def test_a_receiver_that_has_it_all_may_leave(cell, access):
    """Through at 0.15 s, away from 0.6 s on: that the band is re-rated at 0.7 s takes nothing from it."""
    leaves = Windows(devices={0: ((0.0, 0.6),)})
    world = cell(access, CAPACITY, snr=SNR, multicast=True, availability=leaves)
    other = world.medium.send

    def disturb(_event):
        other(SERVER, 3, Message("another payload", 1000, 0))

    world.clock.call_at(NS_PER_S * 7 // 10, disturb)
    deliveries = world.play((0.0, 0, MBIT), (0.0, 1, MBIT))

    assert [delivery.lost for delivery in deliveries] == ["", ""]
    assert deliveries[0].ended_s == deliveries[1].ended_s > 0.9


def test_a_receiver_that_is_away_gets_a_row_of_its_own(cell):
    """The others' broadcast is not held up, and every offered bit is accounted for."""
    world = cell(multicast=True, availability=Windows(devices={1: ((5.0, 6.0),)}))
    deliveries = world.play(*((0.0, device, MBIT) for device in range(3)))

    assert [delivery.lost for delivery in deliveries] == ["", "away", ""]
    assert world.rows[["receivers", "lost", "lost_bit"]].values.tolist() == [[1, "away", MBIT], [2, "", 0]]


@BOTH_AIRS
def test_an_outage_of_one_receiver_is_its_own(cell, access):
    """Below the threshold only one of three loses the broadcast."""
    law = FixedRate(bit_rate_bps=1e6, threshold_db=5.0)
    world = cell(access, law, snr=SNR[:3], multicast=True)
    deliveries = world.play(*((0.0, device, MBIT) for device in range(3)))

    assert [delivery.lost for delivery in deliveries] == ["", "outage", ""]
    assert world.rows["lost_bit"].tolist() == [MBIT]


def test_each_receiver_has_its_own_luck(cell):
    """Random loss strikes receivers independently: a broadcast may arrive at some of them."""
    world = cell(multicast=True, loss=RandomLoss(probability=0.5))
    deliveries = world.play(*((0.0, device, 1000) for device in range(8)))

    assert {delivery.lost for delivery in deliveries} == {"", "erased"}
    assert world.rows["delivered_bit"].tolist() == [1000 * sum(not delivery.lost for delivery in deliveries)]


@BOTH_AIRS
def test_a_broadcast_goes_on_until_the_last_receiver_gives_up(cell, access):
    """One receiver is cancelled: the others still get it. All are cancelled: it stops there."""
    gone = Delivery(0, 0, None, 0, 0.0, math.nan, 0.0, "deadline")
    world = cell(access, multicast=True)
    transfers = [world.medium.send(SERVER, receiver, Message("model", MBIT, 0, 1)) for receiver in range(3)]
    for at_ns, transfer in zip((2, 4, 6), transfers, strict=True):
        world.clock.call_at(at_ns * NS_PER_S // 10, lambda _event, it=transfer: it.cancel(gone), COLLECT)
    world.clock.run()
    world.close()

    (row,) = world.rows.to_dict("records")
    assert (row["ended_s"], row["delivered_bit"]) == (0.6, 0)
    assert row["air_bit"] == pytest.approx(0.6 * MBIT)
    assert world.ledger.frames()["receptions"]["lost"].tolist() == ["deadline"] * 3


@examples(60)
@given(
    seed=st.integers(0, 10**6),
    size_bit=st.integers(0, 300_000),
    law=st.sampled_from([CAPACITY, Shannon(), FixedRate(bit_rate_bps=2e6, threshold_db=-5.0)]),
    fading=st.sampled_from([NoFading(), *(Rayleigh(coherence_s=block_s) for block_s in (0.001, 0.05, 3e9))]),
    timeout_s=st.sampled_from([0.03, 100.0]),
    leaves_s=st.sampled_from([0.2, 1e6]),
)
def test_many_receivers_are_walked_together(cell, seed, size_bit, law, fading, timeout_s, leaves_s):
    """Leg by leg or as arrays: the same fates, bits, and ends to the nanosecond."""
    snr = (10 ** np.random.default_rng(seed).uniform(-1.5, 3, 40)).tolist()
    there = Windows(devices={device: ((0.0, leaves_s if device < 5 else 1e6),) for device in range(40)})
    results = []
    for many in (2, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(air, "_MANY_LEGS", many)
            world = cell(None, law, fading, snr=snr, multicast=True, timeout_s=timeout_s, availability=there)
            deliveries = world.play(*((0.1, device, size_bit) for device in range(40)))
            results.append(([(got.lost, got.ended_s) for got in deliveries], world.rows.iloc[0]))

    (fates, row), (expected, walked) = results
    assert fates == expected
    assert row["air_bit"] == pytest.approx(walked["air_bit"], rel=1e-9)
    assert row["energy_j"] == walked["energy_j"]

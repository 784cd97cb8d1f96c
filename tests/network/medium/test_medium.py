"""Claims about the medium: how long transfers take, whose turn it is, and that the books account for everything."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.faults import RandomLoss
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER
from tests.quick import examples

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
MBIT = 1_000_000


def ns(seconds):
    """Whole nanoseconds of a time in a delivery."""
    return round(seconds * NS_PER_S)


def test_a_megabit_takes_a_second_at_a_megabit_per_second(cell):
    """Bits are bits: reading them as bytes would make it 0.125 s or 8 s."""
    (delivery,) = cell().play((0.0, 0, MBIT))

    assert (delivery.requested_s, delivery.started_s, delivery.ended_s) == (0.0, 0.0, 1.0)
    assert delivery.latency_s == 1.0


def test_a_transfer_of_a_millisecond_costs_a_millisecond(cell):
    """Short transfers are not truncated to nothing, and one bit costs its microsecond."""
    deliveries = cell().play((0.0, 0, 1000), (1.0, 0, 1))

    assert [ns(delivery.latency_s) for delivery in deliveries] == [1_000_000, 1000]


def test_a_delivery_says_who_sent_what_to_whom(cell):
    """The payload arrives as the very object that was sent."""
    payload = {"w": 1}
    (delivery,) = cell().play((0.0, 3, 1000), payload=payload)

    assert (delivery.sender, delivery.receiver, delivery.size_bit, delivery.lost) == (3, SERVER, 1000, "")
    assert delivery.payload is payload


def test_an_empty_message_is_free(cell):
    """Nothing to send takes no time, on a dead link as well, and is delivered."""
    for world in (cell(law=CAPACITY, snr=[0.0]), cell(Ofdma(), CAPACITY, snr=[0.0])):
        (delivery,) = world.play((2.0, 0, 0))

        assert (delivery.ended_s, delivery.lost) == (2.0, "")


def test_a_late_starter_slows_the_first_down(cell):
    """Two equal uplinks, the second from half-way: the share is not frozen at the start (closed form, to 1 ns).

    Alone at R1 = B log2(1 + s), side by side at R2 = B/2 log2(1 + 2 s): the noise shrinks with the share.
    """
    snr, size_bit = 10.0, MBIT
    alone_bps, shared_bps = 1e6 * math.log2(1 + snr), 0.5e6 * math.log2(1 + 2 * snr)
    second_at_ns = ns(0.5 * size_bit / alone_bps)
    world = cell(Ofdma(), CAPACITY, snr=[snr, snr])

    first, second = world.play((0.0, 0, size_bit), (second_at_ns / NS_PER_S, 1, size_bit))

    first_end_s = 0.5 * size_bit / alone_bps + 0.5 * size_bit / shared_bps
    assert abs(ns(first.ended_s) - ns(first_end_s)) <= 1
    assert abs(ns(second.ended_s) - ns(first_end_s + 0.5 * size_bit / alone_bps)) <= 1


def test_unequal_links_share_by_closed_form(cell):
    """A strong and a weak uplink start together; when the strong one has ended the weak one gets the whole band."""
    strong, weak, size_bit = 100.0, 1.0, MBIT
    first_end_s = size_bit / (0.5e6 * math.log2(1 + 2 * strong))
    left_bit = size_bit - first_end_s * 0.5e6 * math.log2(1 + 2 * weak)

    deliveries = cell(Ofdma(), CAPACITY, snr=[strong, weak]).play((0.0, 0, size_bit), (0.0, 1, size_bit))

    ends_s = (first_end_s, first_end_s + left_bit / (1e6 * math.log2(1 + weak)))
    assert all(abs(ns(got.ended_s) - ns(end_s)) <= 1 for got, end_s in zip(deliveries, ends_s, strict=True))


def test_taking_turns_adds_up(cell):
    """Ten uplinks that are asked for at once on TDMA end after 1, 2, ... 10 times the time of one."""
    world = cell(snr=[1.0] * 10)

    deliveries = world.play(*((0.0, device, 100_000) for device in range(10)))

    assert [ns(delivery.ended_s) for delivery in deliveries] == [ns(0.1 * turn) for turn in range(1, 11)]
    assert [ns(delivery.started_s) for delivery in deliveries] == [ns(0.1 * turn) for turn in range(10)]


@examples(30)
@given(order=st.permutations(range(6)))
def test_turns_do_not_depend_on_who_was_created_first(cell, order):
    """First come first served, and requests of one instant by the number of the device: shuffling moves nothing."""
    asked_at_s = [0.0, 0.5, 0.0, 0.25, 0.0, 0.5]
    deliveries = cell().play(*((asked_at_s[device], device, MBIT) for device in order))

    started_s = {delivery.sender: delivery.started_s for delivery in deliveries}
    assert sorted(started_s, key=started_s.__getitem__) == [0, 2, 4, 3, 1, 5]


@examples(20)
@given(order=st.permutations(range(4)))
def test_sharing_does_not_depend_on_who_was_created_first(cell, order):
    """All starts and ends of one instant settle together: every order gives the same instants, to the nanosecond."""
    requests = [(0.0, 0, MBIT), (0.0, 1, MBIT), (1.0, 2, 300_000), (1.0, 3, 700_000)]
    world = cell(Ofdma(), CAPACITY, Rayleigh(coherence_s=0.01), snr=[3.0, 5.0, 1.0, 9.0])

    deliveries = world.play(*(requests[index] for index in order))

    ends = {delivery.sender: delivery.ended_s for delivery in deliveries}
    reference = cell(Ofdma(), CAPACITY, Rayleigh(coherence_s=0.01), snr=[3.0, 5.0, 1.0, 9.0]).play(*requests)
    assert ends == {delivery.sender: delivery.ended_s for delivery in reference}


def test_a_band_of_two_subchannels_serves_two_at_a_time(cell):
    """The third uplink starts only when one of the first two has ended."""
    deliveries = cell(Ofdma(subchannels=2)).play((0.0, 0, MBIT), (0.0, 1, 2 * MBIT), (0.0, 2, MBIT))

    assert [(delivery.started_s, delivery.ended_s) for delivery in deliveries] == [(0.0, 1.0), (0.0, 2.0), (1.0, 2.0)]


def test_a_subchannel_is_the_same_with_and_without_neighbours(cell):
    """Fixed parts: nobody gains when the other subchannels are empty."""
    rate_bps = 0.25e6 * math.log2(1 + 4 * 10.0)
    alone = cell(Ofdma(subchannels=4), CAPACITY, snr=[10.0] * 4).play((0.0, 0, MBIT))
    four = cell(Ofdma(subchannels=4), CAPACITY, snr=[10.0] * 4).play(*((0.0, device, MBIT) for device in range(4)))

    assert all(abs(ns(delivery.ended_s) - ns(MBIT / rate_bps)) <= 1 for delivery in [*alone, *four])


def test_ends_and_starts_of_one_instant_leave_no_gap(cell):
    """The second of two turns starts in the very nanosecond in which the first one ends."""
    first, second = cell().play((0.0, 0, 333_333), (0.1, 1, 1000))

    assert second.started_s == first.ended_s


def test_energy_is_drawn_power_times_airtime(cell):
    """Waiting for the channel costs nothing; half a second on the air at 0.2 W is 0.1 J, whoever else transmits."""
    world = cell(drawn_w=0.2)
    world.play((0.0, 0, MBIT // 2), (0.0, 1, MBIT // 4))

    assert world.rows["energy_j"].tolist() == pytest.approx([0.1, 0.05], rel=1e-12)
    assert world.ledger.energy_j == pytest.approx(0.15, rel=1e-12)


def test_running_totals_follow_the_rows(cell):
    """Stop rules read bits and energy that are in the books."""
    world = cell()
    world.play((0.0, 0, MBIT), (0.0, 1, 2 * MBIT))

    assert world.ledger.sent_bit == [3 * MBIT, 0, 0]
    assert world.ledger.offered_bit == [3 * MBIT, 0, 0]
    assert world.rows["delivered_bit"].tolist() == [MBIT, 2 * MBIT]


@examples(40)
@given(
    requests=st.lists(
        st.tuples(st.integers(0, 2000).map(lambda ms: ms / 1000), st.integers(0, 5), st.integers(1, 2 * MBIT)),
        min_size=1,
        max_size=12,
    ),
    access=st.sampled_from([None, Ofdma(), Ofdma(subchannels=2), Ofdma(subchannels=1)]),
    coherence_s=st.sampled_from([0.001, 0.05, 1.0]),
)
def test_bits_are_conserved(cell, requests, access, coherence_s):
    """Rate times duration adds up to the payload for every pattern of arrivals, access scheme and fading."""
    world = cell(access, CAPACITY, Rayleigh(coherence_s=coherence_s), snr=[0.5, 1.0, 3.0, 10.0, 30.0, 100.0])

    deliveries = world.play(*requests)

    assert all(delivery.lost == "" for delivery in deliveries)
    assert world.rows["air_bit"].to_numpy() == pytest.approx(world.rows["size_bit"].to_numpy(), rel=1e-9, abs=0)


def test_a_fast_link_breaks_no_law(cell):
    """At 1 Tbit/s a nanosecond carries a thousand bits; the rounded-up end carries no bit twice."""
    for access in (None, Ofdma()):
        world = cell(access, FixedRate(bit_rate_bps=1e12))
        (delivery,) = world.play((0.0, 0, 100))

        assert delivery.ended_s == 1e-9
        assert world.rows["air_bit"].tolist() == [100.0]


def test_idle_seconds_and_fading_blocks_are_not_events(cell):
    """A transfer over a thousand fading blocks takes two events more than one within a block: at 256 and 1,024."""

    def events_of(size_bit):
        world, steps = cell(None, CAPACITY, Rayleigh(coherence_s=0.001), snr=[1.0]), 0
        transfer = world.medium.send(0, SERVER, Message("payload", size_bit, 0))
        while transfer.callbacks is not None:
            world.clock.step()
            steps += 1
        return steps

    assert (events_of(10), events_of(MBIT)) == (2, 4)


def test_those_who_wait_cost_nothing(cell):
    """Events per transfer do not grow with the queue: the thousandth waiting uplink adds as many as the second."""

    def events_of(count):
        world, steps = cell(), 0
        for number in range(count):
            world.medium.send(number % 8, SERVER, Message("payload", 1000, 0))
        while world.clock.peek() < math.inf:
            world.clock.step()
            steps += 1
        return steps

    assert events_of(1000) - events_of(500) == 500 * (events_of(2) - events_of(1))


def test_bursts_of_one_sender_share_its_power(cell):
    """Two unicasts of the base station: half the band and half the power each, so each keeps the SNR of one alone.

    With SNR 3 and 1 MHz that is 1 Mbit/s each, 1 s for 1 Mbit; one transmitter draws 0.2 W for 1 s altogether.
    """
    shannon = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
    base = cell(Ofdma(), shannon, snr=(3.0, 3.0), bandwidth_hz=1e6)
    transfers = [
        base.medium.send(SERVER, device, Message(payload, 1_000_000, 0)) for device, payload in enumerate("ab")
    ]
    base.clock.run()
    base.close()

    assert [transfer.value.ended_s for transfer in transfers] == [1.0, 1.0]
    assert base.rows["energy_j"].tolist() == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("start_s", [0.0, 5.0])
def test_a_receiver_draws_power_only_during_the_transfer(cell, start_s):
    """1 Mbit at 1 Mbit/s takes a second, and half a watt of a receiver half a joule, whenever it begins."""
    world = cell(receive_w=0.5)
    world.play((start_s, 0, 1_000_000))

    assert world.rows["receive_j"].tolist() == pytest.approx([0.5])


def test_devices_that_send_to_each_other_take_turns(cell):
    """One cell has one place, whoever sends to whom: the second sidelink starts when the first has ended."""
    world = cell()

    def both():
        sent = [world.medium.send(*ends, Message(None, MBIT)) for ends in ((0, 1), (3, 2))]
        yield world.clock.all_of(sent)
        return [(one.value.started_s, one.value.ended_s) for one in sent]

    assert world.clock.run_process(both()) == [(0.0, 1.0), (1.0, 2.0)]


def test_random_losses_are_drawn_by_link_and_number(cell):
    """The n-th transfer of a link is lost where its draw n, keyed by both ends, is below the probability."""
    deliveries = cell(loss=RandomLoss(probability=0.4)).play(*((float(n), n % 2, 10) for n in range(60)))

    draws = [uniform(mix(mix(77, n % 2 + 1), SERVER + 1), n // 2) for n in range(60)]
    assert [delivery.lost for delivery in deliveries] == ["erased" if draw < 0.4 else "" for draw in draws]

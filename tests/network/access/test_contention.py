"""Contention and spatial reuse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.all_of import AllOf
from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.network.access.contention import FullReuse, Noma, SlottedAloha, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.radio.receiver.combining import ONE_ANTENNA, MaximumRatio, ZeroForcing
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER, Ledger
from tests.network.media import CAPACITY, MBIT, Pairs, capacity_bps, medium_of
from tests.quick import examples

SNR = [0.3, 1.0, 4.0, 10.0, 30.0, 100.0]
ARRIVAL = st.tuples(st.integers(0, 400).map(lambda ms: ms / 1000), st.integers(0, 5), st.integers(1, 200_000))
SCHEMES = [
    Tdma(),
    Ofdma(),
    Ofdma(subchannels=2),
    Ofdma(scheduler="proportional-fair"),
    Ofdma(scheduler="equal-finish"),
    Noma(),
    Noma(residual=0.1, max_senders=3),
    Noma(sinr_threshold_db=-200.0),
    FullReuse(),
    FullReuse(max_senders=2, sinr_threshold_db=-30.0),
    SlottedAloha(slot_s=0.001, capture_db=-3.0),
    SlottedAloha(slot_s=0.02, probability=0.3, capture_db=-3.0),
]


# ---- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("access", "reception", "snr", "beside"),
    [
        (FullReuse(), ONE_ANTENNA, (10, 2), (10 / 3, 2 / 11)),
        (Noma(), ONE_ANTENNA, (10, 2), (10 / 3, 2)),
        (Noma(residual=0.05), ONE_ANTENNA, (10, 2), (10 / 3, 2 / 1.5)),
        (Noma(residual=1.0), ONE_ANTENNA, (10, 2), (10 / 3, 2 / 11)),
        (FullReuse(), MaximumRatio(antennas=4), (40, 8), (40 / 3, 8 / 11)),
        (FullReuse(max_senders=4), ZeroForcing(antennas=4), (40, 8), (30, 6)),
        (Ofdma(), ONE_ANTENNA, (100, 1), (math.sqrt(201) - 1, math.sqrt(3) - 1)),
    ],
)
def test_two_follow_the_closed_form(cell, access, reception, snr, beside):
    """Both run at the SINR that they have beside each other until the first has ended; then the second is alone.

    Beside another one of several antennas nulls it, and half of a band has twice the SNR.
    """
    rates_bps = [capacity_bps(sinr) for sinr in beside]
    first = int(rates_bps[1] > rates_bps[0])
    first_s = MBIT / rates_bps[first]
    left_bit = MBIT - first_s * rates_bps[1 - first]
    ends_s = {first: first_s, 1 - first: first_s + left_bit / capacity_bps(snr[1 - first])}

    deliveries = cell(access, CAPACITY, snr=snr, reception=reception).play((0.0, 0, MBIT), (0.0, 1, MBIT))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([ends_s[0], ends_s[1]], abs=2e-9)


@examples(25)
@given(snr=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=8))
def test_cancellation_reaches_the_sum_capacity(cell, snr):
    """Bits per second of all together are log2(1 + sum of SNRs), whoever is strong."""
    world = cell(Noma(), CAPACITY, snr=snr)
    for device in range(len(snr)):
        world.medium.send(device, SERVER, Message(None, 50_000, 0))
    world.clock.run(until=NS_PER_S // 1000)
    world.close()

    sent_bit = float(world.rows["transmitted_bit"].sum())
    assert sent_bit == pytest.approx(1e-3 * capacity_bps(sum(snr)), rel=1e-9)


def test_who_cannot_be_decoded_waits_for_the_others_to_end(cell):
    """At a threshold of 0 dB, 10 over 3 is decoded and then 3; 3 over 2.9 is not, nor is 2.9 under it, for ever."""
    fine = cell(Noma(sinr_threshold_db=0.0), CAPACITY, snr=[10.0, 3.0]).play((0.0, 0, MBIT), (0.0, 1, MBIT))
    stuck = cell(Noma(sinr_threshold_db=0.0), CAPACITY, snr=[3.0, 2.9], timeout_s=2.0)

    assert [delivery.lost for delivery in fine] == ["", ""]
    assert [delivery.lost for delivery in stuck.play((0.0, 0, MBIT), (0.0, 1, MBIT))] == ["timeout", "timeout"]
    assert stuck.rows["transmitted_bit"].tolist() == [0.0, 0.0]


def test_an_interferer_that_ends_lets_a_stalled_link_go_on(cell):
    """Below the lowest rate next to a strong one: stalled, not unreachable; alone it needs its usual time."""
    law = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0.1523)
    strong_s = MBIT / capacity_bps(100.0 / 2.0)
    deliveries = cell(FullReuse(), law, snr=[100.0, 1.0]).play((0.0, 0, MBIT), (0.0, 1, MBIT))

    assert deliveries[0].ended_s == pytest.approx(strong_s, abs=2e-9)
    assert (deliveries[1].lost, deliveries[1].ended_s) == ("", pytest.approx(strong_s + 1.0, abs=2e-9))


def test_interference_can_lose_a_fixed_rate(cell):
    """Two equal ones at a threshold of 0 dB lose each other; two seconds apart both arrive."""
    law = FixedRate(bit_rate_bps=1e6, threshold_db=0.0)
    together = cell(FullReuse(), law, snr=[100.0, 100.0]).play((0.0, 0, MBIT), (0.0, 1, MBIT))
    apart = cell(FullReuse(), law, snr=[100.0, 100.0]).play((0.0, 0, MBIT), (2.0, 1, MBIT))

    assert [delivery.lost for delivery in together] == ["outage", "outage"]
    assert [delivery.lost for delivery in apart] == ["", ""]


def test_a_sender_does_not_disturb_itself(cell):
    """Two uplinks of one device share its band: both need twice the time of one, where everybody sends at once."""
    for access in (FullReuse(), Noma(sinr_threshold_db=0.0)):
        deliveries = cell(access, CAPACITY, snr=[3.0]).play((0.0, 0, MBIT), (0.0, 0, MBIT))

        assert [delivery.ended_s for delivery in deliveries] == pytest.approx([1.0, 1.0], abs=2e-9)


# ---- laws for every scheme -------------------------------------------------------------------------------------------


@examples(60)
@given(
    requests=st.lists(ARRIVAL, min_size=1, max_size=8),
    access=st.sampled_from(SCHEMES),
    coherence_s=st.sampled_from([0.001, 0.05, 1.0]),
)
def test_bits_are_conserved_on_every_scheme(cell, requests, access, coherence_s):
    """Rate times duration adds up to the payload for every pattern of arrivals."""
    world = cell(access, CAPACITY, Rayleigh(coherence_s=coherence_s), snr=SNR)

    deliveries = world.play(*requests)

    assert all(delivery.lost == "" for delivery in deliveries)
    assert world.rows["transmitted_bit"].to_numpy() == pytest.approx(world.rows["size_bit"].to_numpy(), rel=1e-9, abs=0)


@pytest.mark.parametrize("access", SCHEMES, ids=str)
@examples(4)
@given(order=st.permutations(range(6)))
def test_no_scheme_cares_who_was_created_first(cell, access, order):
    """All starts and ends of one instant settle together: every order gives the same instants, to the nanosecond."""
    requests = [(0.01 * (device // 3), device, 20_000 * (device + 1)) for device in range(6)]

    def ends(order):
        world = cell(access, CAPACITY, Rayleigh(coherence_s=0.01), snr=SNR)
        deliveries = world.play(*(requests[index] for index in order))
        return {delivery.sender: delivery.ended_s for delivery in deliveries}

    assert ends(order) == ends(range(6))


@examples(25)
@given(
    size_bit=st.integers(0, 1_000_000),
    start_ms=st.integers(0, 500),
    snr=st.sampled_from(SNR),
    access=st.sampled_from([*SCHEMES[1:2], *SCHEMES[3:7], FullReuse()]),
    coherence_s=st.sampled_from([0.001, 0.05]),
)
def test_alone_every_scheme_is_turns(cell, size_bit, start_ms, snr, access, coherence_s):
    """One burst ends as on TDMA, to 1 ns, where it has the whole band, all the time and without a threshold."""
    results = []
    for scheme in (Tdma(), access):
        (delivery,) = cell(scheme, CAPACITY, Rayleigh(coherence_s=coherence_s), snr=[snr]).play(
            (start_ms / 1000, 0, size_bit)
        )
        results.append(round(delivery.ended_s * 1e9))

    assert abs(results[0] - results[1]) <= 1


# ---- slotted ALOHA ---------------------------------------------------------------------------------------------------


def aloha(cell, count, slots, **access):
    """Rows of saturated senders of equal SNR after a number of slots of 1 ms that carry 1000 bits each."""
    scheme = SlottedAloha(slot_s=0.001, **access)
    world = cell(scheme, FixedRate(bit_rate_bps=1e6), snr=[10.0] * count, drawn_w=1.0)
    for device in range(count):
        world.medium.send(device, SERVER, Message(None, 10**9, 0))
    world.clock.run(until=slots * 1_000_000)
    world.close()
    return world.rows


@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_aloha_carries_the_closed_form(cell, count):
    """(1 - 1/n)^(n - 1) of the slots carry a packet at the probability 1/n, within four standard deviations."""
    slots, expected = 20_000, (1 - 1 / count) ** (count - 1)
    carried = aloha(cell, count, slots, capture_db=3.0)["transmitted_bit"].sum() / (slots * 1000)

    assert carried == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / slots) + 1e-9)


@pytest.mark.parametrize("probability", [0.05, 0.5])
def test_aloha_draws_power_only_in_its_slots(cell, probability):
    """Each sender is on the air in a part p of the slots, whatever comes of it, and succeeds in p (1 - p)^(n - 1)."""
    slots, count = 20_000, 3
    rows = aloha(cell, count, slots, probability=probability, capture_db=3.0)
    deviation = math.sqrt(probability * (1 - probability) / slots)

    assert rows["energy_j"].to_numpy() / (slots * 1e-3) == pytest.approx(np.full(count, probability), abs=4 * deviation)
    succeeded = probability * (1 - probability) ** (count - 1)
    assert rows["transmitted_bit"].to_numpy() / (slots * 1000) == pytest.approx(
        np.full(count, succeeded), abs=4 * deviation
    )


def test_capture_lets_the_strong_one_through(cell):
    """Both in every slot: at 20 dB over 10 dB a threshold of 9 dB captures the strong one; the weak one waits."""
    access = SlottedAloha(slot_s=0.001, probability=1.0, capture_db=9.0)
    deliveries = cell(access, FixedRate(bit_rate_bps=1e6), snr=[100.0, 10.0]).play((0.0, 0, 5000), (0.0, 1, 5000))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([0.005, 0.010], abs=1e-9)


def test_a_slot_is_settled_at_its_start(cell):
    """Who comes within a slot waits for the next; who ends within one leaves its rest to nobody."""
    access = SlottedAloha(slot_s=0.001, probability=1.0, capture_db=3.0)
    first, second = cell(access, FixedRate(bit_rate_bps=1e6), snr=[10.0, 10.0]).play((0.0002, 0, 700), (0.0013, 1, 500))

    assert first.ended_s == pytest.approx(0.0017, abs=1e-9)
    assert second.ended_s == pytest.approx(0.0025, abs=1e-9)


# ---- device to device ------------------------------------------------------------------------------------------------


def play_pairs(cell, access, snr, sends, *, timeout_s=10.0):
    """Send (sender, receiver) at once, a megabit each; deliveries."""
    world = cell(access, CAPACITY)
    medium = medium_of(
        access, CAPACITY, Pairs(snr), len(snr), way="sidelink", clock=world.clock, key=5, timeout_s=timeout_s
    )
    transfers = [medium.send(*ends, Message(None, MBIT, 0)) for ends in sends]
    world.clock.run()
    return [transfer.value for transfer in transfers]


def test_pairs_disturb_each_other_as_far_as_they_hear_each_other(cell):
    """Two pairs: each receiver has its own signal over noise and what it hears of the other sender."""
    snr = [[0, 0, 0, 0], [20.0, 0, 3.0, 0], [0, 0, 0, 0], [1.0, 0, 20.0, 0]]
    first, second = play_pairs(cell, FullReuse(), snr, [(0, 1), (2, 3)])

    end_s = MBIT / capacity_bps(20.0 / 2.0)  # the second pair: interference 1
    left_bit = MBIT - end_s * capacity_bps(20.0 / 4.0)
    assert second.ended_s == pytest.approx(end_s, abs=2e-9)
    assert first.ended_s == pytest.approx(end_s + left_bit / capacity_bps(20.0), abs=2e-9)


def test_nobody_hears_while_sending(cell):
    """Half duplex: two that send to each other all the time give up; random slots of ALOHA get both through."""
    snr, always = [[0, 20.0], [20.0, 0]], SlottedAloha(slot_s=0.001, probability=1.0)

    for access, lost in ((FullReuse(), "timeout"), (always, "timeout"), (SlottedAloha(slot_s=0.001), "")):
        deliveries = play_pairs(cell, access, snr, [(0, 1), (1, 0)])
        assert [delivery.lost for delivery in deliveries] == [lost, lost]


def test_every_sender_of_a_slot_has_the_whole_band():
    """However many they are."""
    assert [SlottedAloha(slot_s=0.001).share(count) for count in (1, 2, 9)] == [1.0, 1.0, 1.0]


SIDELINK = frozenset({"sidelink"})

Push = tuple[int, Sequence[int], int]
"""Sender, receivers and cluster."""


def play(access: SpatialReuse, pushes: Sequence[Push], law: Any = None, snr: Any = None) -> tuple[Ledger, list[Any]]:
    """All pushes of one megabit, asked for at once: the books and the deliveries."""
    clock, ledger = Clock(), Ledger()
    matrix = np.full((12, 12), 10.0) if snr is None else np.asarray(snr, float)
    law = law or FixedRate(bit_rate_bps=1e6)
    more = {"way": "sidelink", "clock": clock, "ledger": ledger, "multicast": True}
    medium = medium_of(access, law, Pairs(matrix.T), len(matrix), **more)

    def everything() -> Any:
        events = []
        for sender, receivers, cluster in pushes:
            payload = ("of", sender)
            legs = [medium.send(sender, k, Message(payload, MBIT, group=sender), cluster=cluster) for k in receivers]
            events.append(AllOf(clock, legs))
        yield clock.all_of(events)
        return [event.value for event in events]

    deliveries = clock.run_process(everything())
    medium.close()
    assert not any(verify(ledger, frozenset(), SIDELINK).values())
    return ledger, deliveries


def starts_s(deliveries: list[list[Delivery]]) -> list[float]:
    return [push[0].started_s for push in deliveries]


QUIET = SpatialReuse(interference=False)
COLOURED = SpatialReuse(turns="coloured", interference=False)


def test_clusters_send_side_by_side_and_take_turns_inside() -> None:
    """Three devices of one cluster and two of another: the k-th of each cluster starts after k seconds."""
    _, deliveries = play(QUIET, [(0, [1, 2], 0), (1, [0], 0), (2, [1], 0), (5, [6], 1), (6, [5], 1)])

    assert starts_s(deliveries) == [0.0, 1.0, 2.0, 0.0, 1.0]


@examples(30)
@given(st.lists(st.sets(st.integers(0, 7), max_size=4), min_size=8, max_size=8))
def test_equal_bursts_are_coloured_greedily(wanted: list[set[int]]) -> None:
    """Turns are the colours of first-fit distance-2 colouring, worked out by a second implementation."""
    pushes = [(k, sorted(receivers - {k}), 0) for k, receivers in enumerate(wanted) if receivers - {k}]
    colours: list[int] = []
    ends = [{sender, *receivers} for sender, receivers, _ in pushes]
    for place, mine in enumerate(ends):
        taken = {colours[other] for other in range(place) if ends[other] & mine}
        colours.append(next(colour for colour in range(place + 1) if colour not in taken))
    if pushes:
        _, deliveries = play(COLOURED, pushes)

        assert starts_s(deliveries) == [float(colour) for colour in colours]


def test_interference_ends_with_its_sender() -> None:
    """The second cluster's receiver is undisturbed from the first one's end on: bits are conserved piece by piece."""
    snr = np.zeros((4, 4))
    snr[0, 1], snr[2, 3], snr[0, 3] = 15.0, 10.0, 4.0
    pushes = [(0, [1], 0), (2, [3], 1)]
    _, ((first,), (second,)) = play(SpatialReuse(), pushes, CAPACITY, snr)
    _, quiet = play(QUIET, pushes, CAPACITY, snr)

    slow, fast = math.log2(3), math.log2(11)
    assert first.ended_s == pytest.approx(0.25)
    assert second.ended_s == pytest.approx(0.25 + (1 - 0.25 * slow) / fast)
    assert quiet[1][0].ended_s == pytest.approx(1 / fast)


def test_a_fixed_rate_fails_where_interference_is_too_strong() -> None:
    """At 1 Mbit/s from 6 dB on, SINR 10 / 5 is an outage, SNR 10 is not."""
    snr = np.zeros((4, 4))
    snr[0, 1] = snr[2, 3] = 10.0
    snr[0, 3] = 4.0
    law = FixedRate(bit_rate_bps=1e6, threshold_db=6.0)
    _, ((first,), (second,)) = play(SpatialReuse(), [(0, [1], 0), (2, [3], 1)], law, snr)

    assert (first.lost, bool(second.lost)) == ("", True)


@pytest.mark.parametrize("turns", ["cluster", "coloured"])
def test_two_that_send_to_each_other_never_overlap(turns: str) -> None:
    """Half duplex: a complete cluster of four takes four turns, and the law on airtimes holds."""
    access = SpatialReuse(turns=turns)  # type: ignore[arg-type]
    ledger, deliveries = play(access, [(k, [i for i in range(4) if i != k], 0) for k in range(4)])

    assert starts_s(deliveries) == [0.0, 1.0, 2.0, 3.0]
    assert len(ledger.transfers) == 4


@pytest.mark.parametrize("access", [QUIET, COLOURED, SpatialReuse(), SpatialReuse(turns="coloured")])
def test_a_device_of_two_clusters_takes_part_in_one_transmission_at_a_time(access: SpatialReuse) -> None:
    """Device 1 receives in one cluster, then sends in the other: its end wakes those who wait in any cluster."""
    _, deliveries = play(access, [(0, [1], 0), (1, [2], 1), (3, [2], 1)])

    assert starts_s(deliveries) == [0.0, 1.0, 0.0] if access.turns == "coloured" else [0.0, 2.0, 0.0]


def test_who_sends_is_not_forgotten_when_others_start() -> None:
    """Device 4 waits for device 0, which sends in another cluster, though devices 2 and 3 have started in between."""
    _, deliveries = play(QUIET, [(0, [1], 0), (2, [3], 1), (4, [0], 2)])

    assert starts_s(deliveries) == [0.0, 0.0, 1.0]


def test_a_multicast_says_what_it_waits_for() -> None:
    """In a deadlock the transfers are named."""
    clock = Clock()
    medium = medium_of(QUIET, CAPACITY, Pairs(np.ones((4, 4))), 4, way="sidelink", clock=clock, multicast=True)
    event = AllOf(clock, [medium.send(0, k, Message(None, MBIT, group=0)) for k in (1, 2, 3)])

    assert event.describe() == "3 of 3 events: " + "; ".join(f"the sidelink from dev-0 to dev-{k}" for k in (1, 2, 3))
    assert AllOf(clock, []).value == []

"""Claims about spatial reuse: clusters side by side, turns inside, interference between, half duplex throughout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.all_of import AllOf
from fednet_emu.kernel.clock import Clock
from fednet_emu.network.access.contention import SpatialReuse
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.laws.verify import verify
from fednet_emu.records.ledger import Ledger
from tests.network.media import Pairs, medium_of
from tests.quick import examples

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
SIDELINK = frozenset({"sidelink"})
MBIT = 1_000_000

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
    """When each push went on the air."""
    return [push[0].started_s for push in deliveries]


QUIET = SpatialReuse(interference=False)
COLOURED = SpatialReuse(turns="coloured", interference=False)


def test_clusters_send_side_by_side_and_take_turns_inside() -> None:
    """Three devices of one cluster and two of another: the k-th of each cluster starts after k seconds."""
    _, deliveries = play(QUIET, [(0, [1, 2], 0), (1, [0], 0), (2, [1], 0), (5, [6], 1), (6, [5], 1)])

    assert starts_s(deliveries) == [0.0, 1.0, 2.0, 0.0, 1.0]


def test_colours_let_those_send_together_that_share_no_device() -> None:
    """A line 0-1-2-3-4-5 whose even devices send right: 0 to 1 and 2 to 3 and 4 to 5 go together, 1 to 2 waits."""
    _, deliveries = play(COLOURED, [(0, [1], 0), (1, [2], 0), (2, [3], 0), (3, [4], 0), (4, [5], 0)])

    assert starts_s(deliveries) == [0.0, 1.0, 0.0, 1.0, 0.0]


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


def test_a_broadcast_lasts_as_long_as_its_worst_receiver_needs() -> None:
    """SNRs 10 and 3 of 1 MHz: both have it after 1 Mbit / log2(1 + 3) Mbit/s = 0.5 s."""
    snr = np.full((3, 3), 10.0)
    snr[0, 2] = 3.0
    _, ((first, second),) = play(QUIET, [(0, [1, 2], 0)], CAPACITY, snr)

    assert first.ended_s == second.ended_s == pytest.approx(0.5)


def test_senders_of_other_clusters_are_noise() -> None:
    """Two clusters at SNR 10 that hear each other at 4: both run at log2(1 + 10 / 5) Mbit/s; alone at log2(11)."""
    snr = np.zeros((4, 4))
    snr[0, 1] = snr[2, 3] = 10.0
    snr[0, 3] = snr[2, 1] = 4.0
    pushes = [(0, [1], 0), (2, [3], 1)]
    _, disturbed = play(SpatialReuse(), pushes, CAPACITY, snr)
    _, alone = play(QUIET, pushes, CAPACITY, snr)

    assert [push[0].ended_s for push in disturbed] == pytest.approx([1 / math.log2(3)] * 2)
    assert [push[0].ended_s for push in alone] == pytest.approx([1 / math.log2(11)] * 2)


def test_interference_ends_with_its_sender() -> None:
    """The second cluster's receiver is undisturbed from the first one's end on: bits are conserved piece by piece."""
    snr = np.zeros((4, 4))
    snr[0, 1], snr[2, 3], snr[0, 3] = 15.0, 10.0, 4.0
    _, ((first,), (second,)) = play(SpatialReuse(), [(0, [1], 0), (2, [3], 1)], CAPACITY, snr)

    slow, fast = math.log2(3), math.log2(11)
    assert first.ended_s == pytest.approx(0.25)
    assert second.ended_s == pytest.approx(0.25 + (1 - 0.25 * slow) / fast)


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

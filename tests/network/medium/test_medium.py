"""The medium: transfers, phases and antennas."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import gammainc, gammaincc

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.access.contention import FullReuse, SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.transfer import Delivery, Message, Transfer
from fednet_emu.network.faults import RandomLoss
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.radio.receiver.combining import MaximumRatio, ZeroForcing
from fednet_emu.records.ledger import SERVER
from tests.network.conftest import Cell
from tests.network.media import CAPACITY, MBIT, capacity_bps


def ns(seconds):
    return round(seconds * NS_PER_S)


def test_a_delivery_says_who_sent_what_to_whom(cell):
    """The payload arrives as the very object that was sent."""
    payload = {"w": 1}
    (delivery,) = cell().play((0.0, 3, 1000), payload=payload)

    assert (delivery.sender, delivery.receiver, delivery.size_bit, delivery.lost) == (3, SERVER, 1000, "")
    assert (delivery.requested_s, delivery.latency_s) == (0.0, 0.001)
    assert delivery.payload is payload


def test_an_empty_message_is_free(cell):
    """Nothing to send takes no time, on a dead link as well, and is delivered."""
    for world in (cell(law=CAPACITY, snr=[0.0]), cell(Ofdma(), CAPACITY, snr=[0.0])):
        (delivery,) = world.play((2.0, 0, 0))

        assert (delivery.ended_s, delivery.lost) == (2.0, "")


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


def test_a_fast_link_breaks_no_law(cell):
    """At 1 Tbit/s a nanosecond carries a thousand bits; the rounded-up end carries no bit twice."""
    for access in (None, Ofdma()):
        world = cell(access, FixedRate(bit_rate_bps=1e12))
        (delivery,) = world.play((0.0, 0, 100))

        assert delivery.ended_s == 1e-9
        assert world.rows["transmitted_bit"].tolist() == [100.0]


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


def test_devices_that_send_to_each_other_take_turns(cell):
    """One cell has one place, whoever sends to whom: the second sidelink starts when the first has ended."""
    world = cell()

    def both():
        sent = [world.medium.send(*ends, Message(None, MBIT)) for ends in ((0, 1), (3, 2))]
        yield world.clock.all_of(sent)
        return [(one.value.started_s, one.value.ended_s) for one in sent]

    assert world.clock.run_process(both()) == [(0.0, 1.0), (1.0, 2.0)]


@pytest.mark.parametrize("access", [Tdma(), Ofdma()], ids=["alone", "shared"])
def test_random_losses_are_drawn_by_link_and_number(cell, access):
    """The n-th transfer of a link is lost where its draw n, keyed by both ends, is below the probability."""
    world = cell(access, loss=RandomLoss(probability=0.4))
    deliveries = world.play(*((float(n), n % 2, 10) for n in range(60)))

    draws = [uniform(mix(mix(77, n % 2 + 1), SERVER + 1), n // 2) for n in range(60)]
    assert [delivery.lost for delivery in deliveries] == ["erased" if draw < 0.4 else "" for draw in draws]
    assert world.ledger.energy_j == pytest.approx(0.2 * 60 * 10e-6)


PARTS = ["requested_s", "grant_delay_s", "started_s", "ended_s", "reception_delay_s"]


def phases_given(grant_delay_s: dict[int, float], reception_delay_s: dict[int, float] | None = None) -> dict[str, Any]:
    """Waits and tails in s by device; none for other devices."""

    def delay(of_device_s: dict[int, float], transfer: Transfer, now_ns: int) -> int:
        return round(of_device_s.get(max(transfer.sender, transfer.receiver), 0.0) * NS_PER_S)

    return {"before": partial(delay, grant_delay_s), "after": partial(delay, reception_delay_s or {})}


def told(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows[["sender", *PARTS]].itertuples(index=False)]


def test_turns_are_queued_for_when_waits_are_over(cell: Callable[..., Cell]) -> None:
    """Device 0 asks first and is ready last; the channel is free for it in the tail of device 1."""
    its = cell(**phases_given({0: 2.0, 1: 0.5}, {1: 0.25}))

    deliveries = its.play((0.0, 0, MBIT), (1.0, 1, MBIT), (1.25, 2, MBIT))

    assert [delivery.ended_s for delivery in deliveries] == [4.25, 3.5, 2.25]
    assert told(its.rows) == [
        (2, 1.25, 0.0, 1.25, 2.25, 0.0),
        (1, 1.0, 0.5, 2.25, 3.5, 0.25),
        (0, 0.0, 2.0, 3.25, 4.25, 0.0),
    ]


def test_waiting_takes_no_part_of_the_band(cell: Callable[..., Cell]) -> None:
    """Device 0 has the whole band of 1 MHz until the wait of device 1 is over, then half of it; tails take no part."""
    its = cell(Ofdma(), Shannon(), **phases_given({1: 0.5}, {0: 0.75, 1: 0.5}))
    whole_bps, half_bps = its.band.law.rate_bps(1.0, 1e6), its.band.law.rate_bps(2.0, 0.5e6)
    first_s = 0.5 + (MBIT - 0.5 * whole_bps) / half_bps
    second_s = first_s + 0.5

    deliveries = its.play((0.0, 0, MBIT), (0.0, 1, MBIT))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([first_s + 0.75, second_s + 0.5], abs=2e-9)
    assert its.rows["wire_bit"].tolist() == its.rows["transmitted_bit"].tolist() == [MBIT, MBIT]


def test_a_broadcast_ends_with_the_longest_tail(cell: Callable[..., Cell]) -> None:
    """Who has a tail hears of the message with the last of them, others when it leaves the air; it is one row."""
    its = cell(multicast=True, **phases_given({}, {1: 0.25, 2: 0.5}))

    deliveries = its.play((0.0, 0, MBIT), (0.0, 1, MBIT), (0.0, 2, MBIT))

    assert [delivery.ended_s for delivery in deliveries] == [1.0, 1.5, 1.5]
    assert told(its.rows) == [(SERVER, 0.0, 0.0, 0.0, 1.5, 0.5)]
    assert its.rows["delivered_bit"].tolist() == [3 * MBIT]


def test_a_receiver_that_is_cancelled_in_its_tail_ends_no_tail_of_others(cell: Callable[..., Cell]) -> None:
    """Device 1 stops waiting 0.2 s after the last bit, device 2 receives 0.5 s after it; the row ends then."""
    its = cell(multicast=True, **phases_given({}, {1: 0.25, 2: 0.5}))
    sent = its.medium.send_all(SERVER, [0, 1, 2], Message("payload", MBIT, 0, 1))

    def stop() -> Any:
        yield its.clock.sleep(1.2)
        its.medium.cancel(sent[1], "deadline")
        last: Delivery = yield sent[2]
        return last

    assert its.clock.run_process(stop()).ended_s == 1.5
    assert not sent[1].triggered
    assert told(its.rows) == [(SERVER, 0.0, 0.0, 0.0, 1.5, 0.5)]
    assert its.rows["delivered_bit"].tolist() == [2 * MBIT]


def test_turns_follow_the_ends_of_waits_on_a_full_channel(cell: Callable[..., Cell]) -> None:
    """Device 1 asks first and is ready at 0.4 s, device 2 asks at 0.1 s and is ready at once: it is next."""
    its = cell(**phases_given({1: 0.4}))

    its.play((0.0, 0, MBIT), (0.0, 1, MBIT), (0.1, 2, MBIT))

    assert its.rows.set_index("sender")["started_s"].to_dict() == {0: 0.0, 2: 1.0, 1: 2.0}


@pytest.mark.parametrize(
    ("at_s", "row"),
    [
        (0.25, ("deadline", 0.25, 0.25, 0.0, 0.0)),
        (1.0, ("deadline", 0.5, 1.0, 0.0, 0.5 * MBIT)),
        (1.75, ("deadline", 0.5, 1.75, 0.25, float(MBIT))),
        (2.25, ("", 0.5, 2.0, 0.5, float(MBIT))),
    ],
)
def test_a_cancelled_transfer_has_the_phases_that_it_passed(
    cell: Callable[..., Cell], at_s: float, row: tuple[str, float, float, float, float]
) -> None:
    """It waits 0.5 s, is on the air for 1 s and has a tail of 0.5 s; its place is free once it is off the air."""
    its = cell(**phases_given({0: 0.5}, {0: 0.5}))
    sent = its.medium.send(0, SERVER, Message("payload", MBIT, 0))

    def stop() -> Any:
        yield its.clock.sleep(at_s)
        its.medium.cancel(sent, "deadline")
        other: Delivery = yield its.medium.send(1, SERVER, Message("payload", MBIT, 0))
        return other

    other = its.clock.run_process(stop())
    its.close()

    assert other.started_s == at_s
    first = its.rows.set_index("sender").loc[0]
    assert tuple(first[["loss_reason", "grant_delay_s", "ended_s", "reception_delay_s", "transmitted_bit"]]) == row
    assert sent.triggered == (not row[0])


@pytest.mark.parametrize("end_s", [0.25, 1.0, 1.75])
def test_the_end_of_the_run_ends_every_phase(cell: Callable[..., Cell], end_s: float) -> None:
    """Whatever phase it is in, what is under way is lost at the end, and every law holds."""
    its = cell(**phases_given({0: 0.5}, {0: 0.5}))
    its.medium.send(0, SERVER, Message("payload", MBIT, 0))
    its.clock.run_process(_sleep(its, end_s))
    its.close()

    assert its.rows["loss_reason"].tolist() == ["end"]
    assert its.rows["ended_s"].tolist() == [end_s]


def _sleep(its: Cell, end_s: float) -> Any:
    yield its.clock.sleep(end_s)


BLOCK_S = 0.01
TURNS = 1500


# ---- exact times -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reception", [MaximumRatio(antennas=4), ZeroForcing(antennas=4)], ids=lambda it: it.kind)
@pytest.mark.parametrize(
    "access", [Tdma(), Ofdma(), Ofdma(subchannels=2), FullReuse(max_senders=4)], ids=lambda a: a.kind
)
def test_a_lone_sender_has_all_antennas(cell, access, reception) -> None:
    """B log2(1 + N snr) over its part of the band, whatever combines the antennas."""
    share = access.share(1)

    (delivery,) = cell(access, CAPACITY, snr=[4 * 2.5], reception=reception).play((0.0, 0, MBIT))

    assert delivery.ended_s == pytest.approx(MBIT / (share * capacity_bps(4 * 2.5 / share)), abs=2e-9)


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

    lost = lost_share(cell, FullReuse(max_senders=4), ZeroForcing(antennas=4), snr, 0.0)

    assert lost == near(gammainc(2, 2.0))


def test_outage_of_maximum_ratio_under_interference(cell) -> None:
    """A gain of Gamma(3, 1) over noise and an exponential gain: the mean over the interferer of the lone outage."""
    own, other = 2.0, 3.0
    through, _ = quad(lambda gain: math.exp(-gain) * gammaincc(3, (1 + other * gain) / own), 0, np.inf)

    lost = lost_share(cell, FullReuse(), MaximumRatio(antennas=3), [3 * own, 3 * other], 0.0)

    assert lost == near(1 - through)

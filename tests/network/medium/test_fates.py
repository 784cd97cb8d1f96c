"""Claims about transfers that do not arrive: each is a value with a reason, at an exact instant, and in the books."""

import math

import numpy as np
import pytest

from fednet_emu.devices.availability import Windows
from fednet_emu.kernel.clock import COLLECT, NS_PER_S, SETTLE
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER
from tests.network.media import CAPACITY, MBIT

BOTH_AIRS = pytest.mark.parametrize("access", [Tdma(), Ofdma()], ids=["alone", "shared"])
PATTERN = [(0.01 * number, number % 4, 20_000) for number in range(60)]


def gone(reason):
    return Delivery(0, 0, None, 0, 0.0, math.nan, 0.0, reason)


# ---- the radio -------------------------------------------------------------------------------------------------------


@BOTH_AIRS
def test_a_dead_link_is_lost_at_once(cell, access):
    """A constant link below the lowest rate is unreachable, costs nothing, and holds nobody else up.

    It is off the air in the instant in which it would start, and its sender knows a second later.
    """
    world = cell(access, Shannon(gap_db=0), snr=[1e-6, 100.0])
    dead, alive = world.play((1.0, 0, MBIT), (1.0, 1, MBIT))

    assert (dead.lost, dead.ended_s, dead.payload) == ("unreachable", 2.0, None)
    assert world.rows["ended_s"].tolist() == [1.0, alive.ended_s]
    assert (alive.lost, alive.started_s) == ("", 1.0)
    assert world.rows["energy_j"][0] == 0.0
    assert world.rows["loss_reason"][0] == "unreachable"


@BOTH_AIRS
def test_an_outage_loses_the_transfer(cell, access):
    """Fixed rate below its threshold: the airtime is spent, the payload is not there."""
    world = cell(access, FixedRate(bit_rate_bps=1e6, threshold_db=10.0), snr=[9.99])
    (delivery,) = world.play((0.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s) == ("outage", 1.0)
    assert world.rows["transmitted_bit"].tolist() == pytest.approx([MBIT])
    assert world.rows["delivered_bit"].tolist() == [0]


@pytest.mark.parametrize(("access", "snr"), [(Tdma(), 1.0), (Ofdma(subchannels=4), 0.25)], ids=["alone", "shared"])
def test_one_bad_block_is_an_outage_and_a_bad_block_elsewhere_is_none(cell, access, snr, gain_of):
    """A transfer is lost if and only if one of the blocks that it spans is below the threshold."""
    fading, law = Rayleigh(coherence_s=0.01), FixedRate(bit_rate_bps=1e6, threshold_db=-10.0)

    deliveries = cell(access, law, fading, snr=[snr] * 4).play(*PATTERN)

    for delivery in deliveries:
        blocks = range(math.floor(delivery.started_s / 0.01 + 1e-6), math.ceil(delivery.ended_s / 0.01 - 1e-6))
        worst = min(gain_of(fading, delivery.sender, block) for block in blocks)
        assert (delivery.lost == "outage") == (worst < 0.1)
    assert {delivery.lost for delivery in deliveries} == {"", "outage"}


@BOTH_AIRS
def test_patience_ends(cell, access):
    """After the timeout on the air a transfer is given up, with what it has carried."""
    world = cell(access, timeout_s=0.25)
    (delivery,) = world.play((1.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s) == ("timeout", 1.25)
    assert world.rows["transmitted_bit"].tolist() == pytest.approx([250_000])


@BOTH_AIRS
@pytest.mark.parametrize("rate_bps", [1e6, 3e6, 7.3e6, 1.1e5])
def test_an_end_at_the_last_moment_is_in_time(cell, access, rate_bps):
    """A transfer that is through in the very nanosecond of its timeout has arrived."""
    size_bit = 123_457
    duration_ns = math.ceil(size_bit / rate_bps * 1e9)
    law = FixedRate(bit_rate_bps=rate_bps)

    assert cell(access, law, timeout_s=duration_ns / 1e9).play((0.0, 0, size_bit))[0].lost == ""
    assert cell(access, law, timeout_s=(duration_ns - 1) / 1e9).play((0.0, 0, size_bit))[0].lost == "timeout"


@BOTH_AIRS
def test_a_link_in_endless_outage_is_given_up(cell, access):
    """Ten thousand fading blocks without a bit: the timeout comes, at its instant, in a few events."""
    law = FixedRate(bit_rate_bps=1e6, threshold_db=12.5, on_outage="stall")
    world = cell(access, law, Rayleigh(coherence_s=0.01), timeout_s=100.0)
    (delivery,) = world.play((0.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s) == ("timeout", 100.0)
    assert world.rows["transmitted_bit"].tolist() == [0.0]


@BOTH_AIRS
def test_a_link_that_wakes_up_late_still_delivers(cell, access, gain_of):
    """No block is too far ahead to be seen: one good block in a thousand carries the bits in the end."""
    fading = Rayleigh(coherence_s=0.001)
    law = FixedRate(bit_rate_bps=1e6, threshold_db=9.0, on_outage="stall")
    good = [block for block in range(40_000) if gain_of(fading, 0, block) >= 10**0.9]

    (delivery,) = cell(access, law, fading, snr=[1.0]).play((0.0, 0, 4500))

    assert good[4] > 2048
    assert delivery.lost == ""
    assert delivery.ended_s == pytest.approx(good[4] * 0.001 + 0.0005, abs=1e-9)


# ---- random loss -----------------------------------------------------------------------------------------------------


# ---- availability ----------------------------------------------------------------------------------------------------


@BOTH_AIRS
def test_a_device_that_leaves_loses_its_transfer(cell, access):
    """At the very instant, with the bits and the energy so far, and the ledger says so."""
    world = cell(access, availability=Windows(devices={0: ((0.0, 0.3),)}))
    (delivery,) = world.play((0.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s, delivery.payload) == ("left", 0.3, None)
    row = world.rows.iloc[0]
    assert row["loss_reason"] == "left"
    assert row["transmitted_bit"] == pytest.approx(300_000)
    assert row["energy_j"] == pytest.approx(0.06)
    assert (row["delivered_bit"], row["lost_bit"]) == (0, MBIT)


@BOTH_AIRS
def test_whoever_is_through_before_leaving_has_sent(cell, access):
    """The end of the window in the very instant of the end takes nothing away."""
    (delivery,) = cell(access, availability=Windows(devices={0: ((0.0, 1.0),)})).play((0.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s) == ("", 1.0)


def test_a_device_that_is_away_misses_its_turn(cell):
    """Its turn comes while it is away: lost at that instant, nothing on the air, and the next one goes on."""
    world = cell(availability=Windows(devices={1: ((0.0, 0.5),)}))
    _, missed, after = world.play((0.0, 0, MBIT), (0.1, 1, MBIT), (0.2, 2, MBIT))

    assert (missed.lost, missed.ended_s) == ("away", 1.0)
    assert math.isnan(missed.started_s)
    assert (after.started_s, after.ended_s) == (1.0, 2.0)
    row = world.rows.set_index("sender").loc[1]
    assert np.isnan(row["started_s"])
    assert (row["transmitted_bit"], row["energy_j"], row["lost_bit"]) == (0.0, 0.0, MBIT)


def test_a_device_that_has_returned_sends_again(cell):
    """Windows of the same device: away in between, there before and after."""
    world = cell(availability=Windows(devices={0: ((0.0, 1.0), (2.0, 9.0))}))
    deliveries = world.play((0.0, 0, MBIT // 2), (1.5, 0, MBIT // 2), (2.0, 0, MBIT // 2))

    assert [delivery.lost for delivery in deliveries] == ["", "away", ""]


def test_others_speed_up_when_a_device_leaves(cell):
    """Two share a band; one leaves after half a second, and the other has the whole band from then on."""
    snr = 10.0
    shared_bps, alone_bps = 0.5e6 * math.log2(1 + 2 * snr), 1e6 * math.log2(1 + snr)
    world = cell(Ofdma(), CAPACITY, snr=[snr, snr], availability=Windows(devices={0: ((0.0, 0.5),)}))
    left, stayed = world.play((0.0, 0, 9 * MBIT), (0.0, 1, 4 * MBIT))

    assert (left.lost, left.ended_s) == ("left", 0.5)
    assert stayed.ended_s == pytest.approx(0.5 + (4 * MBIT - 0.5 * shared_bps) / alone_bps, abs=2e-9)


# ---- cancelling ------------------------------------------------------------------------------------------------------


def cancel_at(world, transfer, at_s, *reasons, priority=COLLECT):
    """Cancel a transfer at an instant, once per reason."""

    def cancel_all(_event):
        for reason in reasons:
            transfer.cancel(gone(reason))

    world.clock.call_at(round(at_s * NS_PER_S), cancel_all, priority)


@BOTH_AIRS
def test_cancelling_on_the_air_stops_it_there(cell, access):
    """The books hold the bits and the energy up to that instant; the next one starts then; the event never comes."""
    world = cell(access)
    first = world.medium.send(0, SERVER, Message("payload", MBIT, 0))
    cancel_at(world, first, 0.4, "deadline")
    (second,) = world.play((0.1, 1, MBIT))

    assert not first.triggered
    assert second.ended_s == (1.4 if access.capacity else 1.1)
    row = world.rows.set_index("sender").loc[0]
    assert (row["loss_reason"], row["ended_s"]) == ("deadline", 0.4)
    assert row["transmitted_bit"] == pytest.approx(400_000)
    assert row["energy_j"] == pytest.approx(0.08)


def test_cancelling_in_the_queue_leaves_no_airtime(cell):
    """A transfer that never had its turn is accounted for without bits or energy, and is skipped."""
    world = cell()
    world.medium.send(0, SERVER, Message("payload", MBIT, 0))
    waiting = world.medium.send(1, SERVER, Message("payload", MBIT, 0))
    cancel_at(world, waiting, 0.4, "deadline", "deadline")
    (third,) = world.play((0.2, 2, MBIT))

    assert third.started_s == 1.0
    row = world.rows.set_index("sender").loc[1]
    assert (row["loss_reason"], row["ended_s"], row["transmitted_bit"]) == ("deadline", 0.4, 0.0)
    assert np.isnan(row["started_s"])


@BOTH_AIRS
def test_cancelling_in_the_instant_of_the_request(cell, access):
    """Asked for and given up at once: one row, no airtime, and the channel is free."""
    world = cell(access)
    world.medium.send(0, SERVER, Message("payload", MBIT, 0)).cancel(gone("deadline"))
    (other,) = world.play((0.0, 1, MBIT))

    assert other.started_s == 0.0
    assert world.rows.set_index("sender").loc[0, "loss_reason"] == "deadline"
    assert len(world.rows) == 2


@BOTH_AIRS
def test_cancelling_twice_is_cancelling_once(cell, access):
    """The first reason counts, and there is one row."""
    world = cell(access)
    transfer = world.medium.send(0, SERVER, Message("payload", MBIT, 0))
    cancel_at(world, transfer, 0.5, "deadline", "end")
    world.clock.run()
    world.close()

    assert world.rows["loss_reason"].tolist() == ["deadline"]


@BOTH_AIRS
def test_cancelling_after_the_end_changes_nothing(cell, access):
    """A transfer that has arrived stays arrived."""
    world = cell(access)
    transfer = world.medium.send(0, SERVER, Message("payload", MBIT, 0))
    cancel_at(world, transfer, 1.0, "deadline")
    world.clock.run()
    world.close()

    assert transfer.value.lost == ""
    assert world.rows["loss_reason"].tolist() == [""]


def test_cancelling_one_in_the_very_instant_of_its_end_moves_nobody_else(cell):
    """Before the instant settles one of three is taken off, just when it would have ended: the others go on."""
    requests = [(0.0, 1, 2 * MBIT), (0.0, 2, 3 * MBIT)]
    world = cell(Ofdma())
    first = world.medium.send(0, SERVER, Message("payload", MBIT, 0))
    cancel_at(world, first, 1.0, "deadline", priority=SETTLE - 1)
    deliveries = world.play(*requests)

    assert [(delivery.ended_s, delivery.lost) for delivery in deliveries] == [(2.0, ""), (3.0, "")]


@BOTH_AIRS
def test_closing_accounts_for_everything(cell, access):
    """At the end of the run what is on the air, waiting, or just asked for is lost for the reason `end`."""
    world = cell(access)
    for device in range(3):
        world.medium.send(device, SERVER, Message("payload", MBIT, 0))
    world.clock.run(until=NS_PER_S // 2)
    world.medium.send(3, SERVER, Message("payload", MBIT, 0))
    world.close()
    world.close()

    assert world.rows["loss_reason"].tolist() == ["end"] * 4
    assert world.rows["lost_bit"].sum() == 4 * MBIT == world.ledger.offered_bit[0]
    assert world.rows["transmitted_bit"].sum() == pytest.approx((1 if access.capacity else 3) * MBIT / 2)

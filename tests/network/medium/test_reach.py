"""Reach, loss, queues and parts of power."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.kernel.clock import COLLECT, NS_PER_S
from fednet_emu.network.access.contention import FullReuse, Noma, SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.transfer import Delivery, Grant, Message
from fednet_emu.network.faults import Faults, NoLoss, RandomLoss
from fednet_emu.radio.fading import FadingByLineOfSight, Nakagami, Rayleigh, Rician
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import small_federation
from tests.network.media import CAPACITY, MBIT
from tests.quick import crossed

LEAST = Shannon().min_sinr
PEAK = -math.log(1e-8)
"""The gain that one Rayleigh block in 10^8 exceeds."""
EVERY_AIR = pytest.mark.parametrize(
    "access",
    [
        Tdma(),
        Ofdma(),
        Ofdma(subchannels=1),
        Ofdma(scheduler="proportional-fair"),
        FullReuse(),
        Noma(),
        SlottedAloha(slot_s=0.001, probability=1.0, capture_db=-300.0),
    ],
    ids=["tdma", "ofdma", "subchannels", "fair", "full-reuse", "noma", "aloha"],
)


@EVERY_AIR
def test_a_fading_link_is_beyond_reach_below_one_block_in_a_hundred_million(cell, access):
    """1 % below the least SINR over the peak of the fading: lost in a second, without airtime, energy or a timeout."""
    world = cell(access, Shannon(), Rayleigh(), snr=[LEAST / PEAK * 0.99])
    (delivery,) = world.play((1.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s, delivery.payload) == ("unreachable", 2.0, None)
    (row,) = world.rows.to_dict("records")
    assert (row["started_s"], row["ended_s"], row["transmitted_bit"], row["energy_j"]) == (1.0, 1.0, 0.0, 0.0)


@EVERY_AIR
def test_a_link_that_may_carry_something_has_its_timeout(cell, access):
    """1 % above, the sender waits for the good block until its timeout."""
    world = cell(access, Shannon(), Rayleigh(), snr=[LEAST / PEAK * 1.01], timeout_s=30.0)

    (delivery,) = world.play((1.0, 0, MBIT))
    assert (delivery.lost, delivery.ended_s) == ("timeout", 31.0)


@pytest.mark.parametrize(
    ("fading", "los", "chance"),
    [
        (Rayleigh(), False, 1e-8),
        (Nakagami(m=4), False, 1e-8),
        (Rician(k_db=9), False, 1e-8),
        (FadingByLineOfSight(k_db=9), True, 1e-8),
        (FadingByLineOfSight(k_db=9), False, 1e-8),
    ],
)
def test_the_peak_is_exceeded_by_one_block_in_a_hundred_million(fading, los, chance):
    """By the distribution function of each law, and by that of two antennas."""
    for law in (fading, fading.combined(2)):
        assert 1.0 - float(law.cdf(law.peak(los), los)) == pytest.approx(chance, rel=1e-3)


@EVERY_AIR
def test_nobody_waits_for_a_device_out_of_reach(cell, access):
    """The other sender is on the air as if the first one were not there."""
    law, fading = Shannon(), Rayleigh()
    both = cell(access, law, fading, snr=[1e-9, 50.0]).play((0.0, 0, MBIT), (0.0, 1, MBIT))
    alone = cell(access, law, fading, snr=[1e-9, 50.0]).play((0.0, 1, MBIT))

    assert both[1] == alone[0]
    assert (both[0].lost, both[0].ended_s) == ("unreachable", 1.0)


@pytest.mark.parametrize("access", [Tdma(), Ofdma()], ids=["alone", "full-reuse"])
def test_members_of_a_broadcast_do_not_wait_for_one_out_of_reach(cell, access):
    """Twenty receivers, three of them out of reach: the others have it when they would without those."""
    snr = [1e-9 if device % 7 == 3 else 50.0 + device for device in range(20)]
    far = [device for device in range(20) if snr[device] < 1]
    world = cell(access, Shannon(), Rayleigh(), snr=snr, multicast=True)
    all_of_them = world.play(*((0.0, device, MBIT) for device in range(20)))
    near = [device for device in range(20) if device not in far]
    without = cell(access, Shannon(), Rayleigh(), snr=snr, multicast=True).play(*((0.0, d, MBIT) for d in near))

    assert [all_of_them[device] for device in near] == without
    assert {(all_of_them[device].lost, all_of_them[device].ended_s) for device in far} == {("unreachable", 1.0)}
    assert world.rows["receivers"].tolist() == [20]


def test_a_share_of_the_band_may_reach_further_than_all_of_it(cell):
    """Power in half the band doubles the SINR: side by side two carry what one alone cannot; that is then lost."""
    law = Shannon(gap_db=0, min_efficiency_bps_hz=1.0, max_repetitions=1)
    weak, strong = cell(Ofdma(), law, snr=[0.75, 3.0]).play((0.0, 0, 10 * MBIT), (0.0, 1, MBIT))

    half_bps = 0.5e6 * math.log2(1 + 2 * 3.0)
    assert strong.ended_s == pytest.approx(MBIT / half_bps, abs=2e-9)
    assert (weak.lost, weak.ended_s) == ("unreachable", strong.ended_s if strong.ended_s > 1 else 1.0)
    (alone,) = cell(Ofdma(), law, snr=[0.75]).play((0.0, 0, MBIT))
    assert (alone.lost, alone.ended_s) == ("unreachable", 1.0)


def test_a_rate_that_loses_in_outage_sends_at_any_sinr(cell):
    """A fixed rate without adaptation is sent, and lost: its airtime is spent, as before."""
    world = cell(Tdma(), FixedRate(bit_rate_bps=1e6, threshold_db=40.0), Rayleigh(), snr=[1e-6])
    (delivery,) = world.play((0.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s) == ("outage", 1.0)


def test_the_sender_knows_no_later_than_its_timeout(cell):
    """A timeout below a second is the time after which it gives up."""
    (delivery,) = cell(Tdma(), Shannon(), snr=[1e-9], timeout_s=0.2).play((0.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s) == ("unreachable", 0.2)


def test_an_unreachable_transfer_that_is_cancelled_within_the_second_never_triggers(cell):
    """Cancelled by its sender, or by the end of the run: one row with the reason "unreachable", and no event."""
    world = cell(Tdma(), Shannon(), snr=[1e-9])
    first, second = (world.medium.send(0, SERVER, Message("x", MBIT, 0)) for _ in range(2))
    given_up = Delivery(0, 0, None, 0, 0.0, math.nan, 0.0, "deadline")
    world.clock.call_at(NS_PER_S // 2, lambda _event: first.cancel(given_up), COLLECT)
    world.clock.run(until=3 * NS_PER_S // 4)
    world.close()
    world.clock.run(until=2 * NS_PER_S)

    assert not first.triggered
    assert not second.triggered
    assert world.rows["loss_reason"].tolist() == ["unreachable"] * 2


# ---- timeouts that follow from the link ------------------------------------------------------------------------------


def open_ended(cell, access, snr, **more):
    return cell(access, Shannon(), snr=snr, timeout_s=None, **more)


def test_a_link_without_fading_has_twenty_times_its_duration(cell):
    """In whole seconds, at its SNR rounded down to 1 dB; small messages have a minute, large ones an hour."""
    band = open_ended(cell, Tdma(), [1.0]).medium
    patience = band.patience
    snr_db = 3.0
    rate_bps = Shannon().rate_bps(10 ** (snr_db / 10), 1e6)

    limit_ns = math.ceil(20 * 5 * MBIT / rate_bps) * NS_PER_S
    assert patience.limit_ns(5 * MBIT, 10 ** (snr_db / 10) * 1.001, los=False) == limit_ns
    assert patience.limit_ns(1000, 2.0, los=False) == 60 * NS_PER_S
    assert patience.limit_ns(2000 * MBIT, 2.0, los=False) == 3600 * NS_PER_S


def test_what_takes_more_than_an_hour_is_not_tried(cell):
    """At 0 dB 1 Mbit takes 1.4 s: 7,000 Mbit are more than two hours and lost in a second; 1,000 Mbit are sent."""
    world = open_ended(cell, Tdma(), [1.0])
    huge, large = world.play((0.0, 0, 7000 * MBIT), (0.0, 0, 1000 * MBIT))

    assert (huge.lost, huge.ended_s) == ("unreachable", 1.0)
    assert (large.lost, large.started_s) == ("", 0.0)
    patient = cell(Tdma(), Shannon(), snr=[1.0], timeout_s=1e6)
    assert patient.play((0.0, 0, 7000 * MBIT))[0].lost == ""


def test_waiting_for_a_turn_does_not_count(cell):
    """A hundred transfers of 3.3 s in turns have 67 s each: the last waits for 166 s and has all its time left."""
    world = open_ended(cell, Tdma(), [3.0] * 8)
    deliveries = world.play(*((0.0, number % 8, 5 * MBIT) for number in range(100)))

    assert {delivery.lost for delivery in deliveries} == {""}
    assert deliveries[99].latency_s > 2 * 67


@pytest.mark.parametrize(("cells", "limit_s"), [(1, 60), (2, 3600)])
def test_other_cells_disturb_even_those_who_take_turns(cell, cells, limit_s):
    """In one cell 1 kbit has a minute; where another cell sends in the same band, nobody knows how long it takes."""
    patience = open_ended(cell, Tdma(), [2.0], cells=cells).medium.patience

    assert patience.limit_ns(1000, 2.0, los=False) == limit_s * NS_PER_S


@pytest.mark.parametrize(("snr_db", "size_bit"), crossed([-15.0, -12.0, -9.0, -3.0, 10.0], [100, 100_000]))
def test_the_timeout_is_generous(cell, snr_db, size_bit):
    """Where fading leaves one block in some or thousands, two hundred transfers all arrive in time."""
    world = cell(Tdma(), Shannon(), Rayleigh(coherence_s=0.01), snr=[10 ** (snr_db / 10)] * 8, timeout_s=None)
    deliveries = world.play(*((0.0, number % 8, size_bit) for number in range(200)))

    assert {delivery.lost for delivery in deliveries} == {""}


@pytest.mark.parametrize(("probability", "error", "lost"), [(0.0, 0.3, 0.3), (0.5, 0.5, 0.75), (0.4, 0.0, 0.4)])
def test_the_error_of_a_plan_and_random_loss_are_independent(probability, error, lost):
    """Of 4,000 delivered uploads of a link those are lost that either takes: 1 - (1 - p)(1 - e), to within 3 %."""
    loss = RandomLoss(probability=probability) if probability else NoLoss()
    faults = Faults(Presence(Always(), 0, 2), loss, 7)
    upload = SimpleNamespace(sender=0, receiver=-1, grant=Grant(1.0, 1.0, 1.0, 0.0, 1.0, error))
    fates = [faults.fate(upload) for _ in range(4000)]

    assert set(fates) == {"", "erased"}
    assert fates.count("erased") / len(fates) == pytest.approx(lost, abs=0.03)


def ends_s(world, *requests):
    """When uplinks of (device, bits, part of its power), all asked for at 0, have ended."""
    sent = [
        world.medium.send(device, SERVER, Message("x", bits, 0), power_part=part) for device, bits, part in requests
    ]

    def everything():
        yield world.clock.all_of(sent)

    world.clock.run_process(everything())
    world.close()
    return [transfer.value.ended_s for transfer in sent]


def test_together_parts_count_on_both_sides(cell):
    """SNRs 10 and 10, the second at a tenth: 10 / (1 + 1) and 1 / (1 + 10), for as long as both are on the air."""
    world = cell(FullReuse(), CAPACITY, snr=[10.0, 10.0])
    first_bps, second_bps = 1e6 * math.log2(6), 1e6 * math.log2(12 / 11)
    first_s = 10**6 / first_bps
    second_s = first_s + (10**6 - second_bps * first_s) / 1e6  # then alone, at an SNR of 1

    assert ends_s(world, (0, 10**6, 1.0), (1, 10**6, 0.1)) == pytest.approx([first_s, second_s])


def test_parts_decide_who_is_decoded_first(cell):
    """With cancellation 3 and 12 at a twelfth are 3 and 1: log2(1 + 3 / 2) and log2(1 + 1)."""
    world = cell(Noma(), CAPACITY, snr=[3.0, 12.0])

    assert ends_s(world, (0, int(1e6 * math.log2(2.5)), 1.0), (1, 10**6, 1 / 12)) == pytest.approx([1.0, 1.0], rel=1e-6)


def test_a_sender_on_the_air_keeps_its_power(cell):
    """A second burst of a sender joins the first one at its power: each has half of a band at an SNR of 3."""
    world = cell(FullReuse(), CAPACITY, snr=[12.0, 12.0])

    assert ends_s(world, (0, 10**6, 0.25), (0, 10**6, 1.0)) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("access", ["tdma", "full-reuse"])
def test_energy_is_a_part(access):
    """The amplifier draws its part, circuits draw all they need: 0.2 W / 0.5 x 0.25 + 0.1 W for 1 s."""
    fed = small_federation(
        f"network.uplink.access={access}",
        "channel.device.tx_power_dbm=23.010299956639813",
        "channel.device.amplifier_efficiency=0.5",
        "channel.device.circuit_w=0.1",
    )

    def run(fed):
        yield fed.uplink(fed.device(0), "x", 10**6, power_part=0.25)

    class Once:
        def run(self, fed):
            fed.initial_model()
            return run(fed)

    fed.run(Once())

    assert fed.ledger.transfers.column("energy_j").tolist() == pytest.approx([0.2])

"""Claims about turns in slots: stories at exact times, and a loop over single slots."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.links.links import CellLinks
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.settings import Downlink
from fednet_emu.radio.fading import NoFading, Rayleigh
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.rates.narrowing import narrowed
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER
from tests.network.media import CAPACITY, MBIT, HandMadeLinks, medium_of

SLOT_S = 5e-4
PROMPT = NrGrants(sr_period_s=0.0025, bler=0)
"""DDDSU at 30 kHz with an occasion in every uplink slot, and blocks that never fail."""


def delays(access, *, down=False):
    """The waits and tails of a scheme, `before` and `after`."""
    use = access.use(Band.of(1e6, FixedRate(bit_rate_bps=1e6), NoFading(), 5, down=down), HandMadeLinks([1.0]), 1, 1)
    return {"before": use.before, "after": use.after}


# ---- shares ----------------------------------------------------------------------------------------------------------


def test_devices_have_equal_shares_of_the_uplink_slots(cell):
    """A fifth of 1 Mbit/s alone, a tenth for each of two: 0.5 Mbit of each after 5 s, the rest after 7.5 s."""
    deliveries = cell(PROMPT).play((0.0, 0, MBIT), (0.0, 1, MBIT // 2))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([7.5, 5.0])


def test_a_base_station_has_the_downlink_slots():
    """Three slots in five, for two copies in turn; a special slot carries nothing."""
    its = medium_of(PROMPT, FixedRate(bit_rate_bps=1e6), HandMadeLinks([1.0, 1.0]), 2, way="downlink", down=True)
    sent = [its.send(SERVER, device, Message(None, 300_000, 0)) for device in (0, 1)]
    its.clock.run()

    assert [transfer.value.ended_s for transfer in sent] == pytest.approx([1.0, 1.0])


def test_a_sender_has_the_whole_band_at_its_power_in_its_slots(cell):
    """SNRs 15 and 3 on the whole band: 4 and 2 bit/s/Hz in a tenth of the slots each, whoever sends in the others."""
    deliveries = cell(PROMPT, CAPACITY, snr=[15.0, 3.0]).play((0.0, 0, 400_000), (0.0, 1, 200_000))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([1.0, 1.0])


def test_bursts_of_one_station_have_its_whole_power_in_turn():
    """At an SNR of 15 two copies at once each get 4 bit/s/Hz in three tenths of the slots."""
    its = medium_of(PROMPT, CAPACITY, HandMadeLinks([15.0, 15.0]), 2, way="downlink", down=True)
    sent = [its.send(SERVER, device, Message(None, 1_200_000, 0)) for device in (0, 1)]
    its.clock.run()

    assert [transfer.value.ended_s for transfer in sent] == pytest.approx([1.0, 1.0])


def looped_ends_s(sizes_bit, bps, pattern):
    """Ends of uploads that all begin at 0, slot by slot: the next of those with bits left has the uplink slot."""
    left, ends_s, turn, slot = list(sizes_bit), [math.inf] * len(sizes_bit), 0, 0
    while any(bit > 0 for bit in left):
        if pattern[slot % len(pattern)] == "U":
            while left[turn % len(left)] <= 0:
                turn += 1
            device, turn = turn % len(left), turn + 1
            left[device] -= bps[device] * SLOT_S
            if left[device] <= 0:
                ends_s[device] = (slot + 1) * SLOT_S
        slot += 1
    return ends_s


@pytest.mark.parametrize("pattern", ["DDDSU", "DDDDDDDSUU"])
def test_a_fluid_stands_for_slots(cell, pattern):
    """Ten devices for about 10 s: each end within a slot per device and period of that of a loop over the slots."""
    snr = [10.0 + 3.0 * device for device in range(10)]
    sizes_bit = [200_000 + 70_000 * (device * 7 % 10) for device in range(10)]
    access = NrGrants(pattern=pattern, bler=0)

    ends_s = [d.ended_s for d in cell(access, CAPACITY, snr=snr).play(*((0.0, n, b) for n, b in enumerate(sizes_bit)))]

    expected_s = looped_ends_s(sizes_bit, [1e6 * math.log2(1 + one) for one in snr], pattern)
    assert 5 < max(expected_s) < 15
    assert ends_s == pytest.approx(expected_s, abs=10 * len(pattern) * SLOT_S)


def test_energy_counts_the_slots_of_a_sender_alone(cell):
    """5 Mbit at 1 Mbit/s take 25 s alone, of which 5 s at 2 W; two at once take as much each."""
    alone = cell(PROMPT, drawn_w=2.0)
    alone.play((0.0, 0, 5 * MBIT))
    both = cell(PROMPT, drawn_w=2.0)
    both.play((0.0, 0, 5 * MBIT), (0.0, 1, 5 * MBIT))

    assert alone.rows["energy_j"].tolist() == pytest.approx([10.0])
    assert both.rows["energy_j"].tolist() == pytest.approx([10.0, 10.0])


def test_the_best_link_of_each_block_has_its_slots(cell):
    """Proportional fair: a fifth of the rates, and so five times the time, of blocks that go to the best link."""
    fading, requests = Rayleigh(coherence_s=0.01), [(0.0, device, 40_000) for device in range(4)]
    snr = [2.0, 5.0, 9.0, 20.0]
    scheme = NrGrants(scheduler="proportional-fair", bler=0)

    its = cell(scheme, CAPACITY, fading, snr=snr, drawn_w=2.0)
    ends_s = [delivery.ended_s for delivery in its.play(*requests)]

    slow = cell(Ofdma(scheduler="proportional-fair"), Fifth(), fading, snr=snr).play(*requests)
    assert ends_s == pytest.approx([d.ended_s for d in slow], rel=1e-9)
    assert its.rows["energy_j"].sum() == pytest.approx(2.0 * max(ends_s) / 5)


class Fifth(Shannon):
    """A fifth of the capacity."""

    def rate_bps(self, sinr, bandwidth_hz):
        return CAPACITY.rate_bps(sinr, bandwidth_hz) / 5

    def rates_bps(self, sinr, bandwidth_hz):
        return CAPACITY.rates_bps(sinr, bandwidth_hz) / 5


def test_cells_hear_each_other_in_the_same_slots():
    """One device in each cell: SINRs 30 / (1 + 1) and 20 / (1 + 2) in a fifth of the time."""
    snr = np.array([[30.0, 1.0], [2.0, 20.0]])
    its = medium_of(PROMPT, CAPACITY, CellLinks(snr, [11, 12]), 2, cells=2, key=3)
    sizes_bit = [round(2e5 * math.log2(1 + sinr)) for sinr in (15.0, 20.0 / 3.0)]
    sent = [its.send(device, SERVER, Message(None, sizes_bit[device], 0)) for device in (0, 1)]
    its.clock.run()

    assert [transfer.value.ended_s for transfer in sent] == pytest.approx([1.0, 1.0], rel=1e-5)


def test_devices_of_another_cell_are_heard_in_turn():
    """Two of them at 1 and 0.5 are 0.75 in the mean while both have bits."""
    snr = np.array([[30.0, 1.0, 0.5], [2.0, 20.0, 20.0]])
    its = medium_of(PROMPT, CAPACITY, CellLinks(snr, [11, 12]), 3, cells=2, key=3)
    first = its.send(0, SERVER, Message(None, round(2e5 * math.log2(1 + 30.0 / 1.75)), 0))
    for device in (1, 2):
        its.send(device, SERVER, Message(None, 10 * MBIT, 0))
    its.clock.run(until=first)

    assert first.value.ended_s == pytest.approx(1.0, rel=1e-5)


def test_a_weak_device_has_its_few_blocks_in_its_slots(cell):
    """At -20 dB only part of 20 MHz carries anything; another device beside it takes half of the slots, no more."""
    law = narrowed(Shannon(), 180e3)
    ends_s = [
        max(d.ended_s for d in cell(PROMPT, law, snr=[0.01] * 8, bandwidth_hz=20e6).play(*requests))
        for requests in ([(0.0, 0, 10_000)], [(0.0, device, 10_000) for device in range(8)])
    ]

    assert Shannon().rate_bps(0.01, 20e6) == 0.0
    assert ends_s[1] == pytest.approx(8 * ends_s[0])


# ---- waits and tails -------------------------------------------------------------------------------------------------


def test_an_upload_waits_for_two_grants_and_ends_when_it_is_decoded(cell):
    """Asked for at 0: occasion 2 to 2.5 ms, report 7 to 7.5, bulk from 12 ms; 1 Mbit takes 5 s, decoding two slots."""
    its = cell(PROMPT, **delays(PROMPT))

    (delivery,) = its.play((0.0, 0, MBIT))

    assert delivery.started_s == 0.012
    assert delivery.ended_s == pytest.approx(5.013)
    row = its.rows.iloc[0]
    assert (row["grant_delay_s"], row["reception_delay_s"]) == (0.012, 0.001)


def test_a_download_waits_for_a_downlink_slot():
    """Asked for in a special slot, at 1.6 ms: the next period begins at 2.5 ms."""
    more = {"way": "downlink", "down": True, **delays(PROMPT, down=True)}
    its = medium_of(PROMPT, FixedRate(bit_rate_bps=1e6), HandMadeLinks([1.0]), 1, **more)
    its.clock.call_at(1_600_000, lambda _event: its.send(SERVER, 0, Message(None, 600_000, 0)))
    its.clock.run()

    (row,) = its.ledger.frame("transfers").to_dict("records")
    assert (row["requested_s"], row["started_s"]) == (0.0016, 0.0025)
    assert row["ended_s"] == pytest.approx(1.0025 + 0.001)


def test_waits_are_those_of_the_exact_enumeration():
    """Of 4000 devices at one instant, whose occasions are drawn: all between least and largest, the mean within 3 %."""
    access = NrGrants(sr_period_s=0.02)
    before = delays(access)["before"]
    waits_s = np.array(
        [before(SimpleNamespace(sender=device, receiver=SERVER), 1_234_567) / 1e9 for device in range(4000)]
    )

    assert waits_s.min() >= 0.0105 - SLOT_S
    assert waits_s.max() <= 0.0305 - SLOT_S
    assert waits_s.mean() == pytest.approx(0.0205 - SLOT_S, rel=0.03)
    assert len(set(waits_s.tolist())) == 8


@pytest.mark.parametrize(("down", "round_trip_s"), [(False, 0.005), (True, 0.0035)])
def test_a_failed_last_block_takes_more_round_trips(down, round_trip_s):
    """One transfer in ten has one, one in a hundred two: 5 ms each of an uplink, 3.5 ms of a downlink."""
    after = delays(NrGrants(), down=down)["after"]
    tails_s = np.array(
        [after(SimpleNamespace(sender=3, receiver=SERVER, requested_ns=1000 * n), 0) / 1e9 for n in range(20_000)]
    )

    repeats = np.round((tails_s - 0.001) / round_trip_s)
    assert tails_s == pytest.approx(0.001 + repeats * round_trip_s)
    shares = [(repeats >= count).mean() for count in (1, 2, 3)]
    assert shares == pytest.approx([0.1, 0.01, 0.001], rel=0.1, abs=5e-4)


@pytest.mark.parametrize("down", [False, True])
def test_last_blocks_of_different_devices_fail_independently(down):
    """Of 4000 transfers that are asked for in one instant half fail once, a quarter twice, an eighth three times."""
    access = NrGrants(bler=0.4999)
    after = delays(access, down=down)["after"]
    ends = [{"sender": SERVER, "receiver": n} if down else {"sender": n, "receiver": SERVER} for n in range(4000)]
    tails_ns = [after(SimpleNamespace(**each, requested_ns=0), 0) for each in ends]

    repeats, shares = np.unique(tails_ns, return_counts=True)

    assert len(repeats) == 4  # the fourth attempt is the last
    assert np.diff(repeats) == pytest.approx(np.diff(repeats)[0])
    assert shares / 4000 == pytest.approx([0.5, 0.25, 0.125, 0.125], abs=0.03)


# ---- rates and refusals ----------------------------------------------------------------------------------------------


def test_a_20_mhz_cell_has_its_published_rate(cell):
    """51 blocks at MCS 28 in two slots of ten: 16.39 Mbit/s, here of five devices together."""
    law = NrBlocks(resource_blocks=51)
    access = NrGrants(pattern="DDDDDDDSUU", bler=0)
    its = cell(access, law, snr=[1e6] * 5, bandwidth_hz=51 * 360e3)

    deliveries = its.play(*((0.0, device, 3_278_080) for device in range(5)))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([1.0] * 5, rel=1e-6)


def test_learning_runs_over_grants_in_both_directions():
    """Three rounds of the quickstart: every law holds, uploads wait 10 to 30 ms, downloads four slots at most."""
    grants = {"kind": "nr-grants", "pattern": "DDSUU"}
    run = fe.run(
        "quickstart",
        settings={"network.uplink.access": grants, "network.downlink.access": grants, "stop": {"rounds": 3}},
        timing_only=True,
    )

    rows = run.transfers
    up = rows[rows["direction"] == "uplink"]
    down = rows[rows["direction"] == "downlink"]
    assert len(up) >= 3
    assert down["grant_delay_s"].max() <= 4 * SLOT_S
    assert ((up["grant_delay_s"] >= 0.0099) & (up["grant_delay_s"] <= 0.0301)).all()
    assert (rows["reception_delay_s"] >= 0.001).all()
    assert Downlink(access=NrGrants()).access.kind == "nr-grants"

"""Rates of links on the air, plain and traced, and growable arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Always, Windows
from fednet_emu.kernel.clock import COLLECT
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.access.base import Access
from fednet_emu.network.access.contention import FullReuse, Noma, SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.plain import PlainAir, shared_air
from fednet_emu.network.air.roomy import Roomy
from fednet_emu.network.air.separate import at_recorded_rates
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.transfer import Grant, Message
from fednet_emu.network.faults import NoLoss, RandomLoss
from fednet_emu.network.links.links import CellLinks
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.transport import Session, Tcp
from fednet_emu.network.transport.transports import Connections
from fednet_emu.radio.fading import NoFading, Rayleigh, Rician
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.radio.receiver.combining import MaximumRatio
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import small_federation
from tests.network.beside import MS, Cancelling, Request, World, cancellings, general, instants, instants_of, requests
from tests.network.media import CAPACITY, HandMadeLinks, PlainRadios, medium_of
from tests.quick import examples

SLOT_S = 0.01
ALOHA = SlottedAloha(slot_s=SLOT_S, probability=0.5, capture_db=6.0)
LAW = FixedRate(bit_rate_bps=1e6, threshold_db=3.0)
KEY = 12


def ends_s(snr, size_bit):
    """When and how uplinks of all devices at SNRs [cells, devices] end that start at 0."""
    links = CellLinks(snr, [11, 12][: len(snr)])
    medium = medium_of(ALOHA, LAW, links, snr.shape[1], key=KEY, cells=len(snr))
    sent = [medium.send(device, SERVER, Message(None, size_bit)) for device in range(snr.shape[1])]
    medium.clock.run()
    return [(one.value.ended_s, one.value.lost) for one in sent]


def sends(device, slot):
    return uniform(mix(KEY, device), slot) < 0.5


@pytest.mark.parametrize("cells", [1, 2])
def test_a_slot_without_a_capture_is_no_outage(cells):
    """Two at equal SNRs collide in one cell (0 dB, less than 6 and than 3) and not in two that do not hear each other.

    Each needs three slots of its own; below 3 dB a slot that carries bits would lose them, but silence and collisions
    carry none.
    """
    snr = np.full((1, 2), 100.0) if cells == 1 else np.array([[100.0, 1e-9], [1e-9, 100.0]])
    left, expected, slot, both, silent = [3, 3], [0.0, 0.0], 0, 0, 0
    while any(left):
        on = [device for device in (0, 1) if left[device] and sends(device, slot)]
        for device in on if cells == 2 or len(on) == 1 else []:
            left[device] -= 1
            expected[device] = (slot + 1) * SLOT_S
        slot, both, silent = slot + 1, both + (len(on) == 2), silent + (not on)

    assert ends_s(snr, 30_000) == [(pytest.approx(end_s), "") for end_s in expected]
    assert min(both, silent) > 0


def test_a_planned_part_may_be_too_noisy_for_a_strong_link():
    """20 dB would do, but the noise that was planned with is 60 dB above that of the part: it is known in a second."""
    medium = medium_of(Planned(), Shannon(), CellLinks(np.array([[100.0]]), [11]), 1)
    sent = medium.send(0, SERVER, Message(None, 1000, grant=Grant(1.0, 1.0, 1.0, 1.0, noise=1e6, error=0.0)))
    medium.clock.run()

    assert (sent.value.lost, sent.value.ended_s) == ("unreachable", 1.0)


RECORD = np.dtype([("number", np.int64), ("flag", np.bool_), ("part", np.float64)], align=True)
STEPS = st.lists(st.one_of(st.integers(0, 40), st.sets(st.integers(0, 60), min_size=1, max_size=4), st.none()))


@pytest.mark.parametrize("empty", [np.empty((1, 0), RECORD), np.empty((2, 0)), np.empty((2, 0, 3), np.int64)])
@given(steps=STEPS)
def test_entries_come_at_the_end_and_go_from_anywhere(empty, steps):
    """Against a list: a number of new entries, the places of some that go, or None for all; across several growths."""
    roomy, expected, given_out = Roomy(empty), [], 0
    for step in steps:
        if step is None:
            roomy.clear()
            expected = []
        elif isinstance(step, int):
            numbers = list(range(given_out, given_out + step))
            roomy.grow(step)[...] = filled(empty, numbers)
            expected, given_out = expected + numbers, given_out + step
        else:
            gone = sorted(place for place in step if place < len(expected))
            if gone:
                roomy.drop(np.array(gone))
                expected = [number for place, number in enumerate(expected) if place not in gone]
        assert roomy.now.shape[1] == len(expected)
        assert (roomy.now == filled(empty, expected)).all()


def filled(empty, numbers):
    """Entries made of these numbers, the same in each row."""
    entries = np.empty((len(empty), len(numbers), *empty.shape[2:]), empty.dtype)
    for place, number in enumerate(numbers):
        entries[:, place] = (number, number % 2, number / 3) if empty.dtype.names else number
    return entries


def test_an_entry_that_stays_is_not_copied():
    """A growth within the room and a removal at the end leave the memory where it is."""
    roomy = Roomy(np.empty((1, 0)))
    roomy.grow(3)[...] = [1.0, 2.0, 3.0]
    before = roomy.now
    roomy.grow(1)[...] = 4.0
    roomy.drop(np.array([3]))

    assert np.shares_memory(before, roomy.now)
    assert roomy.now.tolist() == [[1.0, 2.0, 3.0]]


STEPS_TRACED = "time_s,rate_bps\n0,1000000\n1,500000\n2,2000000\n3,2000000\n"


@pytest.fixture
def trace(tmp_path):
    """A trace of 1 Mbit/s, then 0.5 Mbit/s, then 2 Mbit/s, a second each."""
    path = tmp_path / "steps.csv"
    path.write_text(STEPS_TRACED)
    return f"network.uplink.trace={{kind: csv, path: {path}, start: beginning}}"


def upload(fed, device, size_bit):
    return (yield fed.uplink(fed.device(device), None, size_bit))


def play(fed, *processes):
    """Run processes side by side, and return their results."""

    def everything():
        return (yield fed.gather(processes))

    results = fed.clock.run_process(everything())
    fed.close()
    return results


def test_bits_follow_the_recording(trace):
    """1.75 Mbit need the whole first and second, and 0.125 s of the third second."""
    fed = small_federation(trace)
    (delivery,) = play(fed, upload(fed, 0, 1_750_000))

    assert delivery.ended_s == pytest.approx(2.125, abs=2e-9)
    assert fed.ledger.frame("transfers")["transmitted_bit"].tolist() == [1_750_000]


def test_devices_do_not_share_recorded_links(trace):
    """Two devices that send together take as long as one."""
    fed = small_federation(trace)
    deliveries = play(fed, upload(fed, 0, 1_000_000), upload(fed, 1, 1_000_000))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([1.0, 1.0], abs=2e-9)


def test_a_timeout_cuts_what_is_under_way(trace):
    """After 1.5 s 1.25 Mbit have flowed; the ledger says so, and the reason."""
    fed = small_federation(trace, "network.uplink.timeout_s=1.5")
    (delivery,) = play(fed, upload(fed, 0, 5_000_000))
    row = fed.ledger.frame("transfers").iloc[0]

    assert (delivery.lost, delivery.ended_s) == ("timeout", 1.5)
    assert row["transmitted_bit"] == pytest.approx(1_250_000)


class Hours:
    """Recorded rates with which every bit takes device k as many ns as k + 1."""

    def needed_ns(self, device, size_bit, start_ns):
        return (device + 1) * size_bit


@pytest.mark.parametrize("ends", [(2, SERVER), (SERVER, 2)])
def test_the_recording_is_that_of_the_end_that_is_a_device(ends):
    """Device 2 sends or receives 100 bits from 1000 ns on, and needs 300 ns."""
    leg = SimpleNamespace(sender=ends[0], receiver=ends[1], size_bit=100, until_ns=5000, lost="")

    assert at_recorded_rates(Hours())([leg], 1000, 1001) == 1300
    assert (leg.transmitted_bit, leg.lost) == (100.0, "")


SCHEMES = (
    Ofdma(), Ofdma(subchannels=2), FullReuse(), FullReuse(max_senders=3, sinr_threshold_db=-15.0), Noma(),
    Noma(sinr_threshold_db=-10.0, residual=0.1), NrGrants(),
)  # fmt: skip
LONG_NS = 5 * 10**9
"""By then nearly all that can end has ended; what cannot, far out of reach, has blocks of fading up to the end."""


class Watched(World):
    """A world that also logs what is on the air, and until when it is planned."""

    def watch(self, at_ns: int) -> None:
        self.clock.call_at(at_ns, lambda _: self.log.append(self.planned()), COLLECT)

    def planned(self) -> Any:
        """Powers and rates of all bursts, and the next time at which the medium looks at them."""
        air = self.medium.air
        powers = [(first.number, [*from_ns], [*shares]) for first, from_ns, shares in air.powers()]
        rates = [(burst[0].number, [*from_ns], bps.tolist()) for burst, from_ns, bps in air.rates()]
        return self.clock.now, self.medium._due_ns, powers, rates


def outcomes(
    snr: Sequence[float],
    asked: Sequence[Request],
    cancelled: Sequence[Cancelling],
    until_ns: int = LONG_NS,
    watched: Sequence[int] = (),
    *,
    access: Access,
    tcp: bool = False,
    **options: Any,
) -> list[Any]:
    """What comes of the same play on both airs."""
    books = []
    for scheme in (general(access), access):
        if tcp:
            options["connections"] = Connections(Tcp(rtt_s=0.004, initial_window=1), Session())
        world = Watched(snr, access=scheme, **options)
        for at_ns in watched:
            world.watch(at_ns)
        books.append(world.play(asked, cancelled, until_ns))
    return books


@examples(100)
@given(
    snr=st.lists(st.sampled_from([1e-4, 0.05, 1.0, 1.0, 3.0, 30.0, 1e4]), min_size=4, max_size=4),
    asked=st.lists(requests, min_size=1, max_size=14),
    cancelled=st.lists(cancellings, max_size=5),
    until_ns=instants | st.just(LONG_NS),
    watched=st.lists(instants, max_size=4),
    access=st.sampled_from(SCHEMES),
    law=st.sampled_from([Shannon(), CAPACITY, FixedRate(bit_rate_bps=3e6)]),
    fading=st.sampled_from([NoFading(), Rayleigh(coherence_s=0.0001), Rayleigh(coherence_s=0.0435), Rician(k_db=3.0)]),
    timeout_s=st.sampled_from([None, 0.004, 0.05, 3600.0]),
    loss=st.sampled_from([NoLoss(), RandomLoss(probability=0.3)]),
    availability=st.sampled_from([Always(), Always(), Windows(devices={0: [[0.005, 0.02]], 2: [[0.0, 0.003]]})]),
    radios=st.sampled_from([None, PlainRadios(full_w=0.2, tx_j_per_bit=1e-7, rx_j_per_bit=2e-7)]),
    tcp=st.booleans(),
)
def test_whatever_is_asked_and_cancelled_both_airs_write_the_same_books(
    snr, asked, cancelled, until_ns, watched, access, law, fading, timeout_s, loss, availability, radios, tcp
):
    """Equal rows in equal order, deliveries, energies, bits, plans at any instant, and transfers nobody heard of."""
    general_books, plain_books = outcomes(
        snr, asked, cancelled, until_ns, watched, access=access, law=law, fading=fading, timeout_s=timeout_s,
        loss=loss, availability=availability, radios=radios, tcp=tcp,
    )  # fmt: skip

    assert plain_books == general_books


@pytest.mark.parametrize("access", [Ofdma(subchannels=2), Noma()], ids=lambda access: access.kind)
def test_a_cancellation_at_any_instant_has_the_same_consequences(access):
    """Each of four requests, cancelled at every instant, in turns before or after all else, and a nanosecond beside it.

    The last request is the second of a sender that is on the air, so that all of them go on in the general air.
    """
    asked = [Request(0, 0, 20_000), Request(0, 1, 20_000), Request(3 * MS, 2, 800, 1), Request(11 * MS, 0, 20_000)]
    options = {"snr": (1.0, 10.0, 3.0), "fading": Rayleigh(coherence_s=0.002), "timeout_s": 0.05}
    rows, *_ = World(access=access, **options).play(asked, [], LONG_NS)

    moments = sorted({max(time_ns + by, 0) for time_ns in instants_of(rows) for by in (-1, 0, 1)})
    for (place, at_ns), number in product(enumerate(moments), range(4)):
        cancelled = [Cancelling(number, at_ns, (place + number) % 2 == 0)]
        by_both = outcomes(asked=asked, cancelled=cancelled, access=access, **options)
        assert by_both[0] == by_both[1]


def test_a_band_that_fills_and_empties_is_plain_again(cell):
    """The second burst of a sender is for the general air, which keeps the band until nobody is on the air."""
    world = cell(Ofdma(), Shannon(), snr=(1.0, 1.0))
    kept = []
    for at_s in (0.0, 0.5, 1.0):
        world.clock.call_at(round(at_s * 1e9), lambda _: kept.append(len(world.medium.air._general)), COLLECT)

    deliveries = world.play((0.0, 0, 400_000), (0.0, 1, 400_000), (0.4, 1, 1000), (0.9, 0, 400_000))

    assert [delivery.lost for delivery in deliveries] == [""] * 4
    assert kept == [0, 2, 0]


def test_what_may_not_be_plain_is_never_asked_to_be(cell):
    """Several cells, slots, schedulers that look at gains or at what is left, antennas, losses in outage, movement."""
    lossy, arrays = FixedRate(bit_rate_bps=1e6, threshold_db=0.0), {"reception": MaximumRatio(antennas=2)}
    for access, law, more in (
        (Ofdma(), None, {"cells": 2}),
        (SlottedAloha(slot_s=0.001), None, {}),
        (Ofdma(scheduler="proportional-fair"), None, {}),
        (Ofdma(scheduler="equal-finish"), None, {}),
        (FullReuse(), None, arrays),
        (FullReuse(), lossy, {}),
    ):
        assert type(cell(access, law, **more).medium.air) is SharedAir
    moving = SimpleNamespace(until_ns=lambda: 1)
    assert type(shared_air(FullReuse(), cell().band, moving, 1)) is SharedAir
    assert type(shared_air(FullReuse(), cell().band, HandMadeLinks((1.0,)), 1)) is PlainAir

"""The plain air does what the general one does: both are played beside each other, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Always, Windows
from fednet_emu.kernel.clock import COLLECT
from fednet_emu.network.access.base import Access
from fednet_emu.network.access.contention import Noma, Shared, SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.plain import PlainAir, shared_air
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.faults import NoLoss, RandomLoss
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.transport import NoSession, Tcp
from fednet_emu.network.transport.connections import Connections
from fednet_emu.radio.fading import NoFading, Rayleigh, Rician
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.radio.receiver.combining import MaximumRatio
from tests.network.beside import MS, Cancelling, Request, World, cancellings, general, instants, instants_of, requests
from tests.network.media import HandMadeLinks, PlainRadios
from tests.quick import examples

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
SCHEMES = (
    Ofdma(), Ofdma(subchannels=2), Shared(), Shared(max_senders=3, threshold_db=-15.0), Noma(),
    Noma(threshold_db=-10.0, residual=0.1), NrGrants(),
)  # fmt: skip
LONG_NS = 5 * 10**9
"""By then nearly all that can end has ended; what cannot, far out of reach, has blocks of fading up to the end."""


class Watched(World):
    """A world that also logs what is on the air, and until when it is planned."""

    def watch(self, at_ns: int) -> None:
        """Log it at the end of an instant."""
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
            options["connections"] = Connections(Tcp(rtt_s=0.004, initial_window=1), NoSession())
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
    radios=st.sampled_from([None, PlainRadios(full_w=0.2, transmit_j_per_bit=1e-7, receive_j_per_bit=2e-7)]),
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
    """Each of four requests, cancelled before or after everything else of every instant, and a nanosecond beside it.

    The last request is the second of a sender that is on the air, so that all of them go on in the general air.
    """
    asked = [Request(0, 0, 20_000), Request(0, 1, 20_000), Request(3 * MS, 2, 800, 1), Request(11 * MS, 0, 20_000)]
    options = {"snr": (1.0, 10.0, 3.0), "fading": Rayleigh(coherence_s=0.002), "timeout_s": 0.05}
    rows, *_ = World(access=access, **options).play(asked, [], LONG_NS)

    for at_ns in sorted({max(time_ns + by, 0) for time_ns in instants_of(rows) for by in (-1, 0, 1)}):
        for number in range(4):
            for last in (False, True):
                by_both = outcomes(asked=asked, cancelled=[Cancelling(number, at_ns, last)], access=access, **options)
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
        (Shared(), None, arrays),
        (Shared(), lossy, {}),
    ):
        assert type(cell(access, law, **more).medium.air) is SharedAir
    moving = SimpleNamespace(until_ns=lambda: 1)
    assert type(shared_air(Shared(), cell().band, moving, 1)) is SharedAir
    assert type(shared_air(Shared(), cell().band, HandMadeLinks((1.0,)), 1)) is PlainAir

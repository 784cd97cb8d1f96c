"""Ends within a fading block are computed at once: to the last bit those of the exact walk over blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Always, Windows
from fednet_emu.network.access.contention import Shared
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.separate import BandAir, SeparateAir
from fednet_emu.network.faults import NoLoss, RandomLoss
from fednet_emu.radio.fading import NoFading, Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from tests.network.beside import MS, Cancelling, Request, World, cancellings, instants, instants_of, requests
from tests.network.media import PlainRadios
from tests.quick import examples


def outcomes(
    snr: Sequence[float],
    asked: Sequence[Request],
    cancelled: Sequence[Cancelling],
    until_ns: int = 10**13,
    **options: Any,
) -> list[Any]:
    """The outcomes of the same play with exact walks only, and as usual."""
    with patch.object(BandAir, "start", SeparateAir.start):
        exact = World(snr, **options).play(asked, cancelled, until_ns)
    return [exact, World(snr, **options).play(asked, cancelled, until_ns)]


@examples(120)
@given(
    snr=st.lists(st.sampled_from([0.0, 1e-4, 0.05, 1.0, 1.0, 30.0, 1e4]), min_size=4, max_size=4),
    asked=st.lists(requests, min_size=1, max_size=12),
    cancelled=st.lists(cancellings, max_size=6),
    until_ns=instants | st.just(10**13),
    access=st.sampled_from([Tdma(), Ofdma(subchannels=1), Shared(max_senders=1, threshold_db=-3.0)]),
    law=st.sampled_from([Shannon(), FixedRate(bit_rate_bps=3e6, threshold_db=-1.0), FixedRate(bit_rate_bps=1e5)]),
    coherence_s=st.sampled_from([0.0001, 0.0435, math.inf]),
    timeout_s=st.sampled_from([None, 0.004, 0.05, 3600.0]),
    loss=st.sampled_from([NoLoss(), RandomLoss(probability=0.3)]),
    availability=st.sampled_from([Always(), Always(), Windows(devices={0: [[0.005, 0.02]], 2: [[0.0, 0.003]]})]),
    way=st.sampled_from(["uplink", "downlink"]),
    radios=st.sampled_from(["plain", "bits"]),
    receive_w=st.sampled_from([0.0, 0.1]),
)
def test_whatever_is_asked_and_cancelled_the_books_are_those_of_exact_walks(
    snr, asked, cancelled, until_ns, access, law, coherence_s, timeout_s, loss, availability, way, radios, receive_w
):
    """Equal rows in equal order, deliveries in order and time, energies, bits, and transfers that nobody heard of."""
    fading = NoFading() if math.isinf(coherence_s) else Rayleigh(coherence_s=coherence_s)
    bits = PlainRadios(full_w=0.2, transmit_j_per_bit=1e-7, receive_j_per_bit=2e-7) if radios == "bits" else None
    general, turns = outcomes(
        snr, asked, cancelled, until_ns, access=access, law=law, fading=fading, timeout_s=timeout_s, loss=loss,
        availability=availability, way=way, radios=bits, receive_w=receive_w,
    )  # fmt: skip

    assert turns == general


def test_a_cancellation_at_any_instant_of_a_run_has_the_same_consequences():
    """Each of five requests, cancelled before or after everything else of every instant, and a nanosecond beside it."""
    asked = [Request(0, 0, 20_000), Request(0, 1, 20_000), Request(3 * MS, 2, 800), Request(9 * MS, 0, 1, 1)]
    asked.append(Request(9 * MS, 3, 20_000))  # its link carries nothing
    options = {"snr": (1.0, 10.0, 3.0, 1e-9), "fading": Rayleigh(coherence_s=0.002), "timeout_s": 0.05}
    rows, *_ = World(**options).play(asked, [], 10**13)
    events_ns = instants_of(rows)
    assert len(events_ns) == 8

    for at_ns in sorted({max(time_ns + by, 0) for time_ns in events_ns for by in (-1, 0, 1)}):
        for number in range(5):
            for last in (False, True):
                general, turns = outcomes(asked=asked, cancelled=[Cancelling(number, at_ns, last)], **options)
                assert turns == general


def test_a_loss_that_is_noticed_as_another_transfer_ends_comes_first():
    """One out of reach is given up at once, and noticed after the timeout of 4 ms, in which another one ends."""
    snr, asked = (1.0, 0.0), [Request(0, 0, 800), Request(0, 1, 800)]
    rows, *_ = World(snr, timeout_s=0.004).play(asked, [], 10**13)
    begun_ns = rows[-1][7]
    asked.append(Request(begun_ns + 4 * MS - rows[0][8], 0, 800))
    general, turns = outcomes(snr, asked, [], timeout_s=0.004)

    assert [(number, at_ns) for number, at_ns, _ in general[1][1:]] == [(1, begun_ns + 4 * MS), (2, begun_ns + 4 * MS)]
    assert turns == general

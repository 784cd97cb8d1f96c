"""Claims about the fluid of bits: both forms agree, and many links follow an independent integration."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednet_emu.network.access import Ofdma, Tdma
from fednet_emu.network.availability import Windows
from fednet_emu.radio.fading import NoFading, Rayleigh
from fednet_emu.radio.rate import FixedRate, Shannon

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
SNR = [0.3, 1.0, 4.0, 10.0, 30.0, 100.0]
COHERENCE_S = 0.05
ARRIVAL = st.tuples(st.integers(0, 400).map(lambda ms: ms / 1000), st.integers(0, 5), st.integers(1, 400_000))


def fluid_ends_s(requests, gain_of, subchannels):
    """Ends of uplinks on OFDMA, in seconds: step to the next arrival, block or end, in floats, with no shortcuts."""
    waiting = sorted(range(len(requests)), key=lambda index: requests[index][:2])
    left_bit, ends_s, now_s, block = {}, {}, 0.0, 0
    while len(ends_s) < len(requests):
        while waiting and requests[waiting[0]][0] <= now_s + 1e-12 and len(left_bit) < (subchannels or math.inf):
            index = waiting.pop(0)
            left_bit[index] = requests[index][2]
        parts = subchannels or max(len(left_bit), 1)
        sending = [requests[index][1] for index in left_bit]  # who sends twice at once splits its power
        rates = {
            index: 1e6 / parts * math.log2(1 + SNR[k] * gain_of(block, k) * parts / sending.count(k))
            for index, k in zip(left_bit, sending, strict=True)
        }
        steps_s = [(block + 1) * COHERENCE_S - now_s, *(left_bit[index] / rates[index] for index in left_bit)]
        full = subchannels is not None and len(left_bit) >= subchannels
        if waiting and not full:
            steps_s.append(max(requests[waiting[0]][0] - now_s, 0.0))
        step_s = min(steps_s)
        now_s += step_s
        block += step_s == steps_s[0]
        for index in list(left_bit):
            left_bit[index] -= rates[index] * step_s
            if left_bit[index] <= 1e-6:
                del left_bit[index]
                ends_s[index] = now_s
    return [ends_s[index] for index in range(len(requests))]


@settings(max_examples=40, deadline=None)
@given(requests=st.lists(ARRIVAL, min_size=1, max_size=10), subchannels=st.sampled_from([None, 2, 3]))
def test_sharing_is_the_integral_of_the_shared_rates(cell, gain_of, requests, subchannels):
    """Arrivals, ends and fading blocks in any pattern: every end agrees with the independent loop to 20 ns."""
    fading = Rayleigh(coherence_s=COHERENCE_S)
    deliveries = cell(Ofdma(subchannels=subchannels), CAPACITY, fading, snr=SNR).play(*requests)

    ends_s = fluid_ends_s(requests, lambda block, device: gain_of(fading, device, block), subchannels)
    # simultaneous requests of one device have no order between them: compare their ends as a set
    got = sorted(
        (at_s, device, round(end.ended_s * 1e9)) for (at_s, device, _), end in zip(requests, deliveries, strict=True)
    )
    expected = sorted(
        (at_s, device, round(end_s * 1e9)) for (at_s, device, _), end_s in zip(requests, ends_s, strict=True)
    )
    assert all(abs(one[2] - other[2]) <= 20 for one, other in zip(got, expected, strict=True))


@settings(max_examples=40, deadline=None)
@given(
    size_bit=st.integers(0, 1_000_000),
    start_ms=st.integers(0, 500),
    snr=st.sampled_from(SNR),
    law=st.sampled_from(
        [
            CAPACITY,
            Shannon(gap_db=3),
            FixedRate(bit_rate_bps=2e6, threshold_db=-10.0),
            FixedRate(bit_rate_bps=2e6, threshold_db=0.0, on_outage="stall"),
        ]
    ),
    fading=st.sampled_from([NoFading(), Rayleigh(coherence_s=0.001), Rayleigh(coherence_s=0.05)]),
    timeout_s=st.sampled_from([0.05, 100.0]),
    leaves_s=st.sampled_from([0.3, 1e6]),
)
def test_both_airs_agree_on_one_burst(cell, size_bit, start_ms, snr, law, fading, timeout_s, leaves_s):
    """Alone in the band both forms give the same fate, the same end to 1 ns, and the same bits."""
    results = []
    for access in (Tdma(), Ofdma()):
        there = Windows(devices={0: ((0.0, leaves_s),)})
        world = cell(access, law, fading, snr=[snr], timeout_s=timeout_s, availability=there)
        (delivery,) = world.play((start_ms / 1000, 0, size_bit))
        results.append((delivery, world.rows.iloc[0]))

    (alone, alone_row), (shared, shared_row) = results
    assert alone.lost == shared.lost
    assert abs(round(alone.ended_s * 1e9) - round(shared.ended_s * 1e9)) <= 1
    assert alone_row["air_bit"] == pytest.approx(shared_row["air_bit"], rel=1e-9, abs=0.01)


def test_an_outage_stays_an_outage_when_patience_ends_too(cell):
    """Whoever has met a bad block is lost to it, on either air, although the timeout comes before the end."""
    law, fading = FixedRate(bit_rate_bps=1e6, threshold_db=0.0), Rayleigh(coherence_s=0.001)
    for access in (Tdma(), Ofdma()):
        world = cell(access, law, fading, snr=[1.0, 1.0], timeout_s=0.1)
        first, _ = world.play((0.0, 0, 1_000_000), (0.05, 1, 1000))

        assert (first.lost, first.ended_s) == ("outage", 0.1)

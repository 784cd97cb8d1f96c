"""Claims about the flow of bits: both forms agree. The second emulator follows many links (`qa/oracle/network`)."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import mix
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.separate import BandAir, SeparateAir
from fednet_emu.radio.fading import NoFading, Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate
from tests.network.media import CAPACITY
from tests.quick import examples


def test_an_outage_stays_an_outage_when_patience_ends_too(cell):
    """Whoever has met a bad block is lost to it, on either air, although the timeout comes before the end."""
    law, fading = FixedRate(bit_rate_bps=1e6, threshold_db=0.0), Rayleigh(coherence_s=0.001)
    for access in (Tdma(), Ofdma()):
        world = cell(access, law, fading, snr=[1.0, 1.0], timeout_s=0.1)
        first, _ = world.play((0.0, 0, 1_000_000), (0.05, 1, 1000))

        assert (first.lost, first.ended_s) == ("outage", 0.1)


def test_bursts_that_end_in_one_instant_come_in_the_order_of_their_starts():
    """First started, first told."""
    air, bursts = SeparateAir(lambda *_: 500), [[SimpleNamespace(started_ns=k)] for k in range(3)]
    for start_ns, burst in enumerate(bursts):
        air.start([burst], start_ns)

    assert air.advance(499) == []
    assert [id(burst) for burst in air.advance(500)] == [id(burst) for burst in bursts]


def legs(snr, keys, size_bit):
    return [
        SimpleNamespace(snr=x, fading_key=key, size_bit=size_bit, until_ns=10**12, until_reason="timeout", lost="")
        for x, key in zip(snr, keys, strict=True)
    ]


def test_a_long_broadcast_to_equals_ends_with_them_all():
    """20 receivers of 10 Mbit at 1 Mbit/s take 10 s, in which rounding is larger than a nanosecond."""
    walker = BandAir(Band.of(1e6, FixedRate(bit_rate_bps=1e6), NoFading()))
    burst = legs([1.0] * 20, range(20), 10_000_000)

    assert walker.walk(burst, 3, FOREVER_NS) == 10 * NS_PER_S + 3
    assert {(leg.transmitted_bit, leg.lost) for leg in burst} == {(1e7, "")}


def on_air(snr, size_bit, until_ns, start_ns):
    burst = legs(snr, [mix(7, k) for k in range(len(snr))], size_bit)
    for leg in burst:
        leg.started_ns, leg.until_ns = start_ns, until_ns
    return burst


@examples(40)
@given(
    snr=st.lists(st.sampled_from([0.01, 0.03, 0.3, 1.0, 5.0]), min_size=1, max_size=20),
    size_bit=st.integers(1, 4_000),
    until_ns=st.one_of(st.just(FOREVER_NS), st.integers(2 * NS_PER_S, 4 * NS_PER_S)),
    threshold_db=st.sampled_from([None, -30.0, -3.0]),
)
def test_what_is_computed_a_part_at_a_time_is_what_is_computed_at_once(snr, size_bit, until_ns, threshold_db):
    """Bursts over up to thousands of blocks have the same end, bits, outcomes and time on the air."""
    law = CAPACITY if threshold_db is None else FixedRate(bit_rate_bps=1e4, threshold_db=threshold_db)
    walker = BandAir(Band.of(1e4, law, Rayleigh(coherence_s=0.001)))
    start_ns = 12_345_678
    whole = on_air(snr, size_bit, until_ns, start_ns)
    end_ns = walker.walk(whole, start_ns, FOREVER_NS)

    air, burst = walker, on_air(snr, size_bit, until_ns, start_ns)
    ended, now_ns, next_ns = [], start_ns, air.start([burst], start_ns)
    while not ended:
        now_ns = next_ns
        ended, next_ns = air.advance(now_ns), air.start([], now_ns)

    assert now_ns == end_ns
    assert burst[0].power_s == (end_ns - start_ns) / NS_PER_S
    assert [(leg.transmitted_bit, leg.lost) for leg in burst] == [(leg.transmitted_bit, leg.lost) for leg in whole]


def test_a_transfer_that_is_soon_cut_is_not_computed_to_an_end_that_never_comes():
    """Of a million blocks, 256 are computed when it starts, and those until the cut; without a cut four times more."""
    walk, horizons_ns, ahead_ns = BandAir(Band.of(1e4, CAPACITY, Rayleigh(coherence_s=0.001))).walk, [], 256_000_000
    air = SeparateAir(lambda *which: horizons_ns.append(which[2]) or walk(*which), ahead_ns)
    (leg,) = burst = on_air([1.0], 10**7, FOREVER_NS, 0)

    assert (air.start([burst], 0), air.advance(ahead_ns)) == (ahead_ns, [])
    assert horizons_ns == [ahead_ns, 4 * ahead_ns]
    leg.until_ns = 300_000_000
    air.cut(leg, burst, 300_000_000)

    assert air.advance(300_000_000) == [burst]
    assert (burst[0].power_s, leg.lost) == (0.3, "timeout")
    assert 0 < leg.transmitted_bit < 10**7

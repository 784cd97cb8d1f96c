"""Access schemes: orthogonal, Ethernet, idle radios, link adaptation, DCF."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from fednet_emu.network.access.base import Use
from fednet_emu.network.access.contention import FullReuse, Noma, SlottedAloha, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.ethernet import Ethernet
from fednet_emu.network.lora import Lora
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.nr.rrc import RadioConnections, Rrc
from fednet_emu.network.over_the_air import OverTheAir
from fednet_emu.network.planning import Fedl
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.settings import ACCESSES
from fednet_emu.network.wifi import Dcf, Mode, contend, schemes
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.nr.blocks import NrBlocks, transport_block_bit
from fednet_emu.radio.rates.shannon import FixedRate
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_scenario
from tests.network.media import MBIT, HandMadeLinks, medium_of
from tests.network.medium.moving import played
from tests.network.medium.test_movement import medium_on

ONE_OF_EACH = [
    Tdma(),
    Ofdma(),
    Ofdma(subchannels=4),
    Ofdma(scheduler="proportional-fair"),
    Ofdma(scheduler="equal-finish"),
    Noma(),
    FullReuse(),
    SlottedAloha(slot_s=0.001),
    SpatialReuse(),
    OverTheAir(),
    Planned(),
    Planned(planner=Fedl()),
    NrGrants(),
    Dcf(),
    Ethernet(),
    Lora(),
]


@pytest.mark.parametrize("access", [Tdma(), Ofdma(), Ofdma(subchannels=4), Planned(), Planned(planner=Fedl())])
@pytest.mark.parametrize("active", [1, 2, 3, 4])
def test_nobody_gets_more_than_the_band(access, active):
    """Shares of all who may be on the air at once add up to one at most."""
    together = min(active, access.capacity or active)

    assert 0 < access.share(active) * together <= 1


def test_only_turns_limit_how_many_send():
    """TDMA one, others all, or as many as the scheme is told."""
    limited = {place: access.capacity for place, access in enumerate(ONE_OF_EACH) if access.capacity is not None}

    assert limited == {0: 1, 2: 4, 8: 1, 11: 1}
    assert [Noma(max_senders=2).capacity, FullReuse(max_senders=3).capacity] == [2, 3]


def test_every_kind_is_in_the_table_under_its_name():
    """The table and the classes agree, and no kind is left out here."""
    assert {access.kind: type(access) for access in ONE_OF_EACH} == ACCESSES


PORT = "{kind: ethernet, port_bps: 1.0e+8}"
BOTH = (f"network.uplink.access={PORT}", f"network.downlink.access={PORT}")
OUTAGE = "channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: 100}"


def test_transfers_share_the_port_equally_whatever_the_radio_says(cell):
    """10, 20 and 30 Mbit at 10 Mbit/s: thirds of the port until 3 s, halves until 5 s, the whole of it until 6 s."""
    world = cell(Ethernet(port_bps=10e6), FixedRate(bit_rate_bps=1), Rayleigh(coherence_s=0.1), snr=[1e-9, 1.0, 1e9])
    found = world.play(*((0.0, device, 10 * MBIT * (device + 1)) for device in range(3)))

    assert [each.ended_s for each in found] == pytest.approx([3.0, 5.0, 6.0], abs=2e-9)
    assert [each.lost for each in found] == ["", "", ""]
    assert world.rows["energy_j"].tolist() == [0.0, 0.0, 0.0]


def test_a_broadcast_passes_the_port_once(cell):
    """Three receivers in 1 s."""
    world = cell(Ethernet(port_bps=10e6), multicast=True, rx_consumption_w=0.5)
    found = world.play(*((0.0, device, 10 * MBIT) for device in range(3)))

    assert [each.ended_s for each in found] == [1.0, 1.0, 1.0]
    assert world.rows["rx_energy_j"].tolist() == [1.5]


def test_rounds_over_a_wire_take_the_bits_over_the_speed_of_the_port():
    """Four devices, 320 bit: 3.2 us down, 720 us of training, 12.8 us up; bits have their energy, power has none."""
    bits = "channel.device.tx_j_per_bit=1e-6"
    fed = run_small(*BOTH, bits, OUTAGE, "channel.device.circuit_w=5", "stop.rounds=2", timing_only=True)
    fed.close()
    found = fed.ledger.frame("transfers")

    assert not any(verify(fed.ledger, frozenset()).values())
    assert found["ended_s"].max() == pytest.approx(2 * 736e-6, abs=1e-9)
    assert found.query("direction == 'uplink'")["energy_j"].tolist() == pytest.approx([320e-6] * 8)


def test_a_wire_loses_nothing_in_an_outage_of_the_radio():
    """The rate law of the channel does not act; with one direction on the radio it does."""
    wired, half = small_scenario(*BOTH, OUTAGE), small_scenario(BOTH[0], OUTAGE)

    assert list(wired.network.losses(wired.channel)) == []
    assert list(half.network.losses(half.channel)) == ["channel.rate: fixed that loses in outage"]


@pytest.fixture
def starts(cell: Callable[..., object]) -> Callable[..., list[float]]:
    """Plays requests with a timer of 2 s and a promotion of 0.3 s; when each is on the air, in s."""

    def play(*requests: tuple[float, int, int]) -> list[float]:
        use = RadioConnections(Rrc(inactivity_s=2, promotion_s=0.3)).around(Use(None, None, None))
        its = cell(Tdma(), before=use.before, after=use.after)
        return [delivery.started_s for delivery in its.play(*requests)]

    return play


@pytest.mark.parametrize(
    ("requests", "starts_s"),
    [
        ([(0.0, 0, MBIT), (3.3, 0, MBIT), (6.301, 0, MBIT)], [0.3, 3.3, 6.601]),
        ([(0.0, 0, 1000), (1.0, 1, 1000), (1.1, 0, 1000)], [0.3, 1.3, 1.1]),
        ([(0.0, 0, 5 * MBIT), (4.0, 0, MBIT)], [0.3, 5.3]),
        ([(0.0, 0, 1000), (0.1, 0, 1000)], [0.3, 0.301]),
    ],
    ids=["beyond the timer", "another device", "a long message", "one promotion for two"],
)
def test_silence_beyond_the_timer_costs_a_promotion(starts, requests, starts_s):
    """A device pays after more than 2 s without a message of its own, not during one, and once for two requests."""
    assert starts(*requests) == pytest.approx(starts_s)


IDLE = "network.uplink.idle={kind: rrc, inactivity_s: 0.5, promotion_s: 0.3}"
SLOW = "devices.speed={kind: fixed, flop_per_s: 1000}"


def test_both_directions_count():
    """Each device pays once at the start, for its download, and once in each round, after it has trained."""
    fed = run_small("network.downlink.mode=unicast", IDLE, SLOW, timing_only=True)
    rows = fed.ledger.frame("transfers")
    up, down = rows[rows["direction"] == "uplink"], rows[rows["direction"] == "downlink"]
    first = down["requested_s"] == 0

    assert up["grant_delay_s"].tolist() == pytest.approx([0.3] * len(up))
    assert down[first]["grant_delay_s"].tolist() == pytest.approx([0.3] * 4)
    assert down[~first]["grant_delay_s"].max() == 0.0


def test_broadcasts_reach_idle_devices():
    """They do not wait, and keep nobody connected."""
    rows = run_small(IDLE, SLOW, timing_only=True).ledger.frame("transfers")

    assert rows[rows["direction"] == "downlink"]["grant_delay_s"].max() == 0.0
    assert rows[rows["direction"] == "uplink"]["grant_delay_s"].min() == pytest.approx(0.3)


SEVEN_TO_TWO = NrGrants(pattern="DDDDDDDSUU", bler=0)
SLOTS_PER_S = 400
SQUEEZENET_BIT = 24_120_192
"""727,626 numbers of four bytes in packets of TCP."""


def sizes_bit(blocks):
    """Bits of a transport block at MCS 0 to 28 of table 1 (TS 38.214 Table 5.1.3.1-1)."""
    qpsk = [120, 157, 193, 251, 308, 379, 449, 526, 602, 679]
    qam16 = [340, 378, 434, 490, 553, 616, 658]
    qam64 = [438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948]
    rates = [(2, rate) for rate in qpsk] + [(4, rate) for rate in qam16] + [(6, rate) for rate in qam64]
    return [transport_block_bit(blocks, 13, 12, bits, rate) for bits, rate in rates]


def climbed_s(begun_s, size_bit, blocks):
    """Ends in s of transfers that share the slots in turn; each climbs at every tenth of a second after its start."""
    sizes, left, now_s = sizes_bit(blocks), [float(size_bit)] * len(begun_s), 0.0
    ends_s = [math.inf] * len(begun_s)
    while math.inf in ends_s:
        active = [n for n, at_s in enumerate(begun_s) if at_s <= now_s + 1e-9 and ends_s[n] == math.inf]
        window = round(10 * now_s + 1e-6 - 0.5)  # the one that has begun
        next_s = min([(window + 1) / 10, *(at_s for at_s in begun_s if at_s > now_s + 1e-9)])
        bps = {n: sizes[min(9 + window - int(10 * begun_s[n] + 1e-6), 28)] * SLOTS_PER_S / len(active) for n in active}
        next_s = min([next_s, *(now_s + left[n] / bps[n] for n in active)])
        for n in active:
            left[n] -= bps[n] * (next_s - now_s)
            if left[n] < 1e-3:
                ends_s[n] = next_s
        now_s = next_s
    return ends_s


def played_s(cell, begun_s, blocks=51, size_bit=SQUEEZENET_BIT, snr=1e6):
    """Ends in s of such transfers on the air."""
    law = NrBlocks(resource_blocks=blocks, feedback="olla")
    its = cell(SEVEN_TO_TWO, law, snr=[snr] * len(begun_s), bandwidth_hz=blocks * 360e3)
    return [d.ended_s for d in its.play(*((at_s, n, size_bit) for n, at_s in enumerate(begun_s)))]


@pytest.mark.parametrize(
    ("blocks", "devices", "published_s"), [(51, 1, 2.3), (51, 5, 8.2), (106, 1, 1.5), (106, 5, 4.4)]
)
def test_uploads_climb_from_mcs_9_to_28(cell, blocks, devices, published_s):
    """SqueezeNet alone and five times, as computed from what OpenAirInterface's code does."""
    ends_s = played_s(cell, [0.0] * devices, blocks)

    assert ends_s == pytest.approx(climbed_s([0.0] * devices, SQUEEZENET_BIT, blocks), rel=1e-6)
    assert ends_s == pytest.approx([published_s] * devices, abs=0.05)


@pytest.mark.parametrize(("begun_s", "size_bit"), [([0.0, 0.5, 1.23], 8_000_000), ([0.0, 0.1, 0.2, 2.5], 3_000_000)])
def test_each_transfer_climbs_by_itself(cell, begun_s, size_bit):
    """One that begins later begins at MCS 9 beside faster ones, and keeps its place when others end."""
    ends_s = played_s(cell, begun_s, size_bit=size_bit)

    assert ends_s == pytest.approx(climbed_s(begun_s, size_bit, 51), rel=1e-6)


def test_a_device_that_moves_goes_on_climbing():
    """Ten windows of a second, two seconds out of reach, and half a second at MCS 28, to which it has climbed."""
    law, sizes = NrBlocks(resource_blocks=51, feedback="olla"), sizes_bit(51)
    first_bit = sum(sizes[min(9 + window, 28)] * SLOTS_PER_S / 10 for window in range(10))
    size_bit = round(first_bit + sizes[28] * SLOTS_PER_S / 2)

    its = medium_on([1e6, 0.0, 0.0, 1e6], SEVEN_TO_TWO, law, timeout_s=100.0, bandwidth_hz=51 * 360e3)

    assert played(its, 0, -1, size_bit).ended_s == pytest.approx(3.5, rel=1e-6)


def test_downloads_climb_too():
    """Two at once from one base station, which has seven slots in ten."""
    law, bands = NrBlocks(resource_blocks=51, feedback="olla"), {"bandwidth_hz": 51 * 360e3}
    its = medium_of(SEVEN_TO_TWO, law, HandMadeLinks([1e6] * 2), 2, way="downlink", down=True, **bands)
    sent = [its.send(-1, device, Message(None, 3.5 * SQUEEZENET_BIT // 1, 0)) for device in (0, 1)]
    its.clock.run()

    expected_s = climbed_s([0.0, 0.0], SQUEEZENET_BIT, 51)
    assert [transfer.value.ended_s for transfer in sent] == pytest.approx(expected_s, rel=1e-6)


def test_a_link_too_weak_for_mcs_6_carries_nothing_below_four_attempts(cell):
    """OpenAirInterface goes no lower: 6 dB below the SNR of MCS 6 with a copy in four arriving."""
    law = NrBlocks(resource_blocks=51, feedback="olla", margin_db=0)

    assert law.min_sinr == pytest.approx(10**0.0172 / 4)
    assert law.rate_bps(0.99 * law.min_sinr, 1.0) == 0.0
    assert law.rate_bps(1.5 * law.min_sinr, 1.0) > 0.0


GOOD, LOWEST = 10**3, 10**0.0925
IP = 1500 / 1472
"""Bits of a packet over those of its UDP payload, which is what published rates count."""
ALONE_BPS, TWO_BPS = 66.406e6 * IP, 62.568e6 * IP
"""802.11n, 20 MHz, MCS 7, aggregates and block-ack requests: one station, and two together."""
N = Dcf(standard="n")


def bps(*scheme):
    """Rates of stations of 802.11n with these schemes."""
    return contend(Mode("n", 20), np.array(scheme)[:, None], np.arange(len(scheme))).rate_bps[:, 0]


def test_who_stays_has_the_channel_to_itself(cell):
    """20 and 40 Mbit: both at half of the rate of two until the first has ended, then the other alone."""
    first_s = 20 * MBIT / (TWO_BPS / 2)
    found = cell(N, snr=[GOOD, GOOD], bandwidth_hz=20e6).play((0.0, 0, 20 * MBIT), (0.0, 1, 40 * MBIT))

    assert [each.ended_s for each in found] == pytest.approx([first_s, first_s + 20 * MBIT / ALONE_BPS], rel=1e-5)


def test_a_slow_station_takes_most_of_the_time(cell):
    """MCS 0 and 7: 31.6 and 3.06 Mbit/s of payload together (ns-3: 34.7 in all, 3.0), then the fast one alone."""
    slow_bps, fast_bps = 3.060e6 * IP, 31.622e6 * IP
    slow_s = MBIT / slow_bps
    found = cell(N, snr=[LOWEST * 1.001, GOOD], bandwidth_hz=20e6).play((0.0, 0, MBIT), (0.0, 1, 20 * MBIT))

    rest_s = (20 * MBIT - slow_s * fast_bps) / ALONE_BPS
    assert [each.ended_s for each in found] == pytest.approx([slow_s, slow_s + rest_s], rel=1e-3)


def test_a_station_below_the_lowest_scheme_is_out_of_reach(cell):
    """At 0.925 dB a station carries bits, just below it never: the loss does not disturb the other."""
    found = cell(N, snr=[LOWEST * 0.999, GOOD], bandwidth_hz=20e6).play((0.0, 0, MBIT), (0.0, 1, MBIT))

    assert [each.lost for each in found] == ["unreachable", ""]
    assert found[1].ended_s == pytest.approx(MBIT / ALONE_BPS, rel=1e-5)


@pytest.mark.parametrize(("factor", "lost"), [(1.001, ""), (0.999, "unreachable")])
def test_a_channel_that_is_part_of_the_band_has_the_whole_power(cell, factor, lost):
    """20 of 80 MHz: a quarter of the SNR of the band suffices, and rates are those of 20 MHz."""
    world = cell(Dcf(standard="n", width_mhz=20), snr=[LOWEST / 4 * factor], bandwidth_hz=80e6)
    (found,) = world.play((0.0, 0, MBIT))

    assert found.lost == lost
    if not lost:
        assert found.ended_s == pytest.approx(MBIT / bps(0)[0], abs=1e-9)


def test_two_streams_need_twice_the_power(cell):
    """Each has a half of it; 802.11n with two streams carries nearly twice as much."""
    (lost,) = cell(Dcf(standard="n", streams=2), snr=[LOWEST * 1.999], bandwidth_hz=20e6).play((0.0, 0, MBIT))
    (found,) = cell(Dcf(standard="n", streams=2), snr=[LOWEST * 2.001], bandwidth_hz=20e6).play((0.0, 0, MBIT))

    assert lost.lost == "unreachable"
    assert 1.8 < MBIT / found.ended_s / bps(0)[0] < 2


@pytest.mark.parametrize("mode", ["downlink", "uplink"])
def test_a_sender_draws_power_while_it_sends(cell, mode):
    """802.11a at 54 Mbit/s alone: 248 us of each 326 us of exchange, with the series and slots of frozen backoff."""
    world = cell(Dcf(standard="a"), snr=[GOOD], bandwidth_hz=20e6, multicast=mode == "downlink", drawn_w=0.5)
    (found,) = world.play((0.0, 0, 10 * MBIT))

    series_us = (326 + 1 / 15 * 326 + 9) + 7.5 * 9
    airtime = 248 * 16 / 15 / series_us
    assert found.ended_s == pytest.approx(10 * MBIT / (12000 * 16 / 15 / series_us * 1e6), abs=1e-9)
    assert world.rows["energy_j"].tolist() == pytest.approx([0.5 * found.ended_s * airtime], rel=1e-8)


def test_stations_take_the_fastest_scheme_of_each_fading_block(cell, gain_of):
    """Three under Rayleigh fading around 18 dB, one of them nearly lost: block by block, by hand."""
    fading, snr, size_bit = Rayleigh(coherence_s=0.01), [60.0, 60.0, 1.0], 3 * MBIT
    found = cell(N, fading=fading, snr=snr, bandwidth_hz=20e6).play(*((0.0, device, size_bit) for device in range(3)))
    needed = [10 ** (scheme.snr_db / 10) for scheme in schemes("n", 20)]
    left, ends_s, block = [float(size_bit)] * 3, [0.0] * 3, 0
    while any(left):
        now_s, until_s = block * 0.01, (block + 1) * 0.01
        own = [
            sum(snr[device] * gain_of(fading, device, block) >= least for least in needed) - 1 if left[device] else -1
            for device in range(3)
        ]
        while now_s < until_s and any(number >= 0 for number in own):
            rate = bps(*own)
            step_s = min(until_s - now_s, *(left[k] / rate[k] for k in range(3) if own[k] >= 0))
            now_s += step_s
            for k in range(3):
                if own[k] >= 0:
                    left[k] -= rate[k] * step_s
                    if left[k] < 1e-3:
                        left[k], own[k], ends_s[k] = 0.0, -1, now_s
        block += 1

    assert [each.ended_s for each in found] == pytest.approx(ends_s, rel=1e-7)

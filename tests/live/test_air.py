"""The air of live mode, and its pace."""

from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, to_ns
from fednet_emu.kernel.work import BIT, work_per_ns
from fednet_emu.network.air.transfer import Message
from fednet_emu.realtime.air import CONTROL_BYTE, TURN_NS, LiveAir
from fednet_emu.realtime.pace import Paced, RatedPace
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.model import Scenario
from tests.live.second_air import SlowAir, Steps


class Fixed:
    """So many bits per ns, shared equally by all links on the air, for ever."""

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def rates(self, links: tuple[int, ...], now_ns: int) -> Paced:
        return Paced((self.bits * BIT // len(links),) * len(links), (1.0 / len(links),) * len(links), FOREVER_NS)

    def cell(self, link: int, now_ns: int) -> int:
        return 0


def played(air: LiveAir, packets: list[tuple[int, int, int]]) -> tuple[list[tuple[int, int, int, int]], int]:
    """Departures (link, size, start, end) of packets (time, link, size), and how many were dropped."""
    gone, dropped = [], 0
    for time_ns, link, size in packets:
        gone += air.departures(time_ns)
        dropped += not air.put(link, bytes(size), time_ns)
    gone += air.departures(FOREVER_NS - 1)
    assert air.next_ns == FOREVER_NS, "nothing is left"
    return [(one.link, len(one.packet), one.started_ns, one.ended_ns) for one in gone], dropped


def test_nobody_waits_for_air_without_packets() -> None:
    """A link that is only held has a next change, and no packet; one that has no rate now may have one later."""
    air = LiveAir(Fixed(8), places=None, queue_byte=10_000, hold_ns=300)
    air.put(0, bytes(1000), 0)
    assert (air.next_ns, air.awaited_ns) == (1000, 1000)
    air.departures(1000)
    assert (air.next_ns, air.awaited_ns) == (1300, FOREVER_NS)
    dark = LiveAir(Steps(100, [0, 8]), places=None, queue_byte=10_000, hold_ns=0)
    dark.departures(100)
    dark.put(0, bytes(50), 100)  # nothing until 200
    assert (dark.next_ns, dark.awaited_ns) == (200, 200)
    assert [one.ended_ns for one in dark.departures(250)] == [250]


def test_a_link_that_was_silent_for_long_has_lost_its_turn() -> None:
    """A hundred milliseconds after its last packet it asks for a new one."""
    air = LiveAir(Fixed(8), places=1, queue_byte=1 << 40, hold_ns=0)
    late = 1000 + TURN_NS
    others = [(late - 500, 1, 1000), (late - 500, 1, 1000)]
    in_time, _ = played(air, [(0, 0, 1000), *others, (late - 1, 0, 300)])
    assert [link for link, *_ in in_time] == [0, 1, 0, 1]
    again = LiveAir(Fixed(8), places=1, queue_byte=1 << 40, hold_ns=0)
    too_late, _ = played(again, [(0, 0, 1000), *others, (late, 0, 300)])
    assert [link for link, *_ in too_late] == [0, 1, 1, 0]


def test_back_to_back_packets_lose_no_part_of_a_nanosecond() -> None:
    """At 7 bit/ns 100 packets of 10 byte take 8000 / 7 ns, rounded up once, though each alone takes 11.4 ns."""
    air = LiveAir(Fixed(7), places=None, queue_byte=10_000, hold_ns=0)
    gone, _ = played(air, [(0, 0, 10)] * 100)
    assert gone[-1][3] == -(-8000 // 7)


def test_power_is_the_integral_of_the_senders_share() -> None:
    air = LiveAir(Fixed(8), places=None, queue_byte=10_000, hold_ns=0)
    assert air.put(0, bytes(1000), 0)
    assert air.departures(500) == []
    assert air.put(1, bytes(500), 500)
    first, second = air.departures(10_000)
    assert (first.power_ns, second.power_ns) == (500 + 0.5 * 1000, 0.5 * 1000)


packets = st.lists(
    st.tuples(st.integers(0, 150), st.integers(0, 3), st.sampled_from([20, 60, CONTROL_BYTE, 201, 400])), max_size=14
)


@settings(max_examples=150)
@given(
    packets,
    st.integers(5, 60),
    st.lists(st.integers(4, 99), min_size=1, max_size=5),
    st.sampled_from([None, 1, 1, 2]),
    st.sampled_from([450, 2000]),
    st.sampled_from([1, 13, 40]),
    st.randoms(use_true_random=False),
)
def test_departures_are_those_of_the_second_implementation(
    packets: list[tuple[int, int, int]],
    length_ns: int,
    table: list[int],
    places: int | None,
    room_byte: int,
    hold_ns: int,
    luck: object,
) -> None:
    steps, packets = Steps(length_ns, table), sorted(packets, key=lambda one: one[0])
    with patch("fednet_emu.realtime.air.TURN_NS", 40):
        air = LiveAir(steps, places=places, queue_byte=room_byte, hold_ns=hold_ns)
        slow = SlowAir(steps, places, room_byte, hold_ns, CONTROL_BYTE, 40)
        assert played(air, packets) == slow.play(packets)


SCHEMES: list[Any] = [
    "tdma",
    "ofdma",
    {"kind": "ofdma", "subchannels": 2},
    {"kind": "ofdma", "scheduler": "proportional-fair"},
    "noma",
    {"kind": "noma", "max_senders": 2, "residual": 0.01},
    {"kind": "full-reuse", "max_senders": 2},
]


def cell(
    access: Any, *, way: str = "uplink", cells: Any = None, seed: int = 0, radio: Any = None, **devices: Any
) -> Scenario:
    """A cell of four devices whose links fade in blocks of 20 ms."""
    link = {"access": access, "timeout_s": 1e6}
    scenario = {
        "seed": seed,
        "devices": {"count": 4, "placement": {"kind": "disc", "radius_m": 80}, "profile": "pi-4b", **devices},
        "channel": {
            "include": "urban-micro",
            "bandwidth_hz": 2e6,
            "fading": {"kind": "rayleigh", "coherence_s": 0.02},
            "rate": {"kind": "shannon", "gap_db": 3},
            **({"device": radio} if radio else {}),
        },
        "network": {way: {**link, **({"mode": "unicast"} if way == "downlink" else {})}, **(cells or {})},
        "algorithm": "fedavg",
        "model": "softmax",
    }
    return scenario_of(scenario)[1].scenario


def world(access: Any, **how: Any) -> Federation:
    """The network of such a cell, without data and model."""
    return build(cell(access, **how), learning=False)


def by_medium(fed: Federation, way: str, requests: list[tuple[int, int, int]]) -> list[int]:
    """Ends in ns of messages (time, device, bytes), one per device, in the simulator."""
    medium, sent = getattr(fed.network, way), []

    def send(device: int, size_byte: int, _event: Any) -> None:
        ends = (device, SERVER) if way == "uplink" else (SERVER, device)
        sent.append(medium.send(*ends, Message(None, 8 * size_byte)))

    for time_ns, device, size_byte in requests:
        fed.clock.call_at(time_ns, partial(send, device, size_byte))
    fed.clock.run()
    return sorted(round(transfer.value.ended_s * NS_PER_S) for transfer in sent)


def by_packets(fed: Federation, way: str, requests: list[tuple[int, int, int]], cells: int = 1) -> list[int]:
    """Ends in ns of the same messages as packets of 5000 byte."""
    medium = getattr(fed.network, way)
    pace = RatedPace(medium, fed.clock, cells)
    air = LiveAir(pace, places=medium.settings.access.capacity, queue_byte=1 << 40, hold_ns=0)
    last: dict[int, int] = {}
    departures = []
    for time_ns, device, size_byte in requests:
        departures += air.departures(time_ns)
        for _ in range(size_byte // 5000):
            assert air.put(device, bytes(5000), time_ns)
    departures += air.departures(FOREVER_NS - 1)
    for one in departures:
        last[one.link] = one.ended_ns
    return sorted(last.values())


requests = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 12)), min_size=4, max_size=4).map(
    lambda drawn: sorted((time * 10**6 + 7, device, size * 5000) for device, (time, size) in enumerate(drawn))
)


MOBILITY = {"kind": "random-waypoint", "min_speed_m_s": 20, "max_speed_m_s": 40}
BOTH = ["tdma", "ofdma"]


@pytest.mark.parametrize(
    ("schemes", "how"),
    [
        (SCHEMES, {}),
        (BOTH, {"way": "downlink"}),
        (BOTH, {"cells": {"cells": {"kind": "list", "xy_m": [[0, 0], [90, 0]]}}}),
        ([*BOTH, "noma"], {"mobility": MOBILITY, "cells": {"position_update_s": 0.007}}),
    ],
    ids=["uplink", "downlink", "two cells", "moving"],
)
@settings(max_examples=8)
@given(st.data(), requests, st.integers(0, 5))
def test_messages_end_when_the_medium_says_so(
    schemes: list[Any], how: dict[str, Any], data: st.DataObject, sent: list[tuple[int, int, int]], seed: int
) -> None:
    """On each scheme, from the server, beside another cell, and with new links every 7 ms within blocks of 20 ms."""
    access, way = data.draw(st.sampled_from(schemes)), how.get("way", "uplink")
    due = by_medium(world(access, seed=seed, **how), way, sent)
    fed = world(access, seed=seed, **how)
    assert by_packets(fed, way, sent, cells=fed.network.settings.cells.count) == due


def test_a_message_of_many_blocks_ends_when_the_medium_says_so() -> None:
    """Rates are computed for some blocks at once, and then for the next ones."""
    sent = [(7, 0, 300 * 5000)]
    assert by_packets(world("ofdma"), "uplink", sent) == by_medium(world("ofdma"), "uplink", sent)
    assert by_medium(world("ofdma"), "uplink", sent)[0] > 40 * to_ns(0.02)


def test_moving_links_are_those_of_the_present_period() -> None:
    """A link that stays on the air has a new distance in each period of movement, as a simulated transfer has."""
    fed = world("tdma", mobility={"kind": "random-waypoint", "min_speed_m_s": 20, "max_speed_m_s": 20})
    pace = RatedPace(fed.network.uplink, fed.clock)
    seen = []
    for second in range(4):
        now_ns = second * NS_PER_S + 10
        paced = pace.rates((2,), now_ns)
        links, band = fed.network.uplink.links.now(), fed.network.uplink.band
        seen.append(links.snr(2, SERVER))
        end_ns, transmitted_bit, _ = band.alone(*links.link(2, SERVER), 10**9, now_ns, paced.until_ns)
        assert (paced.until_ns, transmitted_bit) == (
            end_ns, pytest.approx(paced.per_ns[0] * (end_ns - now_ns) / work_per_ns(1.0) / NS_PER_S, rel=1e-9)
        )  # fmt: skip
    assert len(set(seen)) == 4
    assert fed.clock.now == 3 * NS_PER_S + 10


def test_rates_of_a_period_end_with_it() -> None:
    """Without fading the rates of moving devices hold until the end of the period, not for ever."""
    mobility = {"kind": "random-waypoint", "min_speed_m_s": 20, "max_speed_m_s": 20}
    fed, still = world("ofdma", mobility=mobility, cells={"position_update_s": 0.005}), world("ofdma")
    assert RatedPace(fed.network.uplink, fed.clock).rates((0, 1), 1).until_ns == to_ns(0.005)
    assert RatedPace(still.network.uplink, still.clock).rates((0, 1), 1).until_ns == to_ns(0.02)

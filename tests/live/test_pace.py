"""Packets of live mode leave when the simulator's medium says so, for every access scheme."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, to_ns
from fednet_emu.kernel.work import work_per_ns
from fednet_emu.network.air.transfer import Message
from fednet_emu.realtime.air import LiveAir
from fednet_emu.realtime.pace import RatedPace
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.model import Scenario

SCHEMES: list[Any] = [
    "tdma",
    "ofdma",
    {"kind": "ofdma", "subchannels": 2},
    {"kind": "ofdma", "scheduler": "proportional-fair"},
    "noma",
    {"kind": "noma", "max_senders": 2, "residual": 0.01},
    {"kind": "shared", "max_senders": 2},
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


@settings(max_examples=20)
@given(st.sampled_from(SCHEMES), requests, st.integers(0, 5))
def test_messages_end_when_the_medium_says_so(access: Any, sent: list[tuple[int, int, int]], seed: int) -> None:
    """Messages end when the medium says so."""
    due = by_medium(world(access, seed=seed), "uplink", sent)
    assert by_packets(world(access, seed=seed), "uplink", sent) == due


def test_a_message_of_many_blocks_ends_when_the_medium_says_so() -> None:
    """Rates are computed for some blocks at once, and then for the next ones."""
    sent = [(7, 0, 300 * 5000)]
    assert by_packets(world("ofdma"), "uplink", sent) == by_medium(world("ofdma"), "uplink", sent)
    assert by_medium(world("ofdma"), "uplink", sent)[0] > 40 * to_ns(0.02)


@settings(max_examples=5)
@given(st.sampled_from(["tdma", "ofdma"]), requests)
def test_downlinks_share_the_servers_power(access: Any, sent: list[tuple[int, int, int]]) -> None:
    """Downlinks share the servers power."""
    due = by_medium(world(access, way="downlink"), "downlink", sent)
    assert by_packets(world(access, way="downlink"), "downlink", sent) == due


@settings(max_examples=5)
@given(st.sampled_from(["tdma", "ofdma"]), requests)
def test_cells_disturb_each_other(access: Any, sent: list[tuple[int, int, int]]) -> None:
    """Cells disturb each other."""
    cells = {"cells": {"kind": "list", "xy_m": [[0, 0], [90, 0]]}}
    due = by_medium(world(access, cells=cells), "uplink", sent)
    fed = world(access, cells=cells)
    assert by_packets(fed, "uplink", sent, cells=fed.network.settings.cells.count) == due


@settings(max_examples=5)
@given(st.sampled_from(["tdma", "ofdma", "noma"]), requests)
def test_messages_of_moving_devices_end_when_the_medium_says_so(access: Any, sent: list[tuple[int, int, int]]) -> None:
    """Both have new links every 7 ms, within fading blocks of 20 ms."""
    mobility = {"kind": "random-waypoint", "min_speed_m_s": 20, "max_speed_m_s": 40}
    moving = {"mobility": mobility, "cells": {"movement_s": 0.007}}
    due = by_medium(world(access, **moving), "uplink", sent)
    assert by_packets(world(access, **moving), "uplink", sent) == due


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
        end_ns, air_bit, _ = band.alone(*links.link(2, SERVER), 10**9, now_ns, paced.until_ns)
        assert (paced.until_ns, air_bit) == (
            end_ns, pytest.approx(paced.per_ns[0] * (end_ns - now_ns) / work_per_ns(1.0) / NS_PER_S, rel=1e-9)
        )  # fmt: skip
    assert len(set(seen)) == 4
    assert fed.clock.now == 3 * NS_PER_S + 10


def test_rates_of_a_period_end_with_it() -> None:
    """Without fading the rates of moving devices hold until the end of the period, not for ever."""
    mobility = {"kind": "random-waypoint", "min_speed_m_s": 20, "max_speed_m_s": 20}
    fed, still = world("ofdma", mobility=mobility, cells={"movement_s": 0.005}), world("ofdma")
    assert RatedPace(fed.network.uplink, fed.clock).rates((0, 1), 1).until_ns == to_ns(0.005)
    assert RatedPace(still.network.uplink, still.clock).rates((0, 1), 1).until_ns == to_ns(0.02)

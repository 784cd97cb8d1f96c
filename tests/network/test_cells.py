"""Cells and backhaul."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.devices.mobility.base import StillPaths
from fednet_emu.kernel.clock import Clock, to_ns
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access.contention import FullReuse, Noma, SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.network.backhaul import Backhaul, BackhaulSettings
from fednet_emu.network.cells import HexagonalCells, ListedCells, SingleCell
from fednet_emu.network.links.links import CellEnvironment, CellLinks, cell_of, network_links, radio_of
from fednet_emu.network.network import Network
from fednet_emu.network.settings import Downlink, NetworkSettings
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.receiver.power_control import FullPower, OpenLoop
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER, SEVERAL, Ledger
from tests.network.media import CAPACITY, MBIT, capacity_bps, medium_of
from tests.quick import examples

SNR = np.array([[30.0, 10.0, 1.0, 0.5], [2.0, 0.4, 20.0, 5.0]])
"""Of four devices at two base stations: two devices in each cell."""


class World:
    """One medium of two cells with SNRs by hand."""

    def __init__(self, access, *, fading=None, downlink=False, snr=SNR):
        self.clock, self.ledger = Clock(), Ledger()
        more = {"clock": self.clock, "ledger": self.ledger, "fading": fading, "key": 3, "drawn_w": 1.0}
        more |= {"way": "downlink", "multicast": True} if downlink else {}
        self.medium = medium_of(access, CAPACITY, CellLinks(snr, [11, 12]), snr.shape[1], cells=len(snr), **more)

    def play(self, *requests):
        """Uplinks (at_s, device, size_bit); deliveries in the given order."""

        def send(at_s, device, size_bit):
            yield self.clock.sleep(at_s)
            return (yield self.medium.send(device, SERVER, Message(None, size_bit, 0)))

        started = [self.clock.process(send(*request)) for request in requests]
        self.clock.run()
        self.medium.close()
        assert not any(verify(self.ledger, frozenset()).values())
        return [process.value for process in started]


# ---- where base stations stand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rings", "count"), [(1, 7), (2, 19), (3, 37)])
def test_a_hexagonal_grid_has_its_distance_to_every_neighbour(rings, count):
    """7, 19, 37 stations; nobody is closer than the inter-site distance, and the centre has six neighbours at it."""
    cells = HexagonalCells(rings=rings, inter_site_distance_m=500.0)
    xy_m = cells.positions_m()
    distance_m = np.hypot(*(xy_m[:, None] - xy_m[None, :]).transpose(2, 0, 1))

    assert cells.count == len(xy_m) == count
    assert distance_m[~np.eye(count, dtype=bool)].min() == pytest.approx(500.0)
    assert np.isclose(distance_m[0], 500.0).sum() == 6
    assert xy_m[0].tolist() == [0.0, 0.0]


CHANNEL = {
    "carrier_hz": 2e9,
    "bandwidth_hz": 1e6,
    "path_loss": {"kind": "log-distance", "exponent": 3.0, "reference_loss_db": 40.0},
    "rate": {"kind": "shannon", "gap_db": 0, "max_efficiency_bps_hz": None, "min_efficiency_bps_hz": 0},
    "device": {"tx_power_dbm": 23, "noise_figure_db": 9, "height_m": 1.5},
    "base_station": {"tx_power_dbm": 30, "noise_figure_db": 5, "height_m": 1.5},
}
SHADOWED = {**CHANNEL, "shadowing": {"kind": "log-normal", "sigma_db": 8.0}}


def environment(channel, seed):
    return CellEnvironment(Channel.model_validate(channel), Streams(seed), FullPower())


def test_without_shadowing_the_nearest_station_serves():
    """Strongest is nearest then; the mean SNR is that of the own station."""
    stations_m = HexagonalCells(rings=1, inter_site_distance_m=500.0).positions_m()
    xy_m = np.random.default_rng(1).uniform(-700, 700, (60, 2))
    up, down = network_links(environment(CHANNEL, 1), xy_m, stations_m)
    nearest = np.hypot(*(xy_m[:, None] - stations_m[None, :]).transpose(2, 0, 1)).argmin(axis=1)

    assert [cell_of(up.station_of(device)) for device in range(60)] == nearest.tolist()
    assert [cell_of(down.station_of(device)) for device in range(60)] == nearest.tolist()
    assert up.mean_snr.tolist() == [up.snr(device, radio_of(cell)) for device, cell in enumerate(nearest.tolist())]


def test_with_shadowing_the_strongest_serves_and_both_directions_share_the_shadow():
    """No station is heard better than the own one; up and down differ by the budget's 3 dB on every link."""
    stations_m = HexagonalCells(rings=1, inter_site_distance_m=300.0).positions_m()
    xy_m = np.random.default_rng(2).uniform(-500, 500, (40, 2))
    up, down = network_links(environment(SHADOWED, 1), xy_m, stations_m)
    devices, stations = np.arange(40)[None, :], radio_of(np.arange(7)[:, None])

    assert (down.snrs(stations, devices) <= down.mean_snr).all()
    ratio_db = 10 * np.log10(down.snrs(stations, devices) / up.snrs(devices, stations))
    assert ratio_db == pytest.approx(np.full((7, 40), 3.0))
    keys = {int(key) for links in (up, down) for key in links.fading_keys(devices, stations).ravel()}
    assert len(keys) == 2 * 7 * 40
    assert up.fading_key(3, -5) == up.fading_keys(np.array(3), np.array(-5))


def test_more_stations_change_no_link_of_the_first():
    """Common random numbers: the links of the station at the origin are those of a network that has only it."""
    xy_m = np.random.default_rng(3).uniform(-500, 500, (10, 2))
    devices = np.arange(10)
    alone, _ = network_links(environment(SHADOWED, 4), xy_m, np.zeros((1, 2)))
    many, _ = network_links(environment(SHADOWED, 4), xy_m, np.array([[0.0, 0.0], [400.0, 0.0]]))
    single, _ = network_links(environment(SHADOWED, 4), xy_m, SingleCell().positions_m())

    first = np.full(10, -1)
    assert many.snrs(devices, first).tolist() == alone.mean_snr.tolist() == single.mean_snr.tolist()
    assert many.fading_keys(devices, first).tolist() == alone.fading_keys(devices, first).tolist()


def test_power_is_controlled_towards_the_own_station():
    """20 m from its own station and 380 m from another, a device sends at the power for 20 m, in both."""
    control = OpenLoop(target_dbm=-100.0)
    stations_m, xy_m = np.array([[0.0, 0.0], [400.0, 0.0]]), np.array([[20.0, 0.0], [380.0, 0.0]])
    up, down = network_links(CellEnvironment(Channel.model_validate(CHANNEL), Streams(1), control), xy_m, stations_m)
    blocks_db, loss_db = 10 * math.log10(1e6 / 180e3), 40 + 30 * math.log10(20)

    assert [up.power_w(k) for k in (0, 1)] == pytest.approx([10 ** ((-100 + blocks_db + loss_db - 30) / 10)] * 2)
    assert down.power_w(SERVER) is None


# ---- what cells do to each other -------------------------------------------------------------------------------------


@pytest.mark.parametrize("access", [Tdma(), FullReuse(), Noma(), Ofdma()], ids=str)
def test_one_sender_in_each_of_two_cells_follows_the_closed_form(access):
    """Each station hears the other cell's device as noise until that one has ended: TDMA is re-rated as well."""
    first_s = MBIT / capacity_bps(30.0 / (1 + 1.0))  # device 0 at station 0, next to device 2
    left_bit = MBIT - first_s * capacity_bps(20.0 / (1 + 2.0))  # device 2 at station 1, next to device 0
    deliveries = World(access).play((0.0, 0, MBIT), (0.0, 2, MBIT))

    ends_s = [first_s, first_s + left_bit / capacity_bps(20.0)]
    assert [delivery.ended_s for delivery in deliveries] == pytest.approx(ends_s, abs=2e-9)


def test_no_base_station_has_the_number_of_several_receivers():
    """The stations of a thousand cells have numbers of their own, the first one that of the server."""
    cells = np.arange(1000)

    assert cell_of(radio_of(cells)).tolist() == cells.tolist()
    assert radio_of(0) == SERVER
    assert SEVERAL not in radio_of(cells)


def test_turns_are_taken_within_a_cell_only():
    """Devices 0 and 1 in cell 0, 2 in cell 1: 0 and 2 start at once, and 1 when 0 has ended."""
    first, second, other = World(Tdma()).play((0.0, 0, MBIT), (0.0, 1, MBIT), (0.0, 2, MBIT))

    assert (first.started_s, other.started_s) == (0.0, 0.0)
    assert second.started_s == first.ended_s


def test_within_a_cell_parts_of_the_band_are_orthogonal_and_other_cells_are_noise():
    """Devices 0 and 1 on halves, each next to device 2: closed form of all three rates at the start."""
    world = World(Ofdma())
    for device in (0, 1, 2):
        world.medium.send(device, SERVER, Message(None, MBIT, 0))
    world.clock.run(until=1_000_000)
    world.medium.close()
    sent_bit = world.ledger.frame("transfers").sort_values("sender")["transmitted_bit"].tolist()

    expected_bps = [
        0.5 * capacity_bps(2 * 30 / 2.0),
        0.5 * capacity_bps(2 * 10 / 2.0),
        capacity_bps(20 / (1 + 2 + 0.4)),
    ]
    assert sent_bit == pytest.approx([rate_bps * 1e-3 for rate_bps in expected_bps], rel=1e-9)


def test_a_broadcast_is_one_transmission_of_each_station():
    """Four receivers in two cells: two rows of two; each station's worst receiver hears the other station as noise."""
    world = World(Tdma(), downlink=True)
    transfers = [world.medium.send(SERVER, device, Message("model", MBIT, 0, 0)) for device in range(4)]
    world.clock.run()
    rows = world.ledger.frame("transfers")

    assert rows["receivers"].tolist() == [2, 2]
    assert rows["energy_j"].tolist() == pytest.approx(rows["ended_s"].tolist())
    slow = {0: (30 / 3.0, 10 / 1.4), 1: (20 / 2.0, 5 / 1.5)}
    first_s = MBIT / capacity_bps(min(slow[0]))
    left_bit = MBIT - first_s * capacity_bps(min(slow[1]))
    ends_s = [first_s] * 2 + [first_s + left_bit / capacity_bps(5.0)] * 2
    assert [transfer.value.ended_s for transfer in transfers] == pytest.approx(ends_s, abs=2e-9)


ARRIVAL = st.tuples(st.integers(0, 400).map(lambda ms: ms / 1000), st.integers(0, 3), st.integers(1, 200_000))


@examples(40)
@given(
    requests=st.lists(ARRIVAL, min_size=1, max_size=8),
    access=st.sampled_from(
        [
            Tdma(),
            Ofdma(),
            Ofdma(subchannels=2),
            Ofdma(scheduler="proportional-fair"),
            Ofdma(scheduler="equal-finish"),
            Noma(residual=0.02),
            FullReuse(max_senders=2),
            SlottedAloha(slot_s=0.002, capture_db=-3.0),
        ]
    ),
    coherence_s=st.sampled_from([0.001, 0.05]),
)
def test_bits_are_conserved_in_several_cells(requests, access, coherence_s):
    """Rate times duration adds up to the payload on every scheme, and the order of creation does not matter."""
    fading = Rayleigh(coherence_s=coherence_s)
    world = World(access, fading=fading)
    deliveries = world.play(*requests)
    rows = world.ledger.frame("transfers")

    assert all(delivery.lost == "" for delivery in deliveries)
    assert rows["transmitted_bit"].to_numpy() == pytest.approx(rows["size_bit"].to_numpy(), rel=1e-9, abs=0)
    if len({request[:2] for request in requests}) == len(requests):
        again = World(access, fading=fading).play(*reversed(requests))
        assert [got.ended_s for got in reversed(again)] == [got.ended_s for got in deliveries]


@pytest.mark.parametrize(
    ("own_m", "other_m", "down", "up"),
    [
        (50, 100, 4.0, 4.0),
        (50, 200, 15.999, 15.998),
        (50, 500, 99.97, 99.08),
        (50, 1000, 399.55, 385.72),
        (3000, 6000, 3.8447, 1.7146),
        (4500, 12600, 6.6545, 1.1398),
    ],
)
@pytest.mark.parametrize("direction", ["down", "up"])
def test_two_stations_and_two_devices_agree_with_ns_3(direction, own_m, other_m, down, up):
    """SINRs of ns-3's LTE interference test: Friis, 25 resource blocks, two cells that transmit all the time.

    The uplink values of devices at 50 m are worked from the same budget by hand, the others are those of ns-3.
    """
    carrier_hz = {"down": 2.12e9, "up": 1.93e9}[direction]
    terminals = {
        "device": {"tx_power_dbm": 10, "noise_figure_db": 9, "height_m": 0},
        "base_station": {"tx_power_dbm": 30, "noise_figure_db": 5, "height_m": 0},
    }
    channel = {**CHANNEL, **terminals, "carrier_hz": carrier_hz, "bandwidth_hz": 4.5e6, "path_loss": "free-space"}
    side_m = math.sqrt(other_m**2 - own_m**2)
    clock, ledger, streams = Clock(), Ledger(), Streams(1)
    network = Network(
        clock,
        ledger,
        streams,
        Presence(Always(), 0, 2),
        Channel.model_validate(channel),
        StillPaths(np.array([[0.0, own_m], [side_m, own_m]])),
        NetworkSettings(downlink=Downlink(mode="unicast"), cells=ListedCells(xy_m=((0.0, 0.0), (side_m, 0.0)))),
    )
    for device in (0, 1):
        ends = (SERVER, device) if direction == "down" else (device, SERVER)
        (network.downlink if direction == "down" else network.uplink).send(*ends, Message(object(), MBIT, 0))
    clock.run()

    ended_s = ledger.frame("transfers")["ended_s"]
    sinr = 2 ** (MBIT / 4.5e6 / ended_s) - 1
    assert sinr.to_numpy() == pytest.approx(np.full(2, {"down": down, "up": up}[direction]), rel=2e-3)


class WorldBackhaul:
    def __init__(self, **given: Any) -> None:
        self.clock, self.ledger = Clock(), Ledger()
        self.lines = Backhaul(self.clock, self.ledger, BackhaulSettings.model_validate(given), 7)

    def play(self, *requests: tuple[Any, ...], until_s: float | None = None) -> list[Any]:
        """Messages (at_s, edge, up, size_bit, stopped after or None); the ends in s, None if lost or stopped."""

        def send(at_s: float, edge: int, up: bool, size_bit: int, patience_s: float | None = None) -> Any:
            yield self.clock.sleep(at_s)
            message = self.lines.send(edge, up=up, payload="w", number=3, size_bit=size_bit)
            if patience_s is None:
                got = yield message
                return None if got.lost else got.ended_s
            yield self.clock.sleep(patience_s)
            message.cancel(Delivery.given_up(self.clock.now_s))
            return None

        started = [self.clock.process(send(*request)) for request in requests]
        self.clock.run(until_s if until_s is None else to_ns(until_s))
        self.lines.close()
        assert not any(verify(self.ledger, frozenset()).values())
        return [process.value for process in started if not process.is_alive]

    def column(self, name: str) -> list[Any]:
        return list(self.ledger.frame("backhaul")[name])


def test_a_line_is_first_come_first_served_and_free_during_the_delay() -> None:
    """1 Mbit at 1 Mbit/s and 0.5 s on the way: the second of a line is 1 s behind the first; others are free."""
    world = WorldBackhaul(rate_bps=1e6, delay_s=0.5, energy_j_per_bit=1e-6)
    ends_s = world.play((0, 0, True, MBIT), (0, 0, True, MBIT), (0, 0, False, MBIT), (0, 1, True, MBIT))

    assert ends_s == [1.5, 2.5, 1.5, 1.5]
    assert world.ledger.backhaul_bit == 4 * MBIT
    assert world.ledger.backhaul_j == world.ledger.energy_j == pytest.approx(4.0)
    assert world.column("direction") == ["up", "down", "up", "up"]


@pytest.mark.parametrize(
    ("patience_s", "sent_bit", "next_s"), [(0.25, 250_000, 1.75), (1.25, MBIT, 2.5), (0.0, 0, 1.5)]
)
def test_what_is_stopped_makes_way(patience_s: float, sent_bit: int, next_s: float) -> None:
    """Stopped on the line it counts what has left, stopped on the way it counts whole; the next one starts at once."""
    world = WorldBackhaul(rate_bps=1e6, delay_s=0.5, energy_j_per_bit=1e-6)
    ends_s = world.play((0, 0, True, MBIT, patience_s), (0, 0, True, MBIT))

    assert ends_s == [None, next_s]
    assert world.column("loss_reason") == ["deadline", ""]
    assert world.column("sent_bit") == [sent_bit, MBIT]
    assert world.column("energy_j") == pytest.approx([sent_bit * 1e-6, 1.0])


def test_who_waits_can_be_stopped_too() -> None:
    """It was never on the line: no bits, no start; those around it do not notice."""
    world = WorldBackhaul(rate_bps=1e6)
    ends_s = world.play((0, 0, True, MBIT), (0, 0, True, MBIT, 0.5), (0, 0, True, MBIT))

    assert ends_s == [1.0, None, 2.0]
    assert world.column("sent_bit") == [0, MBIT, MBIT]


def test_the_end_of_the_run_stops_everything() -> None:
    """At 1.25 s the first of a line is on its way, the second a quarter through, the third waits."""
    world = WorldBackhaul(rate_bps=1e6, delay_s=10)
    world.play(*[(0, 0, True, MBIT)] * 3, until_s=1.25)

    started_s = world.column("started_s")
    assert world.column("loss_reason") == ["end"] * 3
    assert sorted(world.column("sent_bit")) == [0, 250_000, MBIT]
    assert sorted(start for start in started_s if start == start) == [0.0, 1.0]  # noqa: PLR0124  # the third never


def test_losses_have_their_probability_and_cost_as_much() -> None:
    """Of 2000 messages a quarter is lost, within five standard deviations, each line for itself."""
    world = WorldBackhaul(rate_bps=1e6, message_loss={"kind": "random", "probability": 0.25})
    ends_s = world.play(*[(0, edge, True, 1000) for edge in range(2) for _ in range(1000)])
    lost = [end_s is None for end_s in ends_s]

    assert abs(sum(lost) - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5
    assert lost[:1000] != lost[1000:]
    assert world.ledger.backhaul_bit == 2000 * 1000
    assert max(end_s for end_s in ends_s if end_s is not None) == pytest.approx(1.0)


def test_losses_of_both_directions_of_an_edge_server_are_independent() -> None:
    """Of 2000 pairs, each half lost, about a quarter loses both, within five standard deviations."""
    world = WorldBackhaul(message_loss={"kind": "random", "probability": 0.5})
    ends_s = world.play(*[(0, 0, up, 1000) for up in (True, False) for _ in range(2000)])
    both = sum(up is None and down is None for up, down in zip(ends_s[:2000], ends_s[2000:], strict=True))

    assert abs(both - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


REQUEST = st.tuples(st.floats(0, 5), st.integers(0, 1), st.booleans(), st.integers(0, 4_000_000))


@examples(60)
@given(st.lists(REQUEST, max_size=12), st.sampled_from([None, 1e6, 3e6]), st.sampled_from([0.0, 0.25]))
def test_arrivals_are_those_of_the_recursion_of_a_queue(
    requests: list[tuple[Any, ...]], rate_bps: float | None, delay_s: float
) -> None:
    """By Lindley: a message leaves its line at max(request, departure of the one before) + bits / rate."""
    world = WorldBackhaul(rate_bps=rate_bps, delay_s=delay_s)
    ends_s = world.play(*requests)
    free_s: dict[Any, float] = {}
    for at_s, edge, up, size_bit in sorted(requests, key=lambda request: to_ns(request[0])):
        left_s = max(at_s, free_s.get((edge, up), 0.0)) + (0.0 if rate_bps is None else size_bit / rate_bps)
        free_s[edge, up] = left_s
        place = requests.index((at_s, edge, up, size_bit))
        if requests.count((at_s, edge, up, size_bit)) == 1:
            assert ends_s[place] == pytest.approx(left_s + delay_s, abs=1e-7)

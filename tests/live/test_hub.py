"""The hub passes packets between nodes; sockets stand for TUN devices, and a clock of its own for the host's."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import patch

import pytest

from fednet_emu.realtime.air import LiveAir
from fednet_emu.realtime.hub import Hub
from tests.live.made import tcp
from tests.live.test_air import Fixed

MS = 1_000_000


class House:
    """A server and two devices behind a hub; the clock stands still unless it is moved."""

    def __init__(self, hold_ns: int = 0) -> None:
        self.now_ns = 0
        self.after_ns: list[int] = []  # what the clock shows at its next readings
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
        for both in pairs:
            for one in both:
                one.setblocking(False)
        self.sockets = [one for both in pairs for one in both]
        self.nodes = [mine for mine, _ in pairs]
        airs = [LiveAir(Fixed(1), places=None, queue_byte=9000, hold_ns=hold_ns) for _ in range(2)]
        self.away: list[tuple[int, int, int]] = []  # device, from, until
        ports = {node: its.fileno() for node, (_, its) in enumerate(pairs)}
        self.hub = Hub(self.clock, ports, *airs, 2 * MS, self.is_there)

    def clock(self) -> int:
        """The time; it may go on while the hub waits."""
        if self.after_ns:
            self.now_ns = self.after_ns.pop(0)
        return self.now_ns

    def is_there(self, device: int, now_ns: int) -> bool:
        """Whether a device is there."""
        return not any(device == own and since <= now_ns < until for own, since, until in self.away)

    def close(self) -> None:
        """Close."""
        for each in self.sockets:
            each.close()

    def at(self, now_ns: int) -> None:
        """At."""
        self.now_ns = now_ns
        self.hub.play(0.0)

    def heard(self, node: int) -> list[bytes]:
        """Heard."""
        found = []
        while True:
            try:
                found.append(self.nodes[node].recv(9000))
            except BlockingIOError:
                return found


@pytest.fixture
def house() -> Iterator[House]:
    """House."""
    made = House()
    yield made
    made.close()


def test_a_packet_arrives_after_the_air_and_the_latency(house: House) -> None:
    """A packet arrives after the air and the latency."""
    packet = tcp(2, 0, b"x" * 948)  # 1000 byte at 1 bit/ns take 8 us
    house.nodes[2].send(packet)
    house.at(5000)
    house.at(5000 + 8000 + 2 * MS - 1)
    assert house.heard(0) == []
    house.at(5000 + 8000 + 2 * MS)
    assert house.heard(0) == [packet]
    assert [*house.hub.late_ns[0]] == [0]


def test_both_directions_have_an_air_of_their_own(house: House) -> None:
    """Both directions have an air of their own."""
    house.nodes[1].send(tcp(1, 0, b"x" * 948))
    house.nodes[0].send(tcp(0, 1, b"y" * 948))
    house.nodes[0].send(tcp(0, 2, b"z" * 948))
    house.at(0)
    house.at(8000 + 2 * MS)
    assert (len(house.heard(0)), house.heard(1), house.heard(2)) == (1, [], []), "the downlink is shared by two"
    house.at(16_000 + 2 * MS)
    assert (len(house.heard(1)), len(house.heard(2))) == (1, 1)


def test_packets_of_both_directions_are_written_in_the_order_of_their_ends(house: House) -> None:
    """Also where the hub is late for all: no packet waits for one of the other direction that is due after it."""
    for size in (948, 448):  # up: they leave at 8 and 12 us
        house.nodes[1].send(tcp(1, 0, b"u" * size))
    house.nodes[0].send(tcp(0, 1, b"d" * 1198))  # down: at 10 us
    house.at(0)
    house.at(3 * MS)
    assert [*house.hub.late_ns[0]] == [MS - 8000, MS - 10_000, MS - 12_000]


def test_the_hub_sleeps_until_the_first_packet_is_due() -> None:
    """Not until it has left the air, nor until its link leaves it: nothing can be done then."""
    with closing(House(hold_ns=20 * MS)) as house:
        house.nodes[1].send(tcp(1, 0, b"x" * 948))
        house.at(0)
        with patch("fednet_emu.realtime.hub.select.select", return_value=([], [], [])) as slept:
            house.after_ns = [0, 5000, 8000 + 2 * MS, 10 * MS, 60 * MS]
            house.hub.play(0.05)
        assert [call.args[3] for call in slept.call_args_list] == pytest.approx([2.003e-3, 40e-3])
        assert len(house.heard(0)) == 1


def test_lateness_moves_a_packet_and_adds_up_to_nothing(house: House) -> None:
    """Lateness moves a packet and adds up to nothing."""
    for _ in range(3):
        house.nodes[1].send(tcp(1, 0, b"x" * 948))
    house.at(0)
    house.at(40 * MS)  # the host was away for 40 ms
    assert len(house.heard(0)) == 3
    assert [*house.hub.late_ns[0]] == [40 * MS - 2 * MS - 8000 * k for k in (1, 2, 3)]
    house.nodes[1].send(tcp(1, 0, b"x" * 948))
    house.at(2000 * MS)
    house.at(2003 * MS)
    assert [*house.hub.late_ns[2]] == [MS - 8000], "by the second in which it was written"


def test_what_does_not_fit_into_a_queue_is_dropped(house: House) -> None:
    """Six packets of 1500 byte are 9000, and a seventh is too much; the other direction has a queue of its own."""
    for _ in range(7):
        house.nodes[1].send(tcp(1, 0, b"x" * 1448))
        house.nodes[0].send(tcp(0, 2, b"x" * 1448))
    house.nodes[0].send(tcp(0, 2, b"x" * 1448))
    house.at(0)
    assert house.hub.traffic.dropped == [1, 2]


def test_a_packet_that_comes_while_the_hub_sleeps_joins_no_air_of_the_past(house: House) -> None:
    """The first packet has left at 8 us, though the hub learns of that at 20 us, when the second one comes."""
    house.nodes[1].send(tcp(1, 0, b"x" * 948))
    house.at(0)
    house.nodes[2].send(tcp(2, 0, b"x" * 948))
    house.after_ns = [5000, 5000, 20_000]
    house.hub.play(0.0)
    house.at(3 * MS)
    assert [*house.hub.late_ns[0]] == [MS - 8000, MS - 28_000]


def test_packets_to_others_are_strays(house: House) -> None:
    """Packets to others are strays."""
    strays = [
        tcp(1, 2, b"from device to device"),
        tcp(2, 0, b"in the name of another"),
        tcp(1, 77, b"to nobody"),
        tcp(1, 0, b"")[:16] + bytes([8, 8, 8, 8]) + bytes(32),
        b"\x60" + bytes(50),
        b"\x65" + tcp(1, 0, b"of another version")[1:],
    ]
    for packet in strays:
        house.nodes[1].send(packet)
    house.nodes[0].send(tcp(0, 0, b"to itself"))
    house.at(0)
    house.at(10 * MS)
    assert [house.heard(node) for node in range(3)] == [[], [], []]
    assert house.hub.strays == 7


def test_packets_of_who_is_away_vanish(house: House) -> None:
    """Those that come meanwhile, in either direction, and those that leave the air then; others do not notice."""
    house.away = [(0, 4000, 100_000)]
    house.nodes[1].send(tcp(1, 0, b"x" * 948))  # device 0; it leaves the air at 8 us
    house.nodes[2].send(tcp(2, 0, b"y" * 948))
    house.at(0)
    house.nodes[1].send(tcp(1, 0, b"x" * 948))
    house.nodes[0].send(tcp(0, 1, b"z" * 948))
    house.at(50_000)
    house.at(5 * MS)
    assert [packet[52:53] for packet in house.heard(0)] == [b"y"]
    assert (house.heard(1), house.hub.vanished) == ([], [2, 1])
    assert house.hub.traffic.air_byte == [1000, 0], "what vanishes is no traffic"


def test_whether_a_device_is_there_is_asked_for_the_instant_in_which_its_packet_leaves(house: House) -> None:
    """At 8 us, however late the host looks: device 0 goes after that, device 1 was away then and is back."""
    house.away = [(0, 9000, 10**12), (1, 4000, 14_000)]
    house.nodes[1].send(tcp(1, 0, b"x" * 448))  # both take 8 us, as they share the air
    house.nodes[2].send(tcp(2, 0, b"y" * 448))
    house.at(0)
    house.at(3 * MS)
    assert [packet[52:53] for packet in house.heard(0)] == [b"x"]
    assert house.hub.vanished == [1, 0]


def test_before_scenario_time_packets_pass_at_once(house: House) -> None:
    """And leave no trace, but for strays."""
    packet = tcp(1, 0, b"x" * 948)
    house.nodes[1].send(packet)
    house.nodes[1].send(tcp(1, 2, b"from device to device"))
    house.hub.relay(0.0)
    assert house.heard(0) == [packet]
    assert (house.hub.traffic.air_byte, house.hub.strays) == ([0, 0], 1)


def test_waiting_ends_with_news(house: House) -> None:
    """Waiting ends with news."""
    mine, its = os.pipe()
    os.write(its, b"x")
    assert house.hub.play(10.0, mine) == [mine]
    os.close(mine)
    os.close(its)

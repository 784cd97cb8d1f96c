"""The hub of live mode and its messages."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import patch

import pytest

from fednet_emu.realtime.air import Departure, LiveAir
from fednet_emu.realtime.hub import Hub
from fednet_emu.realtime.messages import Message, Traffic
from fednet_emu.realtime.packets import address, segment, way
from tests.live.made import ACK, SYN, tcp, udp
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
        return not any(device == own and since <= now_ns < until for own, since, until in self.away)

    def close(self) -> None:
        for each in self.sockets:
            each.close()

    def at(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.hub.play(0.0)

    def heard(self, node: int) -> list[bytes]:
        found = []
        while True:
            try:
                found.append(self.nodes[node].recv(9000))
            except BlockingIOError:
                return found


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.close()


def test_a_packet_arrives_after_the_air_and_the_latency(house: House) -> None:
    packet = tcp(2, 0, b"x" * 948)  # 1000 byte at 1 bit/ns take 8 us
    house.nodes[2].send(packet)
    house.at(5000)
    house.at(5000 + 8000 + 2 * MS - 1)
    assert house.heard(0) == []
    house.at(5000 + 8000 + 2 * MS)
    assert house.heard(0) == [packet]
    assert [*house.hub.late_ns[0]] == [0]


def test_both_directions_have_an_air_of_their_own(house: House) -> None:
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
    mine, its = os.pipe()
    os.write(its, b"x")
    assert house.hub.play(10.0, mine) == [mine]
    os.close(mine)
    os.close(its)


class Story:
    """A TCP connection of device 0; each packet takes 1 ms on the air and comes when the one before has left."""

    def __init__(self) -> None:
        self.traffic, self.now_ns, self.sequence = Traffic(), 0, {True: 2**32 - 5000, False: 7}

    def send(self, upwards: bool, size: int, content: bytes = b"", *, again: int = 0) -> None:
        """Send so many bytes in packets of at most 1448, the first of them from `again` bytes before."""
        self.sequence[upwards] -= again
        while size > 0:
            some = min(size, 1448)
            body = content[:some].ljust(some, b"\x00")
            self.packet(
                upwards, tcp(*((1, 0) if upwards else (0, 1)), body, self.sequence[upwards], ports=self.ports(upwards))
            )
            self.sequence[upwards] += some
            content, size = b"", size - some

    def ports(self, upwards: bool) -> tuple[int, int]:
        return (4000, 80) if upwards else (80, 4000)

    def packet(self, upwards: bool, packet: bytes) -> None:
        start, self.now_ns = self.now_ns, self.now_ns + MS
        self.traffic.passed(Departure(0, packet, start, start, self.now_ns, float(MS)), upwards=upwards)

    def messages(self) -> list[Message]:
        self.traffic.close()
        return self.traffic.messages


def test_addresses_are_numbers_of_devices() -> None:
    assert [address(node) for node in (0, 1, 250, 255)] == ["10.77.0.1", "10.77.0.2", "10.77.0.251", "10.77.1.0"]
    assert way(3, 0) == bytes([10, 77, 0, 4, 10, 77, 0, 1]) == tcp(3, 0, b"")[12:20]
    assert way(255, 1) == bytes([10, 77, 1, 0, 10, 77, 0, 2])


def test_headers_of_tcp_say_what_is_payload() -> None:
    its = segment(tcp(1, 0, b"x" * 100, 17, ports=(5, 6)))
    assert its is not None
    assert (its.ports, its.sequence, its.size_byte, its.opens, its.http) == ((5, 6), 17, 100, False, False)
    opening = segment(tcp(1, 0, b"", flags=SYN))
    assert opening is not None
    assert opening.opens
    assert segment(udp(1, 0, b"x" * 100)) is None
    assert segment(tcp(1, 0, b"x")[:30]) is None, "cut off"
    assert segment(tcp(1, 0, b"")) is None, "only acknowledges"


def test_a_request_with_a_large_body_is_one_message_and_its_answer_none() -> None:
    story = Story()
    story.send(True, 100_000, b"POST / HTTP/1.1")
    story.send(False, 120, b"HTTP/1.0 200 OK")
    (one,) = story.messages()
    assert (one.upwards, one.payload_byte, one.packets, one.air_byte) == (True, 100_000, 70, 100_000 + 70 * 52)
    assert (one.arrived_ns, one.started_ns, one.ended_ns, one.starved_ns) == (0, 0, 70 * MS, 0)
    assert one.power_ns == 70 * MS


def test_two_requests_on_one_connection_are_two_messages() -> None:
    story = Story()
    for _ in range(2):
        story.send(True, 5000, b"POST / HTTP/1.1")
        story.send(False, 120, b"HTTP/1.1 200 OK")
    assert [one.payload_byte for one in story.messages()] == [5000, 5000]


def test_small_requests_separate_large_answers() -> None:
    story = Story()
    for size in (9000, 7000):
        story.send(True, 80, b"GET / HTTP/1.1")
        story.send(False, size, b"HTTP/1.1 200 OK")
    assert [(one.upwards, one.payload_byte) for one in story.messages()] == [(False, 9000), (False, 7000)]


def test_window_updates_do_not_tear_a_message_apart() -> None:
    story = Story()
    for _ in range(5):
        story.send(True, 20_000)
        story.send(False, 120)
    (one,) = story.messages()
    assert (one.payload_byte, one.starved_ns) == (100_000, 4 * MS), "four answers of 1 ms in between"
    assert (one.packets, one.power_ns) == (5 * 14, 70 * MS)


def test_what_is_small_before_and_after_answers_is_cut_off() -> None:
    story = Story()
    for size in (300, 300, 50_000, 400, 400):
        story.send(True, size)
        story.send(False, 100)
    (one,) = story.messages()
    assert one.payload_byte == 50_000
    assert (one.arrived_ns, one.ended_ns) == (4 * MS, 39 * MS)
    assert one.starved_ns == 0, "what was before it is no gap in it"


def test_small_talk_is_no_message() -> None:
    story = Story()
    for _ in range(3):
        story.send(True, 900)
        story.send(False, 900)
    assert story.messages() == []


def test_repeated_bytes_count_once_even_where_numbers_begin_again() -> None:
    story = Story()  # the numbers of the uplink pass 2^32 after 5000 bytes
    story.send(True, 8000)
    story.send(True, 3000, again=1000)
    (one,) = story.messages()
    assert (one.payload_byte, one.repeated_byte) == (10_000, 1000)


def test_whole_packets_that_are_repeated_late_are_no_new_bytes() -> None:
    """The stream is as long as before, and goes on where it was."""
    story = Story()
    story.send(True, 6000)
    story.send(True, 1000, again=3000)
    story.send(True, 4000)
    (one,) = story.messages()
    assert (one.payload_byte, one.repeated_byte) == (8000, 1000 + 2000)


def test_a_message_starves_where_its_queue_was_empty() -> None:
    story = Story()
    story.send(True, 3 * 1448)
    story.now_ns += 5 * MS
    story.send(True, 2 * 1448)
    (one,) = story.messages()
    assert (one.starved_ns, one.ended_ns) == (5 * MS, 10 * MS)


def test_a_new_connection_between_the_same_ports_is_another_message() -> None:
    story = Story()
    story.send(True, 5000)
    story.packet(True, tcp(1, 0, b"", 99, flags=SYN))
    story.packet(False, tcp(0, 1, b"", 98, ports=(80, 4000), flags=SYN))
    story.sequence = {True: 100, False: 99}
    story.send(True, 6000)
    assert [one.payload_byte for one in story.messages()] == [5000, 6000]


def test_an_answer_to_the_opening_that_is_repeated_ends_nothing() -> None:
    """The server's SYN may come again while the client sends already."""
    story = Story()
    story.send(True, 5000)
    story.packet(False, tcp(0, 1, b"", 6, ports=(80, 4000), flags=SYN | ACK))
    story.send(True, 5000)
    assert [one.payload_byte for one in story.messages()] == [10_000]


def test_what_is_no_tcp_counts_as_bytes_only() -> None:
    story = Story()
    story.packet(True, udp(1, 0, b"x" * 5000))
    assert story.messages() == []
    assert story.traffic.air_byte == [5028, 0]


def test_a_message_that_its_killed_program_was_sending_is_lost() -> None:
    """Unless it had been answered, or its last packet had left long before."""
    story = Story()
    story.send(True, 20_000, b"POST / HTTP/1.1")
    story.send(False, 150, b"HTTP/1.1 200 OK")
    story.send(True, 30_000, b"POST / HTTP/1.1")
    story.traffic.died_ns[0] = story.now_ns
    assert [(message.payload_byte, message.lost) for message in story.messages()] == [(20_000, ""), (30_000, "left")]
    idle = Story()
    idle.send(True, 20_000)
    idle.traffic.died_ns[0] = idle.now_ns + 2000 * MS
    assert [message.lost for message in idle.messages()] == [""]

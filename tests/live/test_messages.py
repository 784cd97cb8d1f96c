"""Messages are found in the packets that pass, whatever a program sends around them."""

from fednet_emu.realtime.air import Departure
from fednet_emu.realtime.messages import Message, Traffic
from fednet_emu.realtime.packets import address, segment, way
from tests.live.made import ACK, SYN, tcp, udp

MS = 1_000_000


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
        """Ports."""
        return (4000, 80) if upwards else (80, 4000)

    def packet(self, upwards: bool, packet: bytes) -> None:
        """Packet."""
        start, self.now_ns = self.now_ns, self.now_ns + MS
        self.traffic.passed(Departure(0, packet, start, start, self.now_ns, float(MS)), upwards=upwards)

    def messages(self) -> list[Message]:
        """Messages."""
        self.traffic.close()
        return self.traffic.messages


def test_addresses_are_numbers_of_devices() -> None:
    """Addresses are numbers of devices."""
    assert [address(node) for node in (0, 1, 250, 255)] == ["10.77.0.1", "10.77.0.2", "10.77.0.251", "10.77.1.0"]
    assert way(3, 0) == bytes([10, 77, 0, 4, 10, 77, 0, 1]) == tcp(3, 0, b"")[12:20]
    assert way(255, 1) == bytes([10, 77, 1, 0, 10, 77, 0, 2])


def test_headers_of_tcp_say_what_is_payload() -> None:
    """Headers of tcp say what is payload."""
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
    """A request with a large body is one message and its answer none."""
    story = Story()
    story.send(True, 100_000, b"POST / HTTP/1.1")
    story.send(False, 120, b"HTTP/1.0 200 OK")
    (one,) = story.messages()
    assert (one.upwards, one.payload_byte, one.packets, one.air_byte) == (True, 100_000, 70, 100_000 + 70 * 52)
    assert (one.arrived_ns, one.started_ns, one.ended_ns, one.starved_ns) == (0, 0, 70 * MS, 0)
    assert one.power_ns == 70 * MS


def test_two_requests_on_one_connection_are_two_messages() -> None:
    """Two requests on one connection are two messages."""
    story = Story()
    for _ in range(2):
        story.send(True, 5000, b"POST / HTTP/1.1")
        story.send(False, 120, b"HTTP/1.1 200 OK")
    assert [one.payload_byte for one in story.messages()] == [5000, 5000]


def test_small_requests_separate_large_answers() -> None:
    """Small requests separate large answers."""
    story = Story()
    for size in (9000, 7000):
        story.send(True, 80, b"GET / HTTP/1.1")
        story.send(False, size, b"HTTP/1.1 200 OK")
    assert [(one.upwards, one.payload_byte) for one in story.messages()] == [(False, 9000), (False, 7000)]


def test_window_updates_do_not_tear_a_message_apart() -> None:
    """Window updates do not tear a message apart."""
    story = Story()
    for _ in range(5):
        story.send(True, 20_000)
        story.send(False, 120)
    (one,) = story.messages()
    assert (one.payload_byte, one.starved_ns) == (100_000, 4 * MS), "four answers of 1 ms in between"
    assert (one.packets, one.power_ns) == (5 * 14, 70 * MS)


def test_what_is_small_before_and_after_answers_is_cut_off() -> None:
    """What is small before and after answers is cut off."""
    story = Story()
    for size in (300, 300, 50_000, 400, 400):
        story.send(True, size)
        story.send(False, 100)
    (one,) = story.messages()
    assert one.payload_byte == 50_000
    assert (one.arrived_ns, one.ended_ns) == (4 * MS, 39 * MS)
    assert one.starved_ns == 0, "what was before it is no gap in it"


def test_small_talk_is_no_message() -> None:
    """Small talk is no message."""
    story = Story()
    for _ in range(3):
        story.send(True, 900)
        story.send(False, 900)
    assert story.messages() == []


def test_repeated_bytes_count_once_even_where_numbers_begin_again() -> None:
    """Repeated bytes count once even where numbers begin again."""
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
    """A message starves where its queue was empty."""
    story = Story()
    story.send(True, 3 * 1448)
    story.now_ns += 5 * MS
    story.send(True, 2 * 1448)
    (one,) = story.messages()
    assert (one.starved_ns, one.ended_ns) == (5 * MS, 10 * MS)


def test_a_new_connection_between_the_same_ports_is_another_message() -> None:
    """A new connection between the same ports is another message."""
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
    """What is no tcp counts as bytes only."""
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

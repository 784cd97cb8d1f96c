"""Reconstruction of the messages of programs from their packets.

On each TCP connection, a message is an uninterrupted sequence of payload in one direction. Short responses in the other
direction, of at most `ANSWER_BYTE` in total (such as window updates and pings of HTTP/2, in TLS records), do not
interrupt a message, unless the response is an unencrypted HTTP/1 message. Responses divide a message into sections. At
the start and at the end of the message, sections of less than `LEAST_BYTE` are cut off. Apart from the detection of
HTTP/1, only lengths of packets are used, so that messages may be encrypted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fednet_emu.realtime.air import Departure
from fednet_emu.realtime.packets import Segment, segment

ANSWER_BYTE = 200
"""Maximum total payload in bytes of a response in the other direction that does not interrupt a message."""
LEAST_BYTE = 2000
"""Minimum payload of a message in bytes; a smaller amount of consecutive payload counts as control traffic."""
_ROUND = 1 << 32
_UNDER_WAY_NS = 1_000_000_000
"""A message counts as incomplete if its program ends at most this time, in ns, after the message's last packet."""


@dataclass(slots=True)
class Message:
    """A message, or the section of a message between two short responses in the other direction.

    Attributes:
        upwards: True for a message on the uplink.
        device: the device that sends or receives the message.
        first, after: TCP sequence numbers of the first byte, and of the byte that follows the last byte.
        arrived_ns: time at which the first packet arrived in the queue.
        started_ns: start time of the first packet's transmission.
        ended_ns: end time of the last packet's transmission.
        packets: number of transmitted packets.
        repeated_byte: retransmitted payload in bytes.
        air_byte: transmitted bytes, with headers and retransmissions.
        starved_ns: total time, between packets of the message, for which the queue was empty.
        gap_ns: time for which the queue was empty before the first packet of this section.
        power_ns: the sender's power as a fraction of full power, integrated over time in ns.
        lost: reason why the message is incomplete, as in `records/reasons.py`; empty for a complete message.
    """

    upwards: bool
    device: int
    first: int
    after: int
    arrived_ns: int
    started_ns: int
    ended_ns: int
    packets: int = 0
    repeated_byte: int = 0
    air_byte: int = 0
    starved_ns: int = 0
    gap_ns: int = 0
    power_ns: float = 0.0
    lost: str = ""

    @property
    def payload_byte(self) -> int:
        """Payload of the message, in bytes."""
        return (self.after - self.first) % _ROUND

    def add(self, packet: Departure, its: Segment) -> None:
        """Add a transmitted packet, whose TCP segment is `its`, to the message."""
        end = (its.sequence + its.size_byte) % _ROUND
        if (new := (end - self.after) % _ROUND) < _ROUND // 2:
            self.repeated_byte += max(its.size_byte - new, 0)
            self.after = end
        else:
            self.repeated_byte += its.size_byte
        self.packets += 1
        self.air_byte += len(packet.packet)
        self.ended_ns = packet.ended_ns
        self.power_ns += packet.power_ns


def _whole(parts: Sequence[Message]) -> Message:
    first, last = parts[0], parts[-1]
    return replace(
        first,
        after=last.after,
        ended_ns=last.ended_ns,
        packets=sum(part.packets for part in parts),
        repeated_byte=sum(part.repeated_byte for part in parts),
        air_byte=sum(part.air_byte for part in parts),
        starved_ns=sum(part.starved_ns + part.gap_ns for part in parts) - first.gap_ns,
        power_ns=sum(part.power_ns for part in parts),
    )


class _Connection:
    """Reconstructs the messages of one TCP connection, from packets in the order of the ends of their transmissions."""

    def __init__(self) -> None:
        self._run: list[Message] = []  # parts of the current message
        self._answer: Message | None = None
        self._next: dict[bool, int] = {}  # sequence number of the next new byte, by direction

    def add(self, packet: Departure, its: Segment, *, upwards: bool) -> Sequence[Message]:
        """Add a packet with payload; return the message that ends because of this packet, or an empty sequence."""
        run, answer = self._run, self._answer
        ended: Sequence[Message] = ()
        if not run or upwards == run[0].upwards:
            if run and answer is None:
                part = run[-1]
                part.starved_ns += max(packet.arrived_ns - part.ended_ns, 0)
            else:
                gap_ns = max(packet.arrived_ns - run[-1].ended_ns, 0) if run else 0
                part = self._part(packet, its, upwards=upwards, gap_ns=gap_ns)
                run.append(part)
            self._answer = None
        else:
            part = self._answer = answer or self._part(packet, its, upwards=upwards)
        part.add(packet, its)
        self._next[upwards] = part.after
        if part is self._answer and (its.http or part.payload_byte > ANSWER_BYTE):
            ended = self.end()
            self._run = [part]
        return ended

    def _part(self, packet: Departure, its: Segment, *, upwards: bool, gap_ns: int = 0) -> Message:
        first = self._next.get(upwards, its.sequence)
        times_ns = packet.arrived_ns, packet.started_ns, packet.ended_ns
        return Message(upwards, packet.link, first, first, *times_ns, gap_ns=gap_ns)

    def end(self) -> Sequence[Message]:
        run, self._run, self._answer = self._run, [], None
        large = [place for place, part in enumerate(run) if part.payload_byte >= LEAST_BYTE]
        if large:
            return (_whole(run[large[0] : large[-1] + 1]),)
        if run and (whole := _whole(run)).payload_byte >= LEAST_BYTE:
            return (whole,)
        return ()


class Traffic:
    """Record of the packets in both directions, from which messages are reconstructed.

    Attributes:
        messages: the complete messages, in the order in which their ends were detected.
        air_byte: transmitted bytes with headers, on uplink and downlink.
        dropped: numbers of packets dropped on uplink and downlink because a queue was full.
        died_ns: end time in ns of each program that ended before the run, by device.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.air_byte, self.dropped = [0, 0], [0, 0]
        self.died_ns: dict[int, int] = {}
        self._connections: dict[tuple[int, int, int], _Connection] = {}

    def passed(self, packet: Departure, *, upwards: bool) -> None:
        """Record a transmitted packet; add a message to `messages` if the packet ends it."""
        self.air_byte[not upwards] += len(packet.packet)
        its = segment(packet.packet)
        if its is None:
            return
        ports = its.ports if upwards else its.ports[::-1]
        key = (packet.link, *ports)
        connection = self._connections.get(key)
        if its.opens:
            if connection is not None and upwards:
                self.messages += connection.end()
                del self._connections[key]
            return
        if connection is None:
            connection = self._connections[key] = _Connection()
        self.messages += connection.add(packet, its, upwards=upwards)

    def close(self) -> None:
        """End all messages. A message counts as lost if the program of its device ended during the message."""
        for (device, *_), connection in self._connections.items():
            for message in connection.end():
                died_ns = self.died_ns.get(device)
                if died_ns is not None and message.ended_ns > died_ns - _UNDER_WAY_NS:
                    message.lost = "left"
                self.messages.append(message)
        self._connections.clear()

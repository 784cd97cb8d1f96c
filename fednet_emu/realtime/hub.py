"""The hub: one loop through which every packet of a live run passes."""

from __future__ import annotations

import os
import select
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.realtime.air import Departure, LiveAir
from fednet_emu.realtime.messages import Traffic
from fednet_emu.realtime.packets import SERVER_NODE, ends

_AT_ONCE = 32
_PACKET_BYTE = 1 << 16


class Hub:
    """Reads packets from the nodes, lets each pass through the air, and writes it to its receiver when it is due.

    Instants of departures are computed in scenario time from the instants of arrivals; lateness of the host moves the
    writing of one packet and adds up to nothing.

    Args:
        clock: scenario time in ns, of the host's clock.
        ports: the file descriptor of each node, read and written a packet at a time without waiting.
        uplink: the air from devices to the server.
        downlink: the air from the server to devices.
        latency_ns: time beside the air that each packet takes, one way.
        is_there: tells whether a device is there at an instant; packets to and from others vanish. None: always.

    Attributes:
        traffic: what has passed.
        vanished: packets whose device was away, uplink and downlink.
        strays: packets that went to nobody, or from device to device.
        late_ns: for each second of scenario time, how late each packet was written.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        ports: Mapping[int, int],
        uplink: LiveAir,
        downlink: LiveAir,
        latency_ns: int,
        is_there: Callable[[int, int], bool] | None = None,
    ) -> None:
        self._clock, self._ports, self._latency_ns = clock, ports, latency_ns
        self._node = {port: node for node, port in ports.items()}
        self._waited = list(self._node)
        self._airs = (uplink, downlink)
        self._due: list[tuple[int, int, int, bytes]] = []  # heap of instants, in the order of their departures, ...
        self._count = 0
        self._is_there = is_there
        self.traffic, self.strays, self.vanished = Traffic(), 0, [0, 0]
        self.late_ns: dict[int, array[int]] = defaultdict(lambda: array("q"))

    def turn(self, longest_s: float, *also: int) -> list[int]:
        """Write what is due, wait for the next instant or packet, and take in what has come.

        Args:
            longest_s: the longest time to wait.
            also: further file descriptors that end the waiting.

        Returns:
            Those of `also` that can be read.
        """
        self._advance(self._clock())
        next_ns = min(self._airs[0].next_ns, self._airs[1].next_ns) + self._latency_ns  # nothing is due before
        if self._due and self._due[0][0] < next_ns:
            next_ns = self._due[0][0]
        wait_s = min(max(next_ns - self._clock(), 0) / NS_PER_S, longest_s)
        ready, _, _ = select.select(self._waited + list(also), [], [], wait_s)
        now_ns = self._clock()
        self._advance(now_ns)  # a packet must not come to links that are behind the time
        for port in ready:
            if port in self._node:
                self._read(port, self._node[port], now_ns)
        return [port for port in ready if port not in self._node]

    def _read(self, port: int, node: int, now_ns: int) -> None:
        for packet in self._packets(port):
            receiver = self._receiver(packet, node)
            if receiver is None:
                continue
            downwards = node == SERVER_NODE
            link = (receiver if downwards else node) - 1
            if self._is_there is not None and not self._is_there(link, now_ns):
                self.vanished[downwards] += 1
            elif not self._airs[downwards].put(link, packet, now_ns):
                self.traffic.dropped[downwards] += 1

    def _receiver(self, packet: bytes, node: int) -> int | None:
        """The node that a packet of this node is for; None for a stray."""
        sender, receiver = ends(packet) or (-1, -1)
        if sender != node or (node == SERVER_NODE) == (receiver == SERVER_NODE) or receiver not in self._ports:
            self.strays += 1
            return None
        return receiver

    def relay(self, longest_s: float, *also: int) -> list[int]:
        """Pass packets at once, and without a record, before scenario time begins; otherwise as `turn`."""
        ready, _, _ = select.select(self._waited + list(also), [], [], longest_s)
        for port in ready:
            for packet in self._packets(port) if port in self._node else ():
                receiver = self._receiver(packet, self._node[port])
                if receiver is not None:
                    self._write(self._ports[receiver], packet)
        return [port for port in ready if port not in self._node]

    @staticmethod
    def _packets(port: int) -> Iterator[bytes]:
        """The packets that have come from a node, up to a number."""
        for _ in range(_AT_ONCE):
            try:
                yield os.read(port, _PACKET_BYTE)
            except BlockingIOError:
                return

    def _advance(self, now_ns: int) -> None:
        """Let time pass until now in both directions, in order, and write the packets that are due."""
        up, down = self._airs
        while up.next_ns <= now_ns or down.next_ns <= now_ns:
            downwards = down.next_ns < up.next_ns
            air, other = (down, up) if downwards else (up, down)
            for packet in air.departures(min(other.next_ns, now_ns)):
                self._depart(packet, downwards=downwards)
        due = self._due
        while due and due[0][0] <= now_ns:
            due_ns, _, port, content = heappop(due)
            self._write(port, content)
            self.late_ns[now_ns // NS_PER_S].append(now_ns - due_ns)

    def _write(self, port: int, packet: bytes) -> None:
        try:
            os.write(port, packet)
        except OSError:  # the receiver's interface takes no more, or is gone
            self.strays += 1

    def _depart(self, packet: Departure, *, downwards: bool) -> None:
        if self._is_there is not None and not self._is_there(packet.link, packet.ended_ns):
            self.vanished[downwards] += 1
            return
        self.traffic.passed(packet, upwards=not downwards)
        receiver = packet.link + 1 if downwards else SERVER_NODE
        self._count += 1
        heappush(self._due, (packet.ended_ns + self._latency_ns, self._count, self._ports[receiver], packet.packet))

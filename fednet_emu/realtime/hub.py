"""The hub of a live run: a single loop that handles every packet."""

from __future__ import annotations

import os
import select
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Mapping

from fednet_emu.kernel.clock import NS_PER_S, to_ns
from fednet_emu.realtime.air import LiveAir
from fednet_emu.realtime.linux import MTU_BYTE
from fednet_emu.realtime.messages import Traffic
from fednet_emu.realtime.packets import SERVER_NODE, way

_AT_ONCE = 32
_IPV4 = 4


class Hub:
    """Reads packets from nodes, delays them as the emulated air would, and writes them to their receivers.

    Due times are computed in scenario time from the arrival times of packets. If the host is late, single packets are
    written late, but these delays do not accumulate.

    Args:
        clock: function that returns the scenario time in ns, which advances with the host's clock.
        ports: the file descriptor of each node, from and to which single packets can be read and written without
            blocking.
        uplink: the emulated air from devices to the server.
        downlink: the emulated air from the server to devices.
        latency_ns: one-way delay of each packet in ns, in addition to the time for queueing and transmission.
        is_there: function of a device and a time that returns True if the device is available. Packets to and from
            absent devices are dropped. None if all devices are always available.

    Attributes:
        traffic: record of the packets that have been transmitted.
        vanished: numbers of packets dropped on uplink and downlink because the device was absent.
        strays: number of packets that were discarded, because they have no receiver or go from device to device, or
            because the receiver's interface is full.
        late_ns: for each second of scenario time, the delays in ns between due time and writing of the packets.
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
        self._receivers = {
            port: {way(node, other): other for other in ports if (other == SERVER_NODE) != (node == SERVER_NODE)}
            for node, port in ports.items()
        }
        self._due: deque[tuple[int, int, bytes]] = deque()  # due time, port and content, in order
        self._is_there = is_there
        self.traffic, self.strays, self.vanished = Traffic(), 0, [0, 0]
        self.late_ns: dict[int, array[int]] = defaultdict(lambda: array("q"))

    def play(self, longest_s: float, *also: int) -> list[int]:
        """Handle packets for `longest_s` seconds, or until one of the file descriptors `also` is readable.

        Each iteration waits until a node sends a packet or a packet is due, writes due packets, and reads new packets.

        Returns:
            The file descriptors in `also` that are readable.
        """
        clock, waited, (up, down) = self._clock, [*self._waited, *also], self._airs
        end_ns = clock() + to_ns(longest_s)
        while True:
            next_ns = min(up.awaited_ns, down.awaited_ns) + self._latency_ns  # no packet in transmission is due earlier
            if self._due and self._due[0][0] < next_ns:
                next_ns = self._due[0][0]
            wait_ns = (next_ns if next_ns < end_ns else end_ns) - clock()
            ready, _, _ = select.select(waited, [], [], wait_ns / NS_PER_S if wait_ns > 0 else 0.0)
            now_ns = clock()
            self._advance(now_ns)  # before a packet arrives, its link must have advanced to the current time
            news = []
            for port in ready:
                if port in self._node:
                    self._read(port, now_ns)
                else:
                    news.append(port)
            if news or now_ns >= end_ns:
                return news

    def relay(self, longest_s: float, *also: int) -> list[int]:
        """Forward packets without delay and without records, before scenario time begins.

        Return the file descriptors in `also` that become readable within `longest_s` seconds.
        """
        ready, _, _ = select.select([*self._waited, *also], [], [], longest_s)
        for port in ready:
            for packet, receiver in self._packets(port) if port in self._node else ():
                self._write(self._ports[receiver], packet)
        return [port for port in ready if port in also]

    def _read(self, port: int, now_ns: int) -> None:
        node, is_there = self._node[port], self._is_there
        downwards = node == SERVER_NODE
        put = self._airs[downwards].put
        for packet, receiver in self._packets(port):
            link = (receiver if downwards else node) - 1
            if is_there is not None and not is_there(link, now_ns):
                self.vanished[downwards] += 1
            elif not put(link, packet, now_ns):
                self.traffic.dropped[downwards] += 1

    def _packets(self, port: int) -> list[tuple[bytes, int]]:
        """Read up to `_AT_ONCE` packets from a node; return each packet that has a receiver, with the receiver."""
        receivers, found = self._receivers[port], []
        try:
            for _ in range(_AT_ONCE):
                packet = os.read(port, MTU_BYTE)
                receiver = receivers.get(packet[12:20]) if packet[0] >> 4 == _IPV4 else None
                if receiver is None:
                    self.strays += 1
                else:
                    found.append((packet, receiver))
        except BlockingIOError:
            pass
        return found

    def _advance(self, now_ns: int) -> None:
        up, down = self._airs
        while up.next_ns <= now_ns or down.next_ns <= now_ns:
            downwards = down.next_ns < up.next_ns
            air, other = (down, up) if downwards else (up, down)
            self._depart(air, min(other.next_ns, now_ns), downwards=downwards)
        due = self._due
        if due and due[0][0] <= now_ns:
            late_ns = self.late_ns[now_ns // NS_PER_S]
            while due and due[0][0] <= now_ns:
                due_ns, port, packet = due.popleft()
                self._write(port, packet)
                late_ns.append(now_ns - due_ns)

    def _depart(self, air: LiveAir, until_ns: int, *, downwards: bool) -> None:
        """Advance one direction to `until_ns`; schedule transmitted packets for their receivers, or drop them."""
        ports, latency_ns, is_there, passed = self._ports, self._latency_ns, self._is_there, self.traffic.passed
        for gone in air.departures(until_ns):
            if is_there is not None and not is_there(gone.link, gone.ended_ns):
                self.vanished[downwards] += 1
                continue
            passed(gone, upwards=not downwards)
            receiver = gone.link + 1 if downwards else SERVER_NODE
            self._due.append((gone.ended_ns + latency_ns, ports[receiver], gone.packet))

    def _write(self, port: int, packet: bytes) -> None:
        try:
            os.write(port, packet)
        except OSError:  # the receiver's interface is full or closed
            self.strays += 1

"""The backhaul: one first-come, first-served link in each direction between the cloud and each edge server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, final

from pydantic import Field
from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.kernel.clock import NS_PER_S, Clock, Timer, to_ns
from fednet_emu.kernel.events import Completion
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.network.faults import AnyLoss, NoLoss
from fednet_emu.records.ledger import NEVER_NS, SERVER, Ledger
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import DIRECTIONS, BackhaulRow


class BackhaulSettings(Component):
    """Lines between base stations and the cloud: one line per station and direction, which sends one message at a time.

    Messages are sent in the order in which they reach the line. On a free line, a message of b bits arrives after b /
    `rate_bps` + `delay_s` seconds. The defaults describe an ideal backhaul: messages arrive immediately and use no
    energy. Messages have the headers of `network.overhead`.
    """

    rate_bps: float | None = Field(None, gt=0)
    """Rate in bit/s of each line; null for no limit."""
    delay_s: float = Field(0.0, ge=0)
    """Time in s from the end of sending a message to its arrival; the next message may be sent during this time."""
    energy_j_per_bit: float = Field(0.0, ge=0)
    """Energy in J per bit sent, summed over both ends of a line and all equipment between them."""
    message_loss: AnyLoss = NoLoss()
    """Random loss of messages; a lost message still takes time and energy."""


class EdgeServers(Component):
    """An edge server in each base station, for algorithms that average models in edge servers and then in the cloud."""

    backhaul: BackhaulSettings = BackhaulSettings()

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        why = "has no edge servers, so that its base stations pass everything on"
        yield from scenario.unless_used("edges", why, "a backhaul")


_RATE = "network.edge_servers.backhaul.rate_bps"

Line = deque["Message"]
"""Queue of messages on a backhaul line. The first message is being sent, and all other messages wait."""


@final
class Message(Completion):
    """Event that triggers when a message has arrived or is lost; the value of the event is the `Delivery`."""

    def __init__(self, backhaul: Backhaul, edge: int, *, up: bool, payload: Any, number: int, size_bit: int) -> None:
        super().__init__(backhaul.clock)
        self._backhaul = backhaul
        self.edge, self.up, self.payload, self.number, self.size_bit = edge, up, payload, number, size_bit
        self.requested_ns: int = backhaul.clock.now
        self.started_ns = NEVER_NS
        self.timer: Timer | None = None
        self.cancelled = False

    def cancel(self, outcome: Any) -> None:
        self._backhaul.cancel(self, outcome.lost)

    def describe(self) -> str:
        return f"the message {'from' if self.up else 'to'} edge server {self.edge} on the backhaul"


@final
class Backhaul:
    """The backhaul lines of all edge servers; an edge server has the index of its cell."""

    def __init__(self, clock: Clock, ledger: Ledger, settings: BackhaulSettings, loss_key: int) -> None:
        self.clock, self.settings = clock, settings
        self._ledger, self._loss_key = ledger, loss_key
        self._lines: dict[tuple[int, bool], Line] = {}
        self._sent: dict[tuple[int, bool], int] = {}
        self._under_way: dict[Message, None] = {}

    def send(self, edge: int, *, up: bool, payload: Any, number: int, size_bit: int) -> Message:
        """Send a message from the edge server `edge` to the cloud, or to the edge server if `up` is False.

        The message waits until the backhaul line is free. The returned event triggers when the message arrives or is
        lost.
        """
        message = Message(self, edge, up=up, payload=payload, number=number, size_bit=size_bit)
        self._under_way[message] = None
        line = self._lines.setdefault((edge, up), deque())
        line.append(message)
        if len(line) == 1:
            self._start(line)
        return message

    def cancel(self, message: Message, reason: str) -> None:
        """Cancel a message that has not arrived yet, and record the bits sent so far; its event never triggers."""
        if message.triggered or message.cancelled:
            return
        message.cancelled = True
        if message.timer is not None:
            message.timer.cancel()
        line, sent_bit = self._lines[message.edge, message.up], message.size_bit
        if message in line:
            sent_bit = self._sent_so_far(message)
            begun = message is line[0]
            line.remove(message)
            if begun and line:
                self._start(line)
        self._record(message, sent_bit, reason)

    def close(self) -> None:
        for message in reversed(list(self._under_way)):  # waiting messages first, so that no waiting message starts
            self.cancel(message, "end")

    def _sent_so_far(self, message: Message) -> int:
        if message.started_ns == NEVER_NS:
            return 0
        elapsed_s, rate_bps = (self.clock.now - message.started_ns) / NS_PER_S, self.settings.rate_bps
        return message.size_bit if rate_bps is None else min(round(rate_bps * elapsed_s), message.size_bit)

    def _start(self, line: Line) -> None:
        message, rate_bps, now_ns = line[0], self.settings.rate_bps, self.clock.now
        message.started_ns = now_ns
        takes_ns = 0 if rate_bps is None else to_ns(message.size_bit / rate_bps, _RATE)
        message.timer = self.clock.call_at(now_ns + takes_ns, lambda _: self._leave(line))

    def _leave(self, line: Line) -> None:
        message = line.popleft()
        if line:
            self._start(line)
        if self.settings.delay_s == 0:
            self._arrive(message)
        else:
            arrives_ns = self.clock.now + to_ns(self.settings.delay_s)
            message.timer = self.clock.call_at(arrives_ns, lambda _: self._arrive(message))

    def _arrive(self, message: Message) -> None:
        line, now_ns = (message.edge, message.up), self.clock.now
        count = self._sent[line] = self._sent.get(line, -1) + 1
        key = mix(mix(self._loss_key, message.edge), int(message.up))
        lost = self.settings.message_loss.fate(message, uniform(key, count))
        message.complete(
            Delivery(
                SERVER,
                SERVER,
                None if lost else message.payload,
                message.size_bit,
                message.requested_ns / NS_PER_S,
                message.started_ns / NS_PER_S,
                now_ns / NS_PER_S,
                lost,
            ),
        )
        self._record(message, message.size_bit, lost)
        self.clock.trigger_now([message])

    def _record(self, message: Message, sent_bit: int, lost: str) -> None:
        del self._under_way[message]
        ledger, energy_j = self._ledger, self.settings.energy_j_per_bit * sent_bit
        ledger.backhaul_bit += sent_bit
        ledger.backhaul_j += energy_j
        ledger.energy_j += energy_j
        ledger.backhaul.append(
            BackhaulRow(
                direction=DIRECTIONS.index("up" if message.up else "down"),
                edge=message.edge,
                size_bit=message.size_bit,
                value_id=message.number,
                requested_ns=message.requested_ns,
                started_ns=message.started_ns,
                ended_ns=self.clock.now,
                sent_bit=sent_bit,
                delivered_bit=0 if lost else message.size_bit,
                loss_reason=CODE[lost],
                energy_j=energy_j,
            )
        )

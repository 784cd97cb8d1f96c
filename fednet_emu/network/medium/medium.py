"""The medium: one shared band, which carries each transfer from its request to its delivery.

All transmission starts and ends at the same instant are processed in one step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter, itemgetter
from typing import Any, final

import numpy as np
from simpy.events import Event

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.availability import Presence
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock, Timer, to_ns
from fednet_emu.network.access.base import Use
from fednet_emu.network.air.patience import LEAST_S, MOST_S, NOTICE_S, Patience
from fednet_emu.network.air.transfer import Burst, Delivery, FileTransfer, Message, Phases, Transfer, Unheard
from fednet_emu.network.cells import Serving
from fednet_emu.network.faults import Faults
from fednet_emu.network.links.links import Links, LinksOverTime, radio_of
from fednet_emu.network.medium.loads import RadioLoads, Radios
from fednet_emu.network.settings import Uplink
from fednet_emu.network.traces.series import DeviceRates
from fednet_emu.network.traffic.turns import SharedTurns
from fednet_emu.network.transport.slow_start import SlowStartAir
from fednet_emu.network.transport.transports import Connections
from fednet_emu.records.ledger import SEVERAL, Ledger, device_label
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import KINDS, ReceptionRow

Row = tuple[float, float, list[float], int]
"""Results of a transmission: a tuple of the number of transmitted bits, the energy in J that the sender has used, a
list of the energies in J that the receivers have used, and the end time of the transmission in ns."""


@final
class Medium:
    """One shared band in one direction (uplink, downlink or sidelink), in one or several cells.

    A transfer waits for its connection and its grant, then waits in the queue, and is then transmitted. The reception
    ends later than the transmission, by the time for propagation and decoding. The next transfer may be transmitted
    during this time.

    Attributes:
        has_snr: True if links have an SNR. Wired links and links with recorded rates have no SNR.
        is_delayed: True if transfers have delays other than the time in the queue and the airtime.
        is_shared: True if users outside the federation also transmit files in the band.

    Args:
        use: the access scheme's settings for the band: its queue, rate model, delays and default timeouts.
        rates: recorded rates, at which `use` carries bits; None if the channel determines the rates.
        hands_over: True if a device may change cells (handover) during a transfer.
        connections: connections of the transport protocol; None if there is no transport protocol.
    """

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        presence: Presence,
        settings: Uplink,
        use: Use,
        links: LinksOverTime,
        radios: Radios,
        *,
        loss_key: int = 0,
        cells: int = 1,
        rates: DeviceRates | None = None,
        hands_over: bool = False,
        connections: Connections | None = None,
    ) -> None:
        self.clock, self.ledger, self.settings = clock, ledger, settings
        self.links, self.radios, self.rates = links, radios, rates
        self.kind = KINDS.index(settings.DIRECTION)
        self.band, self.turns, self.air, self._before_ns, self._after_ns, patience = use
        self.has_snr = rates is None and not settings.access.wired
        self.is_delayed = any(part is not None for part in (connections, use.before, use.after))
        self.is_shared = isinstance(self.turns, SharedTurns)
        self._connections = connections
        self._waits: list[tuple[int, bool, int, Callable[..., object], tuple[Any, ...]]] = []
        """Heap of scheduled calls. Each entry is (time in ns, True if the call ends the wait of a transfer for its
        connection or grant, serial number, function, arguments)."""
        self._number = count()
        self._late: dict[Transfer, tuple[Burst, Row | None]] = {}
        """Transfers whose transmission has ended but which are not delivered yet. Each is mapped to its burst and to
        the results of the burst; the results are None if they are recorded independently of the transfer."""
        self._moving = self.air if self.air.follows_movement else None
        self._moves_ns = links.until_ns() if self._moving is not None else FOREVER_NS
        self._links = None if links.until_ns() < FOREVER_NS or rates is not None else links.now()
        self._slow_start: SlowStartAir | None = None
        if connections is not None and connections.window is not None:
            self.air = self._slow_start = SlowStartAir(self.air, connections.window)
        self._serving = Serving(links, ledger, during=hands_over) if cells > 1 else None
        self._requests: list[Transfer] = []
        self._on_air: dict[Transfer, Burst] = {}
        self._started: list[Burst] = []  # bursts that start at the present time
        self._came: list[Event] = []
        self.unheard: list[Unheard] = []
        self._timer: Timer | None = None
        self._due_ns = FOREVER_NS
        timeout_s = settings.timeout_s
        self.patience = patience if timeout_s is None else None
        self._notice_ns = to_ns(min(NOTICE_S, MOST_S if timeout_s is None else timeout_s))
        self.timeout_ns = to_ns(LEAST_S if self.patience else MOST_S if timeout_s is None else timeout_s)
        self.faults = Faults(presence, settings.message_loss, loss_key, self.band.numbers)
        self._powers_differ, self._full_w = radios.differ, radios.full_w
        self._stop, self._broadcasts = self.cancel, settings.broadcasts
        batteries = presence.batteries
        self._loads = None if batteries is None else RadioLoads(batteries, radios, self._lose)
        self._draws_differ = self._loads is not None or radios.differ
        self._receives = radios.rx_consumption_w is not None or radios.rx_j_per_bit > 0
        is_plain = self._loads is None and self._serving is None and not self.is_delayed and not self.is_shared
        self._leave = self._end_alone if is_plain else self._end

    @property
    def is_certain(self) -> bool:
        """True if the links alone determine all airtimes.

        The value is False if there are other users, batteries, delays, absent devices, movement, several cells,
        recorded rates or outages.
        """
        one_band = self.rates is None and self._serving is None and self.links.until_ns() == FOREVER_NS
        unbroken = not self.is_shared and self._loads is None and not self.faults.ending
        return one_band and unbroken and not self.ledger.has_phases and self.band.outage_sinr <= 0

    @property
    def is_idle(self) -> bool:
        return not (self._requests or self._on_air or self._waits or any(self.turns.waiting()))

    @property
    def is_timed(self) -> bool:
        return self._timer is not None

    @property
    def is_foreign(self) -> bool:
        """True if all transfers that wait or are on the air are files of users outside the federation."""
        here = (self._requests, self._on_air, self._early(), self._late, self.turns.waiting())
        return all(type(transfer) is FileTransfer for some in here for transfer in some)

    def _early(self) -> list[Transfer]:
        waits = sorted((wait for wait in self._waits if wait[1]), key=itemgetter(2))
        return [transfer for *_, (transfer, *_) in waits if not transfer.cancelled]

    def drawn_w(self, sender: int, power_part: float = 1.0) -> float:
        """Return the power in W that a sender consumes if it transmits at the share `power_part` of its full power."""
        if not self._powers_differ and power_part == 1.0:
            return self._full_w
        return self.radios.drawn_w(sender, self.links.now().power_w(sender), power_part)

    def send(
        self,
        sender: int,
        receiver: int,
        message: Message,
        *,
        cluster: int = 0,
        power_part: float = 1.0,
        cls: type[Transfer] = Transfer,
    ) -> Transfer:
        """Request a transfer now; the returned event triggers when the transfer is delivered or lost.

        Args:
            sender: device number of the sender, or `SERVER`.
            receiver: device number of the receiver, or `SERVER`.
            message: the message to send.
            cluster: cluster of sender and receiver, for access schemes in which clusters send simultaneously.
            power_part: share of its full power that the sender uses; a sender that is already on the air keeps its
                current share. No effect with recorded rates.
            cls: class of the transfer; the bits of a `FileTransfer` do not count as offered bits.
        """
        if sender == receiver:
            raise ValueError(f"{device_label(sender)} sends to itself; leave it out of the receivers")
        transfer = cls(self.clock, self.kind, self._stop, sender, receiver, message)
        transfer.cluster = cluster
        if transfer.grant is not None:
            power_part *= transfer.grant.power_part
        transfer.power_part = power_part
        if power_part != 1.0:
            self._draws_differ = True
        self.ledger.offered_bit[self.kind] += transfer.size_bit * (cls is Transfer)
        settles_ns = now_ns = self.clock.now
        if self.is_delayed:
            if self._connections is None:
                phases = Phases(transfer.size_bit, transfer.size_bit)
            else:
                phases = self._connections.enter(transfer, now_ns)
            if self._before_ns is not None and not phases.refused:
                phases.grant_delay_ns = self._before_ns(transfer, now_ns + phases.connection_setup_ns)
            transfer.phases, transfer.size_bit = phases, phases.wire_bit
            settles_ns += phases.connection_setup_ns + phases.grant_delay_ns
        if settles_ns > now_ns:
            ready = self._requests.append if transfer.phases is None or not transfer.phases.refused else self._refuse
            heappush(self._waits, (settles_ns, True, next(self._number), ready, (transfer,)))
        else:
            self._requests.append(transfer)
            # If no burst can start, the request is queued when one ends. Delayed requests must keep their order.
            if self.turns.left <= 0 and self._serving is None and not self.is_delayed:
                return transfer
        if settles_ns < self._due_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._due_ns, self._timer = settles_ns, self.clock.call_at(settles_ns, self._settle)
        return transfer

    def send_all(self, sender: int, receivers: Sequence[int], message: Message) -> list[Transfer]:
        if self.is_delayed or not receivers:
            return [self.send(sender, end, message) for end in receivers]
        clock, kind, stop = self.clock, self.kind, self._stop
        transfers = [Transfer(clock, kind, stop, sender, end, message) for end in receivers]
        self.ledger.offered_bit[kind] += message.size_bit * len(transfers)
        self._requests += transfers
        if self.turns.left > 0 or self._serving is not None:
            self._settle_at(clock.now)
        return transfers

    def cancel(self, transfer: Transfer, reason: str) -> None:
        """Cancel a transfer that has not been delivered yet, and record its airtime so far; its event never triggers.

        If the transfer is part of a broadcast, the broadcast continues for its remaining receivers. It ends immediately
        if no receiver remains. Transfers that have already ended are not changed.
        """
        if transfer.triggered or transfer.cancelled:
            return
        transfer.cancelled = reason
        if transfer in self._late:
            self._give_up(transfer, reason)
            return
        burst = self._on_air.get(transfer)
        if burst is None:
            self._drop(transfer, reason)
            return
        now_ns = self.clock.now
        self._cut(transfer, burst, reason)
        if all(leg.cancelled for leg in burst):
            for ended in self.air.advance(now_ns):
                self._end(ended, now_ns)
        self._settle_at(now_ns)

    def _give_up(self, leg: Transfer, reason: str) -> None:
        """Cancel a transfer after its transmission; record its burst now if no other transfer of the burst remains."""
        burst, row = self._late[leg]
        if row is None:
            del self._late[leg]
            return
        leg.lost = reason
        if all(other.lost for other in burst):
            self._write(burst, row)
            self._deliver([other for other in burst if other in self._late])
            burst.clear()  # prevents a second row at the end of the burst's tail
            self._settle_at(self.clock.now)

    def _cut(self, leg: Transfer, burst: Burst, reason: str) -> None:
        if leg.until_ns >= self.clock.now:  # a receiver of a broadcast may have left before
            leg.until_ns, leg.until_reason = self.clock.now, reason
        self.air.cut(leg, burst, self.clock.now)

    def _lose(self, legs: Burst) -> None:
        for leg in legs:
            self._cut(leg, self._on_air[leg], "empty")
        self._settle_at(self.clock.now)

    def close(self) -> None:
        for transfer in [*self._on_air, *self.turns.waiting(), *self._requests, *self._early(), *self._late]:
            self.cancel(transfer, "end")

    def expected_bps(self, devices: IntArray, links: Links, at_s: float) -> Array:
        """Return the rate in bit/s of the link between the server and each of `devices` [n].

        The rate assumes that the link is alone in the band and has its mean SNR. If there are recorded rates, the
        result is the recorded rate at the time `at_s` in s.
        """
        if self.rates is not None:
            return self.rates.rates_bps(devices, at_s)
        stations = np.array([links.station_of(device) for device in devices.tolist()], np.int64)
        return self.band.mean_bps(links.snrs(devices, stations))

    def _settle_at(self, time_ns: int) -> None:
        """Schedule `_settle` at the time `time_ns` in ns, in place of the call that is already scheduled.

        `time_ns` must not be later than the time of that call.
        """
        if self._due_ns != time_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._due_ns, self._timer = time_ns, self.clock.call_at(time_ns, self._settle)

    def _settle(self, timer: Any) -> None:
        """Process all that is due now: ends of transmissions, then new requests in a fixed order, then starts."""
        now_ns, turns, air, waits = self.clock.now, self.turns, self.air, self._waits
        self._due_ns, self._timer, queue = FOREVER_NS, None, turns.only
        while waits and waits[0][0] <= now_ns:
            *_, call, given = heappop(waits)
            call(*given)
        for burst in air.advance(now_ns):
            self._leave(burst, now_ns)
        if now_ns >= self._moves_ns:
            self._move()
        if len(self._requests) == 1 and self._serving is None and queue is not None:
            queue.append([self._requests.pop()])
        elif self._requests:
            self._enqueue()
        while queue and turns.left:
            self._start(queue.popleft())
        if queue is None:
            turns.start_ready(self._start)
        started, self._started = self._started, []
        next_ns = air.start(started, now_ns)
        if self._draws_differ:
            self._draw(started)
        if self._moves_ns < next_ns < FOREVER_NS:
            next_ns = self._moves_ns
        if waits and waits[0][0] < next_ns:
            next_ns = waits[0][0]
        if next_ns < FOREVER_NS:
            self._due_ns, self._timer = next_ns, self.clock.call_at(next_ns, self._settle, again=timer)
        if self._came:
            came, self._came = self._came, []
            self.clock.trigger_now(came)

    def _draw(self, started: list[Burst]) -> None:
        for burst in started:
            first = burst[0]
            if self._powers_differ or first.power_part != 1.0:
                first.drawn_w = self.drawn_w(first.sender, first.power_part)
            if self._loads is not None and type(first) is not FileTransfer:
                self._loads.start(burst)
        if self._loads is not None:
            self._loads.follow(self.air.powers())
            self._loads.follow_bits(self.air.rates())

    def _move(self) -> None:
        """Start a movement period: transfers on the air get new links, and their senders get new transmit powers."""
        if self._slow_start is not None:
            self._slow_start.settle()
        self._moves_ns = self.links.until_ns()
        if self._moving is None or not self._on_air:
            return
        if self._serving is not None:
            self._serving.hand_over(self._on_air, self.clock.now)
        self._moving.move()
        if self._powers_differ or self._serving is not None:
            for burst in self._on_air.values():
                burst[0].drawn_w = self.drawn_w(burst[0].sender, burst[0].power_part)

    def _enqueue(self) -> None:
        """Sort the new requests and add them to the queue.

        All requests of a broadcast become one burst (one transmission). Any other request is a burst with one transfer.
        """
        requests = sorted(self._requests, key=CANONICAL)
        self._requests.clear()
        if self._serving is not None:
            for transfer in requests:
                self._serving.serve(transfer)
        links = self._links or self.links.now()
        if links.of_device is None:
            links.learn((transfer.sender, transfer.receiver) for transfer in requests)
        bursts, broadcasts = defaultdict[Any, Burst](list), self._broadcasts
        for place, transfer in enumerate(requests):
            key: Any = place
            if broadcasts and transfer.group is not None:
                its = transfer.requested_ns, transfer.cell, transfer.cluster, transfer.sender, transfer.power_part
                key = *its, transfer.size_bit, transfer.group
            bursts[key].append(transfer)
        if self.turns.only is not None:
            self.turns.only.extend(bursts.values())
            return
        for burst in bursts.values():
            self.turns.add(burst)

    def _start(self, burst: Burst) -> bool:
        """Start a burst, after removing its cancelled transfers and its transfers from or to absent devices.

        Returns:
            True if the burst has started; False if no transfer of the burst remains.
        """
        now_ns, gaps_ns, on_air, some_are_gone = self.clock.now, 0, self._on_air, False
        if self._connections is not None:
            gaps_ns = max([self._connections.start(transfer, now_ns) for transfer in burst])
            if self.settings.timeout_s is not None:
                gaps_ns = 0  # timeouts set in the scenario include the gaps of slow start; default timeouts do not
        links = self._links if self._links is not None or self.rates is not None else self.links.now()
        patience, known = self.patience, None if links is None else links.of_device
        for transfer in burst:
            if transfer.cancelled:
                some_are_gone = True
                continue
            transfer.until_ns = now_ns + self.timeout_ns + gaps_ns
            if self.is_shared and type(transfer) is FileTransfer:
                transfer.until_ns = FOREVER_NS
            if links is not None:
                if known is not None:
                    device = transfer.sender if transfer.receiver < 0 else transfer.receiver
                    snr, transfer.fading_key = known[0][device], known[1][device]
                else:
                    ends = _radios(transfer) if self._serving is not None else (transfer.sender, transfer.receiver)
                    snr, transfer.fading_key = links.link(*ends)
                transfer.snr = snr = snr * transfer.power_part
                if patience is not None and snr < patience.ample[transfer.size_bit.bit_length()]:
                    self._limit(transfer, patience, gaps_ns)
            if self.faults.ending and not self._may_start(transfer, now_ns):
                some_are_gone = True
                continue
            transfer.started_ns = now_ns
            on_air[transfer] = burst
        if some_are_gone:
            burst[:] = [transfer for transfer in burst if transfer.started_ns == now_ns]
            if not burst:
                return False
        burst[0].drawn_w = self._full_w
        self._started.append(burst)
        self.turns.left -= 1
        return True

    def _limit(self, transfer: Transfer, patience: Patience, gaps_ns: int) -> None:
        """Set the timeout of a transfer that starts now.

        `gaps_ns` is the time in ns for which the transfer may wait for acknowledgements, and is added to the timeout. A
        transfer with a timeout of 0 is lost for the reason "unreachable".
        """
        limit_ns = patience.limit_ns(transfer.size_bit, transfer.snr, los=transfer.fading_key & 1 == 1)
        transfer.until_ns = self.clock.now + limit_ns + (gaps_ns if limit_ns else 0)
        if not limit_ns:
            transfer.until_reason = "unreachable"

    def _may_start(self, transfer: Transfer, now_ns: int) -> bool:
        """Return True if no fault prevents a transfer from starting.

        If a fault prevents the start, record the transfer as lost. If a fault ends the transfer before its timeout, set
        its `until_ns` to the time of the fault.
        """
        for fault in self.faults.ending:
            until_ns = fault.until_ns(transfer, now_ns)
            if until_ns <= now_ns:
                self._drop(transfer, fault.unsent)
                return False
            if until_ns < transfer.until_ns:
                transfer.until_ns, transfer.until_reason = until_ns, fault.reason
        return True

    def _refuse(self, transfer: Transfer) -> None:
        if not transfer.cancelled and transfer.phases is not None:
            self._drop(transfer, transfer.phases.refused)

    def _drop(self, transfer: Transfer, reason: str) -> None:
        """Record a transfer that was lost or cancelled before its start; trigger the event of a lost transfer."""
        if self._serving is not None:
            self._serving.release(transfer)
        if transfer.phases is not None:
            transfer.phases.cut(self.clock.now - transfer.requested_ns)
        transfer.lost = reason
        self._write([transfer], (0.0, 0.0, [0.0], self.clock.now))
        self._deliver([transfer])

    def _end_alone(self, burst: Burst, now_ns: int) -> None:
        """End a burst on the air, in a faster way than `_end`; only for a medium without delays.

        If the burst has several receivers, or if it is lost or cancelled, this method calls `_end`.
        """
        leg = burst[0]
        if len(burst) > 1 or leg.lost or leg.cancelled:
            self._end(burst, now_ns)
            return
        ledger, radios, kind, size_bit, started_ns = self.ledger, self.radios, self.kind, leg.size_bit, leg.started_ns
        turns, transmitted_bit, rx_energy_j, lost = self.turns, leg.transmitted_bit, 0.0, ""
        turns.left += 1
        if turns.only is None:
            turns.give_back(burst)
        del self._on_air[leg]
        if self.faults.losing or leg.grant is not None:
            lost = leg.lost = self.faults.fate(leg)
        energy_j, bits_j = leg.spent_j + leg.drawn_w * leg.power_s, radios.tx_j_per_bit * transmitted_bit
        if radios.rx_consumption_w is not None:
            rx_energy_j = radios.rx_consumption_w[leg.receiver] * (now_ns - started_ns) / NS_PER_S
        if radios.rx_j_per_bit:
            rx_energy_j += radios.rx_j_per_bit * transmitted_bit
        ledger.energy_j += energy_j + bits_j + rx_energy_j
        ledger.sent_bit[kind] += size_bit if transmitted_bit >= size_bit else round(transmitted_bit)
        row = (  # a `TransferRow`
            kind, leg.sender, leg.receiver, 1, size_bit, leg.number, leg.requested_ns, started_ns, now_ns,
            transmitted_bit, 0 if lost else size_bit, CODE[lost], energy_j + bits_j, rx_energy_j, turns.lane(leg),
            leg.snr if self.has_snr else 0.0,
        )  # fmt: skip
        ledger.transfers.append((*row, 0, 0, 0, 0, size_bit, 0) if ledger.has_phases else row)
        leg.complete(_new(Delivery, (
            leg.sender, leg.receiver, None if lost else leg.content, size_bit,
            leg.requested_ns / NS_PER_S, started_ns / NS_PER_S, now_ns / NS_PER_S, lost,
        )))  # fmt: skip
        self._came.append(leg)
        if not leg.callbacks:
            self.unheard.append(Unheard(leg))

    def _end(self, burst: Burst, now_ns: int) -> None:
        """End a burst on the air: compute its energies and outcomes, and deliver its transfers.

        A transfer with a delay between transmission and reception is delivered after this delay.
        """
        turns, first, reception_delay_ns = self.turns, burst[0], 0
        received: Burst = []
        tails: Burst = []
        turns.left += 1
        if turns.only is None:
            turns.give_back(burst)
        for leg in burst:
            del self._on_air[leg]
            if self._serving is not None:
                self._serving.release(leg)
            if leg.cancelled:
                leg.lost = leg.cancelled
                continue
            if (self.faults.losing or leg.grant is not None) and not leg.lost:
                leg.lost = self.faults.fate(leg)
            if leg.lost == "unreachable" and now_ns < leg.started_ns + self._notice_ns:
                self._late[leg] = [leg], None
                noticed_ns = leg.started_ns + self._notice_ns
                heappush(self._waits, (noticed_ns, False, next(self._number), self._deliver, ([leg],)))
                continue
            own_ns = 0
            if leg.phases is not None and not leg.lost:
                own_ns = 0 if self._after_ns is None else self._after_ns(leg, now_ns)
                own_ns += 0 if self._connections is None else self._connections.leave(leg, now_ns)
                leg.phases.reception_delay_ns = own_ns
            (tails if own_ns else received).append(leg)
            reception_delay_ns = max(reception_delay_ns, own_ns)
        transmitted_bit, counts = max([leg.transmitted_bit for leg in burst]), type(first) is not FileTransfer
        energy_j = counts * (first.spent_j + first.drawn_w * first.power_s)
        bits_j = counts * (self.radios.tx_j_per_bit * transmitted_bit)
        each_j = [0.0] * len(burst)
        if counts and self._loads is not None:
            each_j = self._loads.end(burst, energy_j, bits_j, now_ns)
        elif counts and self._receives:
            each_j = self.radios.received_j(burst, now_ns)
        self.ledger.energy_j += energy_j + bits_j + sum(each_j)
        row = transmitted_bit, energy_j + bits_j, each_j, now_ns
        if tails:
            self._late.update(dict.fromkeys(tails, (burst, row)))
            heappush(self._waits, (now_ns + reception_delay_ns, False, next(self._number), self._write, (burst, row)))
            heappush(self._waits, (now_ns + reception_delay_ns, False, next(self._number), self._deliver, (tails,)))
        else:
            self._write(burst, row)
        if received:
            self._deliver(received)

    def _write(self, burst: Burst, row: Row) -> None:
        if not burst or type(burst[0]) is FileTransfer:
            return  # already recorded, or recorded in the table of other users
        ledger, now_ns = self.ledger, self.clock.now
        first, several, (transmitted_bit, energy_j, rx_energy_j, left_ns) = burst[0], len(burst) > 1, row
        receiver, requested_ns, started_ns, lost = first.receiver, first.requested_ns, first.started_ns, first.lost
        arrived, snr, size_bit, phases = 0 if lost else 1, first.snr, first.size_bit, first.phases
        has_snr = self.has_snr and started_ns >= 0
        if several:
            receiver, lost = SEVERAL, ""
            requested_ns = min([leg.requested_ns for leg in burst])
            arrived = sum([not leg.lost for leg in burst])
            place, snr = len(ledger.transfers), min([leg.snr for leg in burst])
            ledger.receptions.add([
                _new(ReceptionRow, (place, leg.receiver, CODE[leg.lost], own_j, leg.snr if has_snr else 0.0))
                for leg, own_j in zip(burst, rx_energy_j, strict=True)
            ])  # fmt: skip
        ledger.sent_bit[self.kind] += size_bit if transmitted_bit >= size_bit else round(transmitted_bit)
        payload_bit = size_bit if phases is None else phases.payload_bit
        columns: tuple[Any, ...] = (  # a `TransferRow`
            self.kind, first.sender, receiver, len(burst), payload_bit, first.number, requested_ns, started_ns, now_ns,
            transmitted_bit, payload_bit * arrived, CODE[lost], energy_j, sum(rx_energy_j), self.turns.lane(first),
            snr if has_snr else 0.0,
        )  # fmt: skip
        if ledger.has_phases:
            its = phases or Phases(size_bit, size_bit)
            columns += (
                its.grant_delay_ns,
                its.connection_setup_ns,
                its.ack_wait_ns,
                now_ns - left_ns,
                its.wire_bit,
                its.ack_bit,
            )
        if ledger.is_shared:
            columns += (self.turns.lost_s(first) if isinstance(self.turns, SharedTurns) else 0.0,)
        ledger.transfers.append(columns)

    def _deliver(self, legs: Burst) -> None:
        """Mark transfers that have arrived or are lost as completed, and trigger their events unless cancelled."""
        now_ns = self.clock.now
        for leg in legs:
            self._late.pop(leg, None)
            if leg.cancelled:
                continue
            started_ns, lost = leg.started_ns, leg.lost
            if lost and self._connections is not None:
                self._connections.lose(leg)
            started_s = started_ns / NS_PER_S if started_ns >= 0 else math.nan
            leg.complete(_new(Delivery, (
                leg.sender, leg.receiver, None if lost else leg.content, leg.size_bit,
                leg.requested_ns / NS_PER_S, started_s, now_ns / NS_PER_S, lost,
            )))  # fmt: skip
            self._came.append(leg)
            if not leg.callbacks:
                self.unheard.append(Unheard(leg))


def _radios(transfer: Transfer) -> tuple[int, int]:
    """Return the radio numbers of sender and receiver; the server is replaced by the base station of the cell."""
    sender, receiver, station = transfer.sender, transfer.receiver, radio_of(transfer.cell)
    return (sender if sender >= 0 else station), (receiver if receiver >= 0 else station)


_new = tuple.__new__  # takes half the time of a named tuple's constructor

CANONICAL = attrgetter("requested_ns", "sender", "receiver")
"""Sort key of transfer requests: request time, then sender, then receiver. The results of a run therefore do not depend
on the order in which requests are made at one instant."""

"""The medium turns requests into deliveries; everything that starts or ends in one instant is processed together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar, final

import numpy as np
from simpy.events import Event

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.availability import Presence
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock, Timer, to_ns
from fednet_emu.network.access.base import Use
from fednet_emu.network.air.patience import LEAST_S, MOST_S, NOTICE_S, Patience
from fednet_emu.network.air.transfer import Burst, Delivery, Message, Phases, Transfer, Unheard
from fednet_emu.network.cells import Serving
from fednet_emu.network.faults import Faults
from fednet_emu.network.links.links import Links, LinksOverTime
from fednet_emu.network.medium.loads import RadioLoads, Radios
from fednet_emu.network.settings import Uplink
from fednet_emu.network.traces.assign import DeviceRates
from fednet_emu.network.transport.connections import Connections
from fednet_emu.network.transport.slow_start import SlowStartAir
from fednet_emu.records.ledger import NEVER_NS, SEVERAL, Ledger, device_label
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import KINDS, ReceptionRow

Item = TypeVar("Item")


class Wait(Generic[Item]):
    """Items that wait for a known time: for a connection or a grant, for reception, or for the notice of a loss.

    Attributes:
        next_ns: end of the first wait; `FOREVER_NS` if no item waits.
    """

    def __init__(self) -> None:
        self.next_ns = FOREVER_NS
        self._heap: list[tuple[int, int, Item]] = []
        self._entered = 0

    def enter(self, item: Item, until_ns: int) -> None:
        """Let an item wait until a time."""
        heappush(self._heap, (until_ns, self._entered, item))
        self._entered += 1
        self.next_ns = self._heap[0][0]

    def leave(self, now_ns: int) -> list[Item]:
        """Remove and return the items whose wait is over, in the order of times and entries."""
        left = []
        while self.next_ns <= now_ns:
            left.append(heappop(self._heap)[2])
            self.next_ns = self._heap[0][0] if self._heap else FOREVER_NS
        return left


class Late(NamedTuple):
    """A burst between its time on the air and its reception, or the notice of its loss.

    Attributes:
        since_ns: when it left the air.
        row: bits on the air, and energy of sending and of each reception in J, which are recorded at the reception;
            None if they are recorded.
    """

    burst: Burst
    since_ns: int
    row: tuple[float, float, list[float]] | None


@final
class Medium:
    """One shared band in one direction: uplink, downlink or sidelink, in one cell or several.

    A transfer waits for its connection and its grant, then in the queue for its turn, and is then on the air. It is
    received when its tail is over (decoding, propagation); in its tail it is off the air, and its place is free.

    Attributes:
        has_snr: whether its links have an SNR; recorded and wired ones have none.
        is_delayed: whether transfers have delays in addition to their turn and their time on the air.

    Args:
        use: how the access scheme uses the band.
        rates: recorded rates, which `use` carries bits at; None without.
        hands_over: whether transfers on the air change their cell.
        connections: connections of the transport; None without a transport.
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
        self._connections = connections
        self._before = Wait[Transfer]()
        self._early: dict[Transfer, None] = {}  # transfers in `_before` that are not cancelled
        self._after = Wait[Late]()
        self._late: dict[Transfer, Late] = {}  # legs that are awaited
        self._moving = self.air if self.air.follows_movement else None
        self._moves_ns = links.until_ns() if self._moving is not None else FOREVER_NS
        self._links = None if links.until_ns() < FOREVER_NS or rates is not None else links.now()
        self._slow_start: SlowStartAir | None = None
        if connections is not None and connections.window is not None:
            self.air = self._slow_start = SlowStartAir(self.air, connections.window)
        self._serving = Serving(links, ledger, during=hands_over) if cells > 1 else None
        self._requests: list[Transfer] = []
        self._on_air: dict[Transfer, Burst] = {}
        self._came: list[Event] = []
        self.unheard: list[Unheard] = []
        self._timer: Timer | None = None
        self._due_ns = FOREVER_NS
        timeout_s = settings.timeout_s
        self.patience = patience if timeout_s is None else None
        self._notice_ns = to_ns(min(NOTICE_S, MOST_S if timeout_s is None else timeout_s))
        self.timeout_ns = to_ns(LEAST_S if self.patience else MOST_S if timeout_s is None else timeout_s)
        self.faults = Faults(presence, settings.loss, loss_key)
        self._powers_differ, self._full_w = radios.differ, radios.full_w
        self._stop = self.cancel
        batteries = presence.batteries
        self._loads = None if batteries is None else RadioLoads(batteries, radios, self._lose)
        is_plain = self._loads is None and self._serving is None and not self.is_delayed
        self._leave = self._end_alone if is_plain else self._end

    @property
    def is_certain(self) -> bool:
        """Whether a transfer is only lost if its link is too weak: no delays, faults, batteries, cells or movement."""
        one_band = self.rates is None and self._serving is None and self.links.until_ns() == FOREVER_NS
        faultless = self._loads is None and not self.faults.ending and not self.faults.losing
        return one_band and faultless and not self.ledger.has_phases and self.band.outage_sinr <= 0

    @property
    def is_idle(self) -> bool:
        """Whether no transfer waits or is on the air."""
        return not (self._requests or self._on_air or self._early or self._late or any(self.turns.waiting()))

    def drawn_w(self, sender: int, power_part: float = 1.0) -> float:
        """Power in W that a sender draws while it sends."""
        if not self._powers_differ and power_part == 1.0:
            return self._full_w
        return self.radios.drawn_w(sender, self.links.now().power_w(sender), power_part)

    def send(
        self, sender: int, receiver: int, message: Message, *, cluster: int = 0, power_part: float = 1.0
    ) -> Transfer:
        """Request a transfer now; the returned event triggers at its end, delivered or lost.

        Args:
            cluster: the cluster of both ends, for access schemes in which clusters send at the same time.
            power_part: share of its full power that the sender uses; a sender that is already on the air keeps the
                share it has. No effect with recorded rates.
        """
        if sender == receiver:
            raise ValueError(f"{device_label(sender)} sends to itself; leave it out of the receivers")
        transfer = Transfer(self.clock, self.kind, self._stop, sender, receiver, message)
        transfer.cluster = cluster
        if transfer.grant is not None:
            power_part *= transfer.grant.power_part
        transfer.power_part = power_part
        self.ledger.offered_bit[self.kind] += transfer.size_bit
        if self.is_delayed and not self._is_ready(transfer):
            return transfer
        self._requests.append(transfer)
        now_ns = self.clock.now
        # a full cell settles when a place gets free, but waits that end in one instant queue in their order
        if self._due_ns != now_ns and (self.turns.left > 0 or self._serving is not None or self.is_delayed):
            if self._timer is None:
                self._due_ns, self._timer = now_ns, self.clock.call_at(now_ns, self._settle)
            else:
                self._settle_at(now_ns)
        return transfer

    def send_all(self, sender: int, receivers: Sequence[int], message: Message) -> list[Transfer]:
        """Request a transfer to each of these receivers, other ones than the sender; otherwise as `send`."""
        if self.is_delayed or not receivers:
            return [self.send(sender, end, message) for end in receivers]
        clock, kind, stop = self.clock, self.kind, self._stop
        transfers = [Transfer(clock, kind, stop, sender, end, message) for end in receivers]
        self.ledger.offered_bit[kind] += message.size_bit * len(transfers)
        self._requests += transfers
        if self.turns.left > 0 or self._serving is not None:
            self._settle_at(clock.now)
        return transfers

    def _is_ready(self, transfer: Transfer) -> bool:
        """Note the delays of a transfer that is requested now; whether it may queue now, without a wait."""
        now_ns, connections = self.clock.now, self._connections
        if connections is None:
            phases = Phases(transfer.size_bit, transfer.size_bit)
        else:
            phases = connections.enter(transfer, now_ns)
        if self._before_ns is not None and not phases.refused:
            phases.access_ns = self._before_ns(transfer, now_ns + phases.setup_ns)
        transfer.phases, transfer.size_bit = phases, phases.wire_bit
        wait_ns = phases.setup_ns + phases.access_ns
        if wait_ns:
            self._early[transfer] = None
            self._before.enter(transfer, now_ns + wait_ns)
            if now_ns + wait_ns < self._due_ns:
                self._settle_at(now_ns + wait_ns)
        return not wait_ns

    def cancel(self, transfer: Transfer, reason: str) -> None:
        """Cancel a transfer that waits or is on the air; its event never triggers, and airtime used so far is recorded.

        A broadcast continues for its other receivers, and ends at once if there are none.
        """
        if transfer.triggered or transfer.cancelled:
            return
        transfer.cancelled = reason
        if transfer in self._late:
            self._give_up(transfer, reason)
            return
        self._early.pop(transfer, None)
        burst = self._on_air.get(transfer)
        if burst is None:
            self._record_unsent(transfer, reason)
            return
        now_ns = self.clock.now
        self._cut(transfer, burst, reason)
        if all(leg.cancelled for leg in burst):
            for ended in self.air.advance(now_ns):
                self._end(ended, now_ns)
        self._settle_at(now_ns)

    def _give_up(self, leg: Transfer, reason: str) -> None:
        """Cancel a leg that is off the air; a burst whose legs are all cancelled or lost is recorded at once."""
        late = self._late[leg]
        if late.row is None:
            del self._late[leg]
            return
        leg.lost = reason
        if all(other.lost for other in late.burst):
            self._receive(late, self.clock.now)
            self._settle_at(self.clock.now)

    def _cut(self, leg: Transfer, burst: Burst, reason: str) -> None:
        leg.until_ns, leg.until_reason = self.clock.now, reason
        self.air.cut(leg, burst, self.clock.now)

    def _lose(self, legs: Burst) -> None:
        """Lose legs of a burst that is on the air, because the battery of an end is empty."""
        for leg in legs:
            self._cut(leg, self._on_air[leg], "empty")
        self._settle_at(self.clock.now)

    def close(self) -> None:
        """Cancel all transfers at the end of the run."""
        for transfer in [*self._on_air, *self.turns.waiting(), *self._requests, *self._early, *self._late]:
            self.cancel(transfer, "end")

    def expected_bps(self, devices: IntArray, links: Links, at_s: float) -> Array:
        """Rates in bit/s [n] between the server and some devices, each alone in the band at its mean SNR.

        With recorded rates, those at this time in s.
        """
        if self.rates is not None:
            return self.rates.rates_bps(devices, at_s)
        stations = np.array([links.station_of(device) for device in devices.tolist()], np.int64)
        return self.band.mean_bps(links.snrs(devices, stations))

    def _settle_at(self, time_ns: int) -> None:
        """Schedule `_settle` at an instant that is not later than the one scheduled now."""
        if self._due_ns != time_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._due_ns, self._timer = time_ns, self.clock.call_at(time_ns, self._settle)

    def _settle(self, timer: Any) -> None:
        """Process one instant: first the ends, then the new requests in canonical order, then the starts."""
        now_ns, turns, air = self.clock.now, self.turns, self.air
        self._due_ns, self._timer = FOREVER_NS, None
        if self._after.next_ns <= now_ns or self._before.next_ns <= now_ns:
            self._end_waits(now_ns)
        for burst in air.advance(now_ns):
            self._leave(burst, now_ns)
        if now_ns >= self._moves_ns:
            self._move()
        if len(self._requests) == 1 and self._serving is None:
            turns.add([self._requests.pop()])
        elif self._requests:
            self._enqueue()
        if turns.changed:
            turns.start_ready(self._start)
        next_ns = air.next_end_ns()
        if self._loads is not None:
            self._loads.follow(air.powers())
            self._loads.follow_bits(air.rates())
        if self._moves_ns < next_ns < FOREVER_NS:
            next_ns = self._moves_ns
        if self._before.next_ns < next_ns:
            next_ns = self._before.next_ns
        if self._after.next_ns < next_ns:
            next_ns = self._after.next_ns
        if next_ns < FOREVER_NS:
            self._due_ns, self._timer = next_ns, timer
            self.clock.call_again(timer, next_ns, self._settle)
        if self._came:
            came, self._came = self._came, []
            self.clock.trigger_now(came)

    def _end_waits(self, now_ns: int) -> None:
        """Receive the bursts whose tails are over; queue the transfers that have their connection and their grant."""
        for late in self._after.leave(now_ns):
            self._receive(late, now_ns)
        for transfer in self._before.leave(now_ns):
            if transfer not in self._early:
                continue  # it was cancelled
            del self._early[transfer]
            assert transfer.phases is not None
            transfer.lost = transfer.phases.refused
            if transfer.lost:
                self._record_unsent(transfer, transfer.lost)
                self._deliver(transfer, now_ns)
            else:
                self._requests.append(transfer)

    def _move(self) -> None:
        """Begin a period of movement: transfers on the air have new links, and senders draw the powers of these."""
        if self._slow_start is not None:
            self._slow_start.settle()
        self._moves_ns = self.links.until_ns()
        if self._moving is None or not self._on_air:
            return
        if self._serving is not None:
            self._serving.hand_over(self._on_air, self.clock.now)
        self._moving.move()
        if self._powers_differ or self._serving is not None:
            links = self.links.now()
            for burst in self._on_air.values():
                first = burst[0]
                first.drawn_w = self.radios.drawn_w(first.sender, links.power_w(first.sender), first.power_part)

    def _enqueue(self) -> None:
        """Queue the requests in canonical order, and the requests of one broadcast as one burst."""
        requests, self._requests = self._requests, []
        requests.sort(key=CANONICAL)
        if self._serving is not None:
            for transfer in requests:
                self._serving.serve(transfer)
        self.links.now().learn((transfer.sender, transfer.receiver) for transfer in requests)
        bursts, broadcasts = defaultdict[Any, Burst](list), self.settings.broadcasts
        for place, transfer in enumerate(requests):
            key: Any = place
            if broadcasts and transfer.group is not None:
                its = transfer.requested_ns, transfer.cell, transfer.cluster, transfer.sender, transfer.power_part
                key = *its, transfer.size_bit, transfer.group
            bursts[key].append(transfer)
        for burst in bursts.values():
            self.turns.add(burst)

    def _start(self, burst: Burst) -> bool:
        """Put a burst on the air, without the transfers one of whose ends is away; False if no transfer is left."""
        now_ns, gaps_ns, on_air, some_are_gone = self.clock.now, 0, self._on_air, False
        if self._connections is not None:
            gaps_ns = max([self._connections.start(transfer, now_ns) for transfer in burst])
            if self.settings.timeout_s is not None:
                gaps_ns = 0  # only timeouts that the scenario leaves open do not count the gaps of slow start
        links = self._links if self._links is not None or self.rates is not None else self.links.now()
        patience, several = self.patience, self._serving is not None
        for transfer in burst:
            if transfer.cancelled:
                some_are_gone = True
                continue
            transfer.until_ns = now_ns + self.timeout_ns + gaps_ns
            if links is not None:
                ends = _radios(transfer) if several else (transfer.sender, transfer.receiver)
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
        first = burst[0]
        self.air.start(burst, now_ns)
        at_full_power = first.power_part == 1.0 and not self._powers_differ
        first.drawn_w = self._full_w if at_full_power else self.drawn_w(first.sender, first.power_part)
        if self._loads is not None:
            self._loads.start(burst)
        return True

    def _limit(self, transfer: Transfer, patience: Patience, gaps_ns: int) -> None:
        """Choose the timeout of a transfer that starts now; one that is not worth trying ends at once."""
        limit_ns = patience.limit_ns(transfer.size_bit, transfer.snr, los=transfer.fading_key & 1 == 1)
        transfer.until_ns = self.clock.now + limit_ns + (gaps_ns if limit_ns else 0)
        if not limit_ns:
            transfer.until_reason = "unreachable"

    def _may_start(self, transfer: Transfer, now_ns: int) -> bool:
        """Whether no fault keeps a transfer from starting; sets `until_ns` if one ends it before the timeout."""
        for fault in self.faults.ending:
            until_ns = fault.until_ns(transfer, now_ns)
            if until_ns <= now_ns:
                transfer.lost = fault.unsent
                self._record_unsent(transfer, transfer.lost)
                self._deliver(transfer, now_ns)
                return False
            if until_ns < transfer.until_ns:
                transfer.until_ns, transfer.until_reason = until_ns, fault.reason
        return True

    def _end_alone(self, burst: Burst, now_ns: int) -> None:
        """The same as `_end`, in one go, for a lone leg without delays that the radio has delivered."""
        leg = burst[0]
        if len(burst) > 1 or leg.lost or leg.cancelled:
            self._end(burst, now_ns)
            return
        ledger, radios, kind, size_bit, started_ns = self.ledger, self.radios, self.kind, leg.size_bit, leg.started_ns
        self.turns.give_back(burst)
        del self._on_air[leg]
        lost = ""
        if self.faults.losing or leg.grant is not None:
            lost = leg.lost = self.faults.fate(leg)
        air_bit = leg.air_bit
        energy_j, receive_j = leg.spent_j + leg.drawn_w * leg.power_s, 0.0
        bits_j = radios.transmit_j_per_bit * air_bit
        if radios.receive_w is not None:
            receive_j = radios.receive_w[leg.receiver] * (now_ns - started_ns) / NS_PER_S
        if radios.receive_j_per_bit:
            receive_j += radios.receive_j_per_bit * air_bit
        ledger.energy_j += energy_j + bits_j + receive_j
        ledger.sent_bit[kind] += size_bit if air_bit >= size_bit else round(air_bit)
        row = (  # a `TransferRow`
            kind, leg.sender, leg.receiver, 1, size_bit, leg.number, leg.requested_ns, started_ns, now_ns, air_bit,
            0 if lost else size_bit, CODE[lost], energy_j + bits_j, receive_j, self.turns.lane(leg),
            leg.snr if self.has_snr else 0.0,
        )  # fmt: skip
        ledger.transfers.append(row if not ledger.has_phases else row + _phases(leg))
        self._deliver(leg, now_ns)

    def _end(self, burst: Burst, now_ns: int) -> None:
        """End the time on the air of a burst: the fate of each leg, and its delivery now or after its tail."""
        self.turns.give_back(burst)
        faults, tail_ns = self.faults, 0
        for transfer in burst:
            del self._on_air[transfer]
            if self._serving is not None:
                self._serving.release(transfer)
            if transfer.cancelled:
                transfer.lost = transfer.cancelled
                continue
            if (faults.losing or transfer.grant is not None) and not transfer.lost:
                transfer.lost = faults.fate(transfer)
            if transfer.lost == "unreachable" and now_ns < transfer.started_ns + self._notice_ns:
                self._receive_at([transfer], Late([transfer], now_ns, None), transfer.started_ns + self._notice_ns)
                continue
            if transfer.phases is not None and not transfer.lost:
                own_ns = 0 if self._after_ns is None else self._after_ns(transfer, now_ns)
                if self._connections is not None:
                    own_ns += self._connections.leave(transfer, now_ns)
                if own_ns:
                    transfer.phases.tail_ns = own_ns
                    tail_ns = max(tail_ns, own_ns)
                    continue
            self._deliver(transfer, now_ns)
        row = self._spend(burst, now_ns)
        if tail_ns:
            legs = [leg for leg in burst if leg.phases is not None and leg.phases.tail_ns]
            self._receive_at(legs, Late(burst, now_ns, row), now_ns + tail_ns)
        else:
            self._write(burst, now_ns, *row)

    def _receive_at(self, legs: Burst, late: Late, time_ns: int) -> None:
        """Let legs wait for their reception; the caller settles."""
        self._late.update(dict.fromkeys(legs, late))
        self._after.enter(late, time_ns)

    def _receive(self, late: Late, now_ns: int) -> None:
        """Deliver the legs of a late burst that are still awaited, and record it unless it has been."""
        legs = [leg for leg in late.burst if self._late.get(leg) is late]
        for leg in legs:
            del self._late[leg]
            if not leg.cancelled:
                self._deliver(leg, now_ns)
        first = late.burst[0]
        if late.row is not None and legs:
            assert first.phases is not None
            first.phases.tail_ns = now_ns - late.since_ns
            self._write(late.burst, now_ns, *late.row)

    def _deliver(self, transfer: Transfer, now_ns: int) -> None:
        started_ns, lost = transfer.started_ns, transfer.lost
        if lost and self._connections is not None:
            self._connections.lose(transfer)
        started_s = started_ns / NS_PER_S if started_ns >= 0 else math.nan
        transfer.complete(_new(Delivery, (
            transfer.sender, transfer.receiver, None if lost else transfer.content, transfer.size_bit,
            transfer.requested_ns / NS_PER_S, started_s, now_ns / NS_PER_S, lost,
        )))  # fmt: skip
        self._came.append(transfer)
        if not transfer.callbacks:
            self.unheard.append(Unheard(transfer))

    def _spend(self, burst: Burst, now_ns: int) -> tuple[float, float, list[float]]:
        """Account for a burst that was on the air: its bits, and its energy of sending and of each reception in J."""
        radios, first = self.radios, burst[0]
        air_bit = first.air_bit if len(burst) == 1 else max([leg.air_bit for leg in burst])
        energy_j, bits_j = first.spent_j + first.drawn_w * first.power_s, radios.transmit_j_per_bit * air_bit
        receive_w, span_ns = radios.receive_w, now_ns - first.started_ns
        if self._loads is not None:
            each_j = self._loads.end(burst, energy_j, bits_j, now_ns)
        elif receive_w is not None:
            each_j = [receive_w[leg.receiver] * span_ns / NS_PER_S for leg in burst]
        else:
            each_j = [0.0] * len(burst)
        if radios.receive_j_per_bit:
            each_j = [own_j + radios.receive_j_per_bit * leg.air_bit for own_j, leg in zip(each_j, burst, strict=True)]
        self.ledger.energy_j += energy_j + bits_j + sum(each_j)
        return air_bit, energy_j + bits_j, each_j

    def _write(self, burst: Burst, now_ns: int, air_bit: float, energy_j: float, receive_j: list[float]) -> None:
        """Write the row of a burst that is over now; `receive_j` has an entry for each of its legs."""
        ledger, first, count, has_snr = self.ledger, burst[0], len(burst), self.has_snr
        receiver, requested_ns, lost, size_bit = first.receiver, first.requested_ns, first.lost, first.size_bit
        arrived, snr = 0 if lost else 1, first.snr
        if count > 1:
            receiver, lost = SEVERAL, ""
            requested_ns = min([transfer.requested_ns for transfer in burst])
            arrived = sum([not transfer.lost for transfer in burst])
            place, snr = len(ledger.transfers), min([leg.snr for leg in burst])
            ledger.receptions.add([
                _new(ReceptionRow, (place, leg.receiver, CODE[leg.lost], own_j, leg.snr if has_snr else 0.0))
                for leg, own_j in zip(burst, receive_j, strict=True)
            ])  # fmt: skip
        ledger.sent_bit[self.kind] += size_bit if air_bit >= size_bit else round(air_bit)
        phases = first.phases
        payload_bit = size_bit if phases is None else phases.payload_bit
        row = (  # a `TransferRow`
            self.kind, first.sender, receiver, count, payload_bit, first.number, requested_ns, first.started_ns, now_ns,
            air_bit, payload_bit * arrived, CODE[lost], energy_j, sum(receive_j), self.turns.lane(first),
            snr if has_snr else 0.0,
        )  # fmt: skip
        ledger.transfers.append(row if not ledger.has_phases else row + _phases(first))

    def _record_unsent(self, transfer: Transfer, reason: str) -> None:
        if self._serving is not None:
            self._serving.release(transfer)
        phases, payload_bit = transfer.phases, transfer.size_bit
        if phases is not None:
            phases.cut(self.clock.now - transfer.requested_ns)
            payload_bit = phases.payload_bit
        row = (
            self.kind, transfer.sender, transfer.receiver, 1, payload_bit, transfer.number, transfer.requested_ns,
            NEVER_NS, self.clock.now, 0.0, 0, CODE[reason], 0.0, 0.0, self.turns.lane(transfer), 0.0,
        )  # fmt: skip
        self.ledger.transfers.append(row if not self.ledger.has_phases else row + _phases(transfer))


def _phases(transfer: Transfer) -> tuple[int, ...]:
    """The `PhaseColumns` of a transfer."""
    its = transfer.phases or Phases(transfer.size_bit, transfer.size_bit)
    return its.access_ns, its.setup_ns, its.gap_ns, its.tail_ns, its.wire_bit, its.reverse_bit


def _radios(transfer: Transfer) -> tuple[int, int]:
    """The radios of sender and receiver; the server uses the base station of the transfer's cell."""
    sender, receiver = transfer.sender, transfer.receiver
    return (sender if sender >= 0 else -1 - transfer.cell), (receiver if receiver >= 0 else -1 - transfer.cell)


_new = tuple.__new__  # half the time of the named tuple's own constructor

CANONICAL = attrgetter("requested_ns", "sender", "receiver")
"""The order of requests: by time, then sender, then receiver; the order of events within an instant does not matter."""

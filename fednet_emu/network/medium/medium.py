"""The medium: requests in, deliveries out. Everything that starts or ends in one instant is settled together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from simpy.events import Event

from fednet_emu.arrays import IntArray
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock, Timer, to_ns
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.availability import Presence
from fednet_emu.network.links.links import Links
from fednet_emu.network.medium.air import Air, BandWalker, SeparateAir
from fednet_emu.network.medium.band import Band
from fednet_emu.network.medium.loss import Loss, NoLoss
from fednet_emu.network.medium.shared_air import SharedAir
from fednet_emu.network.medium.traced_air import TraceWalker
from fednet_emu.network.medium.transfer import Burst, Delivery, Transfer
from fednet_emu.network.medium.turn_queue import TurnQueue
from fednet_emu.network.traces.assign import DeviceRates
from fednet_emu.radio.channel import Terminal
from fednet_emu.radio.energy import transmit_energy_j
from fednet_emu.records.ledger import CODE, NEVER_NS, SEVERAL, Ledger, device_label


@dataclass(frozen=True, slots=True)
class Rules:
    """How one medium behaves: how its band is shared, what gets lost, what a transmission draws from the battery."""

    band: Band
    links: Links
    loss: Loss
    loss_key: int
    drawn_w: float
    """Drawn by a sender at full power."""
    multicast: bool
    timeout_s: float
    cells: int = 1
    receive_w: float = 0.0
    """Drawn by each device that receives."""
    rates: DeviceRates | None = None
    """Recorded rates of the devices, in place of band and links."""
    radio: Terminal | None = None
    """The sender's radio, which draws less than `drawn_w` at a part of its power."""
    controlled: bool = False
    """Whether the power of senders is chosen link by link."""
    learn: Callable[[IntArray, IntArray], None] | None = None
    """Tells the links which ones (senders, receivers) will be asked for, so that they are worked out at once."""


class Medium:
    """One shared band in one direction: uplink, downlink or sidelink, in one cell or several."""

    def __init__(self, clock: Clock, ledger: Ledger, presence: Presence, kind: int, rules: Rules) -> None:
        self.clock = clock
        self.kind = kind
        self.rules = rules
        self._ledger = ledger
        self._presence = presence
        self._air, self._looks_up = air_of(rules)
        self._fades = not rules.band.constant
        self._turns = turns_of(rules)
        self._clustered = rules.band.access.clustered
        self._requests: list[Transfer] = []
        self._on_air: dict[Transfer, Burst] = {}
        self._came: list[Event] = []
        self._timer: Timer | None = None
        self._due_ns = FOREVER_NS
        self._timeout_ns = min(to_ns(rules.timeout_s), FOREVER_NS)
        self._lossy = type(rules.loss) is not NoLoss
        self._powers_differ = rules.controlled and rules.radio is not None
        self._sent: dict[tuple[int, int], int] = {}
        self._under_way: dict[int, dict[Transfer, int]] = defaultdict(dict)  # by device, with their cells
        self._stop = self.cancel

    def send(
        self,
        sender: int,
        receiver: int,
        payload: Any,
        number: int,
        size_bit: int,
        *,
        group: int | None = None,
        cluster: int = 0,
        power_part: float = 1.0,
    ) -> Transfer:
        """Ask for a transfer now; the event comes at its end, delivered or lost.

        Args:
            sender: number of the sending device, or `SERVER`.
            receiver: number of the receiving device, or `SERVER`.
            payload: what the delivery will carry.
            number: the payload's number in the records.
            size_bit: bits on the air.
            group: where the medium has multicast, requests of one instant by one sender with the same group are one
                broadcast; None for a transfer of its own.
            cluster: the cluster of both ends, where the access scheme lets clusters send side by side.
            power_part: what part of its power the sender uses; one that is on the air already goes on as it is. Without
                effect on recorded rates.
        """
        if sender == receiver:
            raise ValueError(f"{device_label(sender)} sends to itself; leave it out of the receivers")
        ends = sender, receiver
        transfer = Transfer(self.clock, self.kind, self._stop, ends, payload, number, size_bit, group)
        if self._clustered:
            transfer.cell = cluster
        if power_part != 1.0:
            transfer.power_part = power_part
        self._requests.append(transfer)
        self._ledger.offered_bit[self.kind] += size_bit
        if self._turns.left > 0:  # a full medium looks at its requests when a place gets free
            self._settle_at(self.clock.now)
        return transfer

    def cancel(self, transfer: Transfer, reason: str) -> None:
        """Take a transfer off, waiting or on the air. Its event never comes; the ledger says what was on the air.

        The other receivers of a broadcast go on; without any left, it ends at once.
        """
        if transfer.triggered or transfer.cancelled:
            return
        transfer.cancelled = reason
        burst = self._on_air.get(transfer)
        if burst is None:
            self._record_unsent(transfer, reason)
            return
        now_ns = self.clock.now
        transfer.until_ns, transfer.until_reason = now_ns, reason
        self._air.cut(transfer, burst, now_ns)
        if all(leg.cancelled for leg in burst):
            for ended in self._air.advance(now_ns):
                self._end(ended, now_ns)
        self._settle_at(now_ns)

    def close(self) -> None:
        """Take everything off at the end of the run."""
        for transfer in [*self._on_air, *self._turns.waiting(), *self._requests]:
            self.cancel(transfer, "end")

    def _settle_at(self, time_ns: int) -> None:
        """Look at everything at an instant, which is no later than when that was to be done next."""
        if self._due_ns != time_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._due_ns, self._timer = time_ns, self.clock.call_at(time_ns, self._settle)

    def _settle(self, _event: Event) -> None:
        """Ends first, then the instant's requests in canonical order, then whoever's turn it is."""
        now_ns = self.clock.now
        self._due_ns, self._timer = FOREVER_NS, None
        for burst in self._air.advance(now_ns):
            self._end(burst, now_ns)
        if self._requests:
            self._enqueue()
        for burst in self._turns.ready():
            self._start(burst, now_ns)
        next_ns = self._air.next_end_ns
        if next_ns < FOREVER_NS:
            self._due_ns, self._timer = next_ns, self.clock.call_at(next_ns, self._settle)
        if self._came:
            came, self._came = self._came, []
            self.clock.come(came)

    def _enqueue(self) -> None:
        requests, self._requests = self._requests, []
        if self.rules.cells > 1:
            requests.sort(key=_canonical)
            for transfer in requests:
                self._serve(transfer)
        if len(requests) == 1:
            self._turns.add(requests)
            return
        if self.rules.learn is not None:
            ends = np.array([(transfer.sender, transfer.receiver) for transfer in requests], np.int64)
            self.rules.learn(ends[:, 0], ends[:, 1])
        requests.sort(key=_canonical)
        if not self.rules.multicast:
            for transfer in requests:
                self._turns.add([transfer])
            return
        bursts: dict[Any, Burst] = defaultdict(list)
        for place, transfer in enumerate(requests):
            together = transfer.requested_ns, transfer.cell, transfer.sender, transfer.size_bit, transfer.power_part
            key = (*together, transfer.group) if transfer.group is not None else place
            bursts[key].append(transfer)
        for burst in bursts.values():
            self._turns.add(burst)

    def _serve(self, transfer: Transfer) -> None:
        """Choose the cell: a device is handed over when none of its transfers is under way or waits."""
        under_way = self._under_way[max(transfer.sender, transfer.receiver)]
        if under_way:
            transfer.cell = next(iter(under_way.values()))
        else:
            transfer.cell = -1 - min(self.rules.links.radios(transfer.sender, transfer.receiver))
        if not transfer.cancelled:
            under_way[transfer] = transfer.cell

    def _release(self, transfer: Transfer) -> None:
        """A transfer is over: it no longer keeps its device in the cell."""
        if self.rules.cells > 1:
            self._under_way[max(transfer.sender, transfer.receiver)].pop(transfer, None)

    def _start(self, burst: Burst, now_ns: int) -> None:
        """Put a burst on the air, without those who have gone."""
        latest_ns, always, looks_up, fades = (
            now_ns + self._timeout_ns,
            self._presence.always,
            self._looks_up,
            self._fades,
        )
        links, on_air, some_are_gone = self.rules.links, self._on_air, False
        for transfer in burst:
            transfer.until_ns = latest_ns
            if transfer.cancelled or not (always or self._is_there(transfer, now_ns)):
                some_are_gone = True
                continue
            transfer.started_ns = now_ns
            if looks_up:
                transfer.snr = links.snr(transfer.sender, transfer.receiver) * transfer.power_part
                if fades:
                    transfer.fading_key = links.fading_key(transfer.sender, transfer.receiver)
            on_air[transfer] = burst
        if some_are_gone:
            burst[:] = [transfer for transfer in burst if transfer.started_ns == now_ns]
            if not burst:
                return
        first = burst[0]
        self._air.start(burst, now_ns)
        first.drawn_w = self._draw_of(first) if self._powers_differ or first.power_part != 1.0 else self.rules.drawn_w

    def _draw_of(self, transfer: Transfer) -> float:
        """Power that a sender draws from the battery at the power which it has chosen."""
        radio = self.rules.radio
        if radio is None:
            return self.rules.drawn_w
        power_w = self.rules.links.power_w(transfer.sender)
        radiated_w = (radio.tx_power_w if power_w is None else power_w) * transfer.power_part
        return transmit_energy_j(radiated_w, 1.0, radio.amplifier_efficiency, radio.circuit_w)

    def _is_there(self, transfer: Transfer, now_ns: int) -> bool:
        """Whether both ends are there; sets how long they will last, if shorter than patience."""
        leaves_ns = min(self._presence.until_ns(end, now_ns) for end in (transfer.sender, transfer.receiver))
        if leaves_ns <= now_ns:
            self._record_unsent(transfer, "away")
            transfer.lost = "away"
            self._deliver(transfer, now_ns)
            return False
        if leaves_ns < transfer.until_ns:
            transfer.until_ns, transfer.until_reason = leaves_ns, "left"
        return True

    def _end(self, burst: Burst, now_ns: int) -> None:
        self._turns.give_back(burst)
        for transfer in burst:
            del self._on_air[transfer]
            self._release(transfer)
            if transfer.cancelled:
                transfer.lost = transfer.cancelled
                continue
            if self._lossy and not transfer.lost and self._is_erased(transfer):
                transfer.lost = "erased"
            self._deliver(transfer, now_ns)
        self._record(burst, now_ns)

    def _is_erased(self, transfer: Transfer) -> bool:
        link = (transfer.sender, transfer.receiver)
        count = self._sent[link] = self._sent.get(link, -1) + 1
        draw = uniform(mix(mix(self.rules.loss_key, transfer.sender + 1), transfer.receiver + 1), count)
        return self.rules.loss.erases(draw)

    def _deliver(self, transfer: Transfer, now_ns: int) -> None:
        started_ns, lost = transfer.started_ns, transfer.lost
        delivery = (
            transfer.sender,
            transfer.receiver,
            None if lost else transfer.payload,
            transfer.size_bit,
            transfer.requested_ns / NS_PER_S,
            started_ns / NS_PER_S if started_ns >= 0 else math.nan,
            now_ns / NS_PER_S,
            lost,
        )
        transfer._value = _new(Delivery, delivery)
        self._came.append(transfer)

    def _record(self, burst: Burst, now_ns: int) -> None:
        """One row for a burst that was on the air, whatever its fate."""
        ledger, rules, first, count = self._ledger, self.rules, burst[0], len(burst)
        receiver, requested_ns, air_bit, lost = first.receiver, first.requested_ns, first.air_bit, first.lost
        size_bit, started_ns = first.size_bit, first.started_ns
        arrived = 0 if lost else 1
        if count > 1:
            receiver, lost = SEVERAL, ""
            requested_ns = min([transfer.requested_ns for transfer in burst])
            air_bit = max([transfer.air_bit for transfer in burst])
            arrived = sum([not transfer.lost for transfer in burst])
            row, add = len(ledger.transfers), ledger.receptions.append
            for transfer in burst:
                add((row, transfer.receiver, CODE[transfer.lost]))
        energy_j = first.drawn_w * first.power_s
        receive_j = rules.receive_w * (now_ns - started_ns) / NS_PER_S * count if rules.receive_w else 0.0
        ledger.sent_bit[self.kind] += size_bit if air_bit >= size_bit else round(air_bit)
        ledger.energy_j += energy_j + receive_j
        ledger.transfers.append((
            self.kind, first.sender, receiver, count, size_bit, first.number, requested_ns, started_ns, now_ns,
            air_bit, size_bit * arrived, CODE[lost], energy_j, receive_j,
        ))  # fmt: skip

    def _record_unsent(self, transfer: Transfer, reason: str) -> None:
        self._release(transfer)
        now_ns, code = self.clock.now, CODE[reason]
        ends = (self.kind, transfer.sender, transfer.receiver, 1, transfer.size_bit, transfer.number)
        self._ledger.transfers.append((*ends, transfer.requested_ns, NEVER_NS, now_ns, 0.0, 0, code, 0.0, 0.0))


def air_of(rules: Rules) -> tuple[Air, bool]:
    """What is on the air of a medium, and whether a transfer brings its own link, looked up when it starts."""
    if rules.rates is not None:
        return SeparateAir(TraceWalker(rules.rates)), False
    access = rules.band.access
    if not access.disturbed and (rules.cells == 1 or access.clustered):
        return SeparateAir(BandWalker(rules.band)), True
    return SharedAir(rules.band, rules.links, rules.cells), False


def turns_of(rules: Rules) -> TurnQueue:
    """Who waits for whom on a medium."""
    if rules.rates is not None:
        return TurnQueue(None, 1)
    access = rules.band.access
    return TurnQueue(access.capacity, None if access.clustered else rules.cells, exclusive=access.clustered)


_new = tuple.__new__  # a named tuple's own costs twice as much

_canonical = attrgetter("requested_ns", "sender", "receiver")
"""The order of requests: by time, then by who, whatever the order of the events that made them."""

"""The medium of one cell in which transfers take turns, with a short way from the end of one to the start of the next.

It does what `Medium` does, to the last bit; tests play both beside each other. But with one transfer at a time on the
air, whose end is known when it starts, the queues by cell, the heap of ends and the bursts of several legs come down to
one queue, one end and one transfer. `_settle` and `_go_on` are what `Medium`, `TurnQueue`, `SeparateAir` and `Band` do
with them in some twenty methods, whose calls take as long as all the rest of a transfer.
"""

from __future__ import annotations

from collections import deque
from typing import Any, final

from simpy.events import Event
from typing_extensions import override

from fednet_emu.devices.availability import Presence
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import uniform
from fednet_emu.network.access.base import Access, RatedAccess
from fednet_emu.network.air.separate import BandWalker, horizon_ns
from fednet_emu.network.air.transfer import Delivery, Transfer, Unheard
from fednet_emu.network.medium.medium import CANONICAL, Late, Medium
from fednet_emu.network.settings import Uplink
from fednet_emu.network.traces.assign import DeviceRates
from fednet_emu.records.reasons import CODE

_LONG_NS = 1e11
_CLOSE_NS = 1e-3
"""An end is computed with floating-point numbers, which are wrong by 1e-4 ns at most up to `_LONG_NS`, unless it is so
close to a whole nanosecond."""


def medium_class(
    settings: Uplink, presence: Presence, cells: int, rates: DeviceRates | None, until_ns: int = FOREVER_NS
) -> type[Medium]:
    """The class of a medium: `TurnMedium` where transfers take turns, each is a burst of its own.

    Batteries want to know at each instant what is on the air, which only `Medium` tells them. Links that change at
    `until_ns` want new rates then, which only `Medium` asks for.
    """
    access = settings.access
    takes_turns = (
        access.capacity == 1
        and cells == 1
        and rates is None
        and not settings.broadcasts
        and presence.batteries is None
        and until_ns == FOREVER_NS
        and type(access).queue is Access.queue
        and type(access).air is RatedAccess.air
    )
    return TurnMedium if takes_turns else Medium


@final
class TurnMedium(Medium):
    """A band in one cell in which one transfer after the other is on the air; the arguments are those of `Medium`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waiting: deque[Transfer] = deque()
        self._sending: Transfer | None = None
        self._end_ns = FOREVER_NS  # of `_sending`, or the time up to which it has been computed
        walker = BandWalker(self.band)
        self._walk_leg, self._ahead_ns = walker.walk_leg, walker.ahead_ns
        self._for_one, self._doubtful_snr = self.band.for_one, self.band.doubtful_snr
        self._least_sinr = max(self.band.threshold, self.band.outage_sinr)
        self._link = self.links.now().link  # of devices at rest, so that none ever changes

    @property
    @override
    def is_idle(self) -> bool:
        return self._sending is None and not self._waiting and super().is_idle

    @override
    def cancel(self, transfer: Transfer, reason: str) -> None:
        if transfer is not self._sending:
            super().cancel(transfer, reason)
            return
        now_ns, started_ns = self.clock.now, transfer.started_ns
        transfer.until_ns, transfer.until_reason = now_ns, reason
        self._walk_leg(transfer, started_ns, now_ns)
        transfer.power_s = (now_ns - started_ns) / NS_PER_S
        transfer.cancelled = transfer.lost = reason
        self._sending, self.turns.left = None, 1
        self._record([transfer], now_ns)
        self._settle_at(now_ns)

    @override
    def close(self) -> None:
        sending = [] if self._sending is None else [self._sending]
        for transfer in [*sending, *self._waiting, *self._requests, *self._late]:
            self.cancel(transfer, "end")

    @override
    def _settle(self, timer: Event) -> None:
        now_ns, sending, delivery = self.clock.now, self._sending, None
        for late in self._after.leave(now_ns) if self._after.next_ns <= now_ns else ():
            self._receive(late, now_ns)
        told = len(self._came)  # of losses that senders notice in this instant
        if sending is not None and now_ns >= self._end_ns:
            sender, receiver, size_bit, air_bit = sending.sender, sending.receiver, sending.size_bit, sending.air_bit
            started_ns, lost = sending.started_ns, sending.lost
            if air_bit < size_bit and not lost:
                self._end_ns = self._walk_leg(sending, started_ns, horizon_ns(started_ns, now_ns, self._ahead_ns))
            else:
                ledger, radios, kind, requested_ns = self.ledger, self.radios, self.kind, sending.requested_ns
                if (self.faults.losing or sending.grant is not None) and not lost:
                    lost = sending.lost = self.faults.fate(sending)
                bits_j, receive_j = radios.transmit_j_per_bit * air_bit, radios.receive_j_per_bit * air_bit
                energy_j = sending.drawn_w * ((now_ns - started_ns) / NS_PER_S) + bits_j
                if radios.receive_w is not None:
                    receive_j += radios.receive_w[receiver] * (now_ns - started_ns) / NS_PER_S
                ledger.sent_bit[kind] += size_bit if air_bit >= size_bit else round(air_bit)
                ledger.energy_j += energy_j + receive_j
                ledger.transfers.append((  # a `TransferRow`
                    kind, sender, receiver, 1, size_bit, sending.number, requested_ns, started_ns, now_ns,
                    air_bit, 0 if lost else size_bit, CODE[lost], energy_j, receive_j, 0, sending.snr,
                ))  # fmt: skip
                if lost == "unreachable" and now_ns < started_ns + self._notice_ns:
                    self._receive_at([sending], Late([sending], now_ns, None), started_ns + self._notice_ns)
                else:
                    delivery = _new(Delivery, (
                        sender, receiver, None if lost else sending.content, size_bit,
                        requested_ns / NS_PER_S, started_ns / NS_PER_S, now_ns / NS_PER_S, lost,
                    ))  # fmt: skip
                    if not sending.callbacks:
                        self.unheard.append(Unheard(sending))
                self.turns.left, self._sending = 1, None
        self._go_on(timer, now_ns)
        came = self._came
        if came:
            self._came = []
            if sending is not None and delivery is not None:
                sending.complete(delivery)
                came.insert(told, sending)
            self.clock.trigger_now(came)
        elif sending is not None and delivery is not None:
            self.clock.come(sending, delivery)

    def _go_on(self, timer: Event, now_ns: int) -> None:
        """Let new requests wait, start the next transfer if none is on the air, and look again at its end."""
        requests, waiting, sending = self._requests, self._waiting, self._sending
        if requests:
            if len(requests) > 1:
                requests.sort(key=CANONICAL)
                self.links.now().learn((transfer.sender, transfer.receiver) for transfer in requests)
            waiting.extend(requests)
            requests.clear()
        while sending is None and waiting:
            transfer = waiting.popleft()
            if transfer.cancelled:
                continue
            snr, transfer.fading_key = self._link(transfer.sender, transfer.receiver)
            transfer.snr = snr = snr * transfer.power_part
            transfer.until_ns, patience = now_ns + self.timeout_ns, self.patience
            if patience is not None and snr < patience.ample[transfer.size_bit.bit_length()]:
                self._limit(transfer, patience)
            if self.faults.ending and not self._may_start(transfer, now_ns):
                continue
            at_full_power = not self._powers_differ and transfer.power_part == 1.0
            transfer.drawn_w = self._full_w if at_full_power else self.drawn_w(transfer.sender, transfer.power_part)
            transfer.started_ns = now_ns
            # most transfers end in the fading block in which they start, at the rate that they have there
            size_bit, key, needed_ns = transfer.size_bit, transfer.fading_key, _LONG_NS
            share, bandwidth_hz, _, gain, rate_of, coherence_ns, constant = self._for_one
            block = now_ns // coherence_ns
            sinr = snr * gain(0.5 if constant else uniform(key, block), key & 1 == 1) / share
            if snr > self._doubtful_snr and sinr >= self._least_sinr:
                needed_ns = size_bit * 1e9 / (rate_of(sinr, bandwidth_hz) or 1e-9)
            whole_ns = int(needed_ns)
            end_ns = now_ns + whole_ns + 1
            is_certain = needed_ns < _LONG_NS and _CLOSE_NS < needed_ns - whole_ns < 1.0 - _CLOSE_NS
            if is_certain and end_ns <= transfer.until_ns and end_ns <= (block + 1) * coherence_ns:
                transfer.air_bit, self._end_ns = float(size_bit), end_ns
            else:
                self._end_ns = self._walk_leg(transfer, now_ns, now_ns + self._ahead_ns)
            self.turns.left, self._sending = 0, transfer
            sending = transfer
        next_ns = min(FOREVER_NS if sending is None else self._end_ns, self._after.next_ns)
        if next_ns == FOREVER_NS:
            self._due_ns, self._timer = FOREVER_NS, None
        else:
            self._due_ns = next_ns  # and `_timer` is the one that has just run
            self.clock.call_again(timer, next_ns, self._settle)


_new = tuple.__new__

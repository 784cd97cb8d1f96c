"""A medium whose transfers wait before they queue, release their bits in bursts, and end a tail after the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple, final

from simpy.events import Event
from typing_extensions import override

from fednet_emu.kernel.clock import FOREVER_NS, Timer
from fednet_emu.network.air.latency import Latency
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.phases import Phases
from fednet_emu.network.air.released import ReleasedAir
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.transport.connections import Connections


class EndToEnd:
    """What the transfers of a medium pass from end to end beside their turn and their time on the air.

    Args:
        latency: what the access scheme takes.
        connections: the connections between ends; None without a transport.
        way_ns: time in ns from antenna to antenna; None for none.
    """

    def __init__(
        self,
        latency: Latency,
        connections: Connections | None = None,
        way_ns: Callable[[Transfer], int] | None = None,
    ) -> None:
        self._latency, self._connections, self._way_ns = latency, connections, way_ns

    def enter(self, transfer: Transfer, now_ns: int) -> Phases:
        """The phases of a transfer that is asked for now, as far as they are known."""
        if self._connections is None:
            phases = Phases(transfer.size_bit, transfer.size_bit)
        else:
            phases = self._connections.enter(transfer, now_ns)
        if not phases.refused:
            phases.access_ns = self._latency.access_ns(transfer, now_ns + phases.setup_ns)
        return phases

    def start(self, transfer: Transfer, now_ns: int) -> int:
        """Say how the bits of a transfer that starts now are released; return how long its gaps are in ns, at most."""
        return 0 if self._connections is None else self._connections.start(transfer, now_ns)

    def tail_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Time in ns until a transfer counts as received whose last bit leaves the air now."""
        under_way_ns = 0 if self._connections is None else self._connections.leave(transfer, now_ns)
        way_ns = 0 if self._way_ns is None else self._way_ns(transfer)
        return self._latency.tail_ns(transfer, now_ns) + under_way_ns + way_ns

    def lose(self, transfer: Transfer) -> None:
        """Note that a transfer was lost."""
        if self._connections is not None:
            self._connections.lose(transfer)


class Late(NamedTuple):
    """A burst that is off the air but not yet received."""

    burst: Burst
    since_ns: int
    air_bit: float
    energy_j: float
    receive_j: list[float]
    timer: Timer


@final
class PhasedMedium(Medium):
    """A medium that asks of each transfer how long it waits when it is asked for, and how long its tail is.

    A burst in its tail is off the air: its place is free. Arguments are those of `Medium`, and:

    Args:
        end_to_end: what is asked.
    """

    def __init__(self, *of_medium: Any, end_to_end: EndToEnd, **more: Any) -> None:
        super().__init__(*of_medium, **more)
        self._released = ReleasedAir(self._air)
        self._end_to_end, self._air = end_to_end, self._released
        self._plain_timeout_ns, self._gaps_ns = self._timeout_ns, 0
        self._early: dict[Transfer, None] = {}
        self._ready: list[tuple[int, int, Transfer]] = []  # when each is ready, and its number; a heap
        self._joined = 0
        self._late: dict[Transfer, Late] = {}

    @override
    def send_all(
        self, sender: int, receivers: Sequence[int], payload: Any, number: int, size_bit: int, group: int | None
    ) -> list[Transfer]:
        return [self.send(sender, receiver, payload, number, size_bit, group=group) for receiver in receivers]

    @override
    def _join(self, transfer: Transfer) -> None:
        phases = transfer.phases = self._end_to_end.enter(transfer, self.clock.now)
        transfer.size_bit = phases.wire_bit
        if not phases.wait_ns:
            self._queue(transfer)
            return
        ready_ns = self.clock.now + phases.wait_ns
        self._early[transfer] = None
        heappush(self._ready, (ready_ns, self._joined, transfer))
        self._joined += 1
        if ready_ns < self._due_ns:
            self._settle_at(ready_ns)

    @override
    def _settle(self, _event: Event) -> None:
        """Let those queue first whose waits are over now."""
        now_ns, ready = self.clock.now, self._ready
        while ready and (ready[0][0] <= now_ns or ready[0][2].cancelled):
            transfer = heappop(ready)[2]
            if transfer.cancelled:
                continue
            del self._early[transfer]
            phases = transfer.phases
            if phases is None or not phases.refused:
                self._requests.append(transfer)
                continue
            transfer.lost = phases.refused
            self._record_unsent(transfer, phases.refused)
            self._deliver(transfer, now_ns)
        self._released.alarm_ns = ready[0][0] if ready else FOREVER_NS
        super()._settle(_event)

    def _queue(self, transfer: Transfer) -> None:
        """Let a transfer queue in the order in which waits end, even where every place is in use."""
        super()._join(transfer)
        self._settle_at(self.clock.now)

    @override
    def _start(self, burst: Burst) -> bool:
        """Timeouts that the scenario leaves open do not count gaps."""
        gaps_ns = max([self._end_to_end.start(transfer, self.clock.now) for transfer in burst])
        self._gaps_ns = 0 if self.settings.timeout_s is not None else gaps_ns
        self._timeout_ns = self._plain_timeout_ns + self._gaps_ns
        return super()._start(burst)

    @override
    def _move(self) -> None:
        self._released.settle()
        super()._move()

    @override
    def _limit(self, transfer: Transfer, patience: Patience) -> None:
        super()._limit(transfer, patience)
        if transfer.until_ns > self.clock.now:
            transfer.until_ns += self._gaps_ns

    @override
    def cancel(self, transfer: Transfer, reason: str) -> None:
        if transfer in self._early and not transfer.cancelled:
            transfer.cancelled = reason
            del self._early[transfer]
            self._record_unsent(transfer, reason)
        elif transfer in self._late and not transfer.cancelled:
            transfer.cancelled = transfer.lost = reason
            late = self._late[transfer]
            if all(leg.lost for leg in late.burst):
                late.timer.cancel()
                self._report(late.burst)
        else:
            super().cancel(transfer, reason)

    @override
    def close(self) -> None:
        super().close()
        for transfer in [*self._early, *self._late]:
            self.cancel(transfer, "end")

    @override
    def _record_unsent(self, transfer: Transfer, reason: str) -> None:
        assert transfer.phases is not None
        transfer.phases.cut(self.clock.now - transfer.requested_ns)
        super()._record_unsent(transfer, reason)

    @override
    def _deliver(self, transfer: Transfer, now_ns: int) -> None:
        if transfer.lost:
            self._end_to_end.lose(transfer)
        if transfer.lost or not self._tail_ns(transfer, now_ns):
            super()._deliver(transfer, now_ns)

    def _tail_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Note the tail of a transfer whose last bit leaves the air now, in ns, and return it."""
        assert transfer.phases is not None
        transfer.phases.tail_ns = self._end_to_end.tail_ns(transfer, now_ns)
        return transfer.phases.tail_ns

    @override
    def _write(self, burst: Burst, now_ns: int, air_bit: float, energy_j: float, receive_j: list[float]) -> None:
        tail_ns = max([leg.phases.tail_ns for leg in burst if leg.phases is not None])
        if not tail_ns:
            super()._write(burst, now_ns, air_bit, energy_j, receive_j)
            return
        timer = self.clock.call_at(now_ns + tail_ns, partial(self._report, burst))
        late = Late(burst, now_ns, air_bit, energy_j, receive_j, timer)
        self._late.update((leg, late) for leg in burst if leg.phases is not None and leg.phases.tail_ns)

    def _report(self, burst: Burst, event: Event | None = None) -> None:
        """Deliver and record a burst whose tail is over: by its event, or before it if nobody waits for it any more."""
        now_ns, reported = self.clock.now, [leg for leg in burst if leg in self._late]
        late = self._late[reported[0]]
        for leg in reported:
            del self._late[leg]
            if not leg.cancelled:
                super()._deliver(leg, now_ns)
        assert burst[0].phases is not None
        burst[0].phases.tail_ns = now_ns - late.since_ns
        super()._write(burst, now_ns, late.air_bit, late.energy_j, late.receive_j)
        if event is None:
            self._settle_at(now_ns)
        else:
            came, self._came = self._came, []
            self.clock.trigger_now(came)

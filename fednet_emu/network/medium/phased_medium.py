"""A medium whose transfers wait before they queue, release their bits in bursts, and end a tail after the last bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, final

from simpy.events import NORMAL, Event
from typing_extensions import override

from fednet_emu.kernel.clock import Timer
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
    receive_j: float
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
        self._end_to_end, self._air = end_to_end, ReleasedAir(self._air)
        self._plain_timeout_ns, self._gaps_ns = self._timeout_ns, 0
        self._early: dict[Transfer, Timer] = {}
        self._late: dict[Transfer, Late] = {}

    @override
    def _join(self, transfer: Transfer) -> None:
        phases = transfer.phases = self._end_to_end.enter(transfer, self.clock.now)
        transfer.size_bit = phases.wire_bit
        if not phases.wait_ns:
            self._queue(transfer)
            return

        def ready(_event: Event) -> None:
            del self._early[transfer]
            if not phases.refused:
                self._queue(transfer)
                return
            transfer.lost = phases.refused
            self._record_unsent(transfer, phases.refused)
            self._deliver(transfer, self.clock.now)
            self._settle_at(self.clock.now)

        self._early[transfer] = self.clock.call_at(self.clock.now + phases.wait_ns, ready, NORMAL)

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
    def _limit(self, transfer: Transfer, patience: Patience) -> None:
        super()._limit(transfer, patience)
        if transfer.until_ns > self.clock.now:
            transfer.until_ns += self._gaps_ns

    @override
    def cancel(self, transfer: Transfer, reason: str) -> None:
        if transfer in self._early and not transfer.cancelled:
            transfer.cancelled = reason
            self._early.pop(transfer).cancel()
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
    def _write(self, burst: Burst, now_ns: int, air_bit: float, energy_j: float, receive_j: float) -> None:
        tail_ns = max([leg.phases.tail_ns for leg in burst if leg.phases is not None])
        if not tail_ns:
            super()._write(burst, now_ns, air_bit, energy_j, receive_j)
            return
        timer = self.clock.call_at(now_ns + tail_ns, partial(self._report, burst))
        late = Late(burst, now_ns, air_bit, energy_j, receive_j, timer)
        self._late.update((leg, late) for leg in burst if leg.phases is not None and leg.phases.tail_ns)

    def _report(self, burst: Burst, _event: Event | None = None) -> None:
        """Deliver and record a burst whose tail is over."""
        now_ns, reported = self.clock.now, [leg for leg in burst if leg in self._late]
        late = self._late[reported[0]]
        for leg in reported:
            del self._late[leg]
            if not leg.cancelled:
                super()._deliver(leg, now_ns)
        assert burst[0].phases is not None
        burst[0].phases.tail_ns = now_ns - late.since_ns
        super()._write(burst, now_ns, late.air_bit, late.energy_j, late.receive_j)
        self._settle_at(now_ns)

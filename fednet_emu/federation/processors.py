"""The processors of all devices and of the server: one computation at a time each, in simulated time."""

from __future__ import annotations

from typing import Any, NamedTuple

from simpy.events import NORMAL, Event

from fednet_emu.errors import ScenarioError
from fednet_emu.federation.speeds import Processor
from fednet_emu.federation.stragglers import Straggler
from fednet_emu.kernel.clock import NS_PER_S, Clock, to_ns
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.delivery import device_label
from fednet_emu.records.ledger import CODE, SERVER, Ledger
from fednet_emu.units import Array


class Work(NamedTuple):
    """What a computation costs and what it gives: `flop` operations, and a result that is there when its time is over.

    `input` and `output` are the numbers of the deferred values that go in and come out, for the records; -1 for none.
    """

    flop: float
    result: Any
    input: int = -1
    output: int = -1


class Computation(Event):
    """Event that comes when a computation has ended; its value is the work's result."""

    def __init__(self, processors: Processors, device: int, work: Work, started_ns: int, ended_ns: int) -> None:
        super().__init__(processors.clock)
        self._processors = processors
        self.device, self.work = device, work
        self.started_ns, self.ended_ns = started_ns, ended_ns
        self.stopped = ""
        self._ok = True
        self._value = work.result
        self.callbacks.append(processors.ended)
        processors.clock.schedule(self, NORMAL, ended_ns - processors.clock.now)

    def cancel(self, outcome: Any) -> None:
        """Stop computing, for the reason in `outcome`, a delivery that is lost."""
        self._processors.stop(self, outcome.lost)

    def describe(self) -> str:
        """Say who computes until when."""
        return f"a computation of {device_label(self.device)} until t={self.ended_ns / NS_PER_S:.6g} s"


class Processors:
    """All processors of a run. Each works through its computations in the order of the requests."""

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        flop_per_s: Array,
        server_flop_per_s: float | None,
        processor: Processor,
        straggler: Straggler,
        straggler_key: int,
    ) -> None:
        self.clock = clock
        self._ledger = ledger
        self._flop_per_s: list[float] = flop_per_s.tolist()
        self._server_flop_per_s = server_flop_per_s
        self._processor = processor
        self._straggler = straggler
        self._straggler_key = straggler_key
        self._busy_until_ns: dict[int, int] = {}
        self._count: dict[int, int] = {}
        self._running: dict[Computation, None] = {}

    def flop_per_s(self, device: int) -> float:
        """Speed of a device or of the server.

        Raises:
            ScenarioError: the server has no speed.
        """
        if device != SERVER:
            return self._flop_per_s[device]
        if self._server_flop_per_s is None:
            raise ScenarioError("server.flop_per_s: is required, the algorithm computes on the server; give its speed")
        return self._server_flop_per_s

    def run(self, device: int, work: Work) -> Computation:
        """Compute as soon as the processor is free; the event comes at the end."""
        started_ns = max(self.clock.now, self._busy_until_ns.get(device, 0))
        count = self._count[device] = self._count.get(device, -1) + 1
        nominal_s = work.flop / self.flop_per_s(device)
        if device != SERVER:
            draw = uniform(mix(self._straggler_key, device), count)
            nominal_s = self._straggler.duration_s(nominal_s, device, started_ns / NS_PER_S, draw)
        ended_ns = started_ns + to_ns(nominal_s)
        self._busy_until_ns[device] = ended_ns
        computation = Computation(self, device, work, started_ns, ended_ns)
        self._running[computation] = None
        return computation

    def ended(self, event: Event) -> None:
        """Record a computation that has come to its end."""
        if isinstance(event, Computation) and not event.stopped:
            del self._running[event]
            self._record(event, event.ended_ns, 1.0)

    def stop(self, computation: Computation, reason: str) -> None:
        """Stop a computation: the part done so far is recorded, and the processor is free again."""
        if computation not in self._running:
            return
        del self._running[computation]
        computation.stopped = reason
        now_ns, started_ns = self.clock.now, computation.started_ns
        if self._busy_until_ns[computation.device] == computation.ended_ns:
            self._busy_until_ns[computation.device] = max(now_ns, started_ns)
        if now_ns > started_ns:
            self._record(computation, now_ns, (now_ns - started_ns) / (computation.ended_ns - started_ns))

    def close(self) -> None:
        """Stop everything at the end of the run."""
        for computation in list(self._running):
            self.stop(computation, "end")

    def _record(self, computation: Computation, ended_ns: int, part: float) -> None:
        device, work = computation.device, computation.work
        flop = work.flop * part
        energy_j = self._processor.energy_j(flop, self.flop_per_s(device)) if device != SERVER else 0.0
        self._ledger.energy_j += energy_j
        self._ledger.computes.append(
            (
                device,
                computation.started_ns,
                ended_ns,
                flop,
                energy_j,
                work.input,
                work.output,
                CODE[computation.stopped],
            )
        )

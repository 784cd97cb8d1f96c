"""The processors of all devices and of the server: one computation at a time each, in simulated time."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, cast

from simpy.events import NORMAL, Event

from fednet_emu.arrays import Array
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.stragglers import NoStraggler, Straggler
from fednet_emu.kernel.clock import NS_PER_S, Clock, to_ns
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.radio.energy import ComputeEnergy
from fednet_emu.records.ledger import CODE, NEVER_NS, SERVER, Ledger, device_label


class Work(NamedTuple):
    """A computation: its cost of `flop` floating-point operations, and a result that is available when it has ended.

    `input` and `output` are the numbers of the deferred values that go in and come out, for the records; -1 for none.
    """

    flop: float
    result: Any
    input: int = -1
    output: int = -1


class Computation(Event):
    """Event that comes when a computation has ended; its value is the work's result.

    `started_ns` and `ended_ns` are `NEVER_NS` while it waits for the processor.
    """

    def __init__(self, processors: Processors, device: int, work: Work, count: int) -> None:
        self.env = processors.clock  # what SimPy's own does, without its call
        self.callbacks = [processors.ended]
        self._ok = True
        self._processors = processors
        self.device, self.work, self.count = device, work, count
        self.started_ns = self.ended_ns = NEVER_NS
        self.stopped = ""

    def forget(self) -> None:
        """Leave the clock's queue and release the work, so that a result that is never used is not computed."""
        self.callbacks.remove(self._processors.ended)
        self.work = self.work._replace(result=None)
        if self.ended_ns != NEVER_NS:
            self._value = None
            cast("Clock", self.env).forget(self)

    def begin(self, duration_ns: int) -> None:
        """Start now, and trigger after `duration_ns`."""
        self.started_ns = self._processors.clock.now
        self.ended_ns = self.started_ns + duration_ns
        self._value = self.work.result
        self.env.schedule(self, NORMAL, duration_ns)

    def cancel(self, outcome: Any) -> None:
        """Stop computing, for the reason in `outcome`, a delivery that is lost."""
        self._processors.stop(self, outcome.lost)

    def describe(self) -> str:
        """Say which device computes and until when, for deadlock messages."""
        until = "that waits for its turn" if self.ended_ns == NEVER_NS else f"until t={self.ended_ns / NS_PER_S:.6g} s"
        return f"a computation of {device_label(self.device)} {until}"


class Processors:
    """All processors of a run. Each works through its computations one by one, in the order of the requests."""

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        flop_per_s: Array,
        server_flop_per_s: float | None,
        energy: ComputeEnergy,
        straggler: Straggler,
        straggler_key: int,
    ) -> None:
        self.clock = clock
        self._ledger = ledger
        self._flop_per_s: list[float] = flop_per_s.tolist()
        self._server_flop_per_s = server_flop_per_s
        self._energy = energy
        self._straggler = straggler
        self._straggler_key = straggler_key
        self._always_nominal = type(straggler) is NoStraggler
        self._count: dict[int, int] = {}
        self._running: dict[int, Computation] = {}
        self._waiting: dict[int, deque[Computation]] = {}

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
        count = self._count[device] = self._count.get(device, -1) + 1
        computation = Computation(self, device, work, count)
        if device in self._running:
            self._waiting.setdefault(device, deque()).append(computation)
        else:
            self._begin(computation)
        return computation

    def _begin(self, computation: Computation) -> None:
        device = computation.device
        duration_s = computation.work.flop / self.flop_per_s(device)
        if device != SERVER and not self._always_nominal:
            draw = uniform(mix(self._straggler_key, device), computation.count)
            duration_s = self._straggler.duration_s(duration_s, device, self.clock.now_s, draw)
        duration_ns = to_ns(duration_s)  # may refuse; then nothing runs on the device
        self._running[device] = computation
        computation.begin(duration_ns)

    def ended(self, event: Event) -> None:
        """Record a computation that has come to its end; the next one of the device begins."""
        if isinstance(event, Computation) and not event.stopped:
            self._record(event, event.ended_ns, 1.0)
            self._next(event.device)

    def stop(self, computation: Computation, reason: str) -> None:
        """Stop a computation: the part done so far is recorded, and the processor is free for the next one."""
        device = computation.device
        if self._running.get(device) is not computation:
            if computation in self._waiting.get(device, ()):
                computation.stopped = reason
                self._waiting[device].remove(computation)
                computation.forget()
            return
        computation.stopped = reason
        now_ns, started_ns = self.clock.now, computation.started_ns
        if started_ns < now_ns:
            self._record(computation, now_ns, (now_ns - started_ns) / (computation.ended_ns - started_ns))
        computation.forget()
        self._next(device)

    def _next(self, device: int) -> None:
        del self._running[device]
        waiting = self._waiting.get(device)
        if waiting:
            self._begin(waiting.popleft())

    def close(self) -> None:
        """Stop everything at the end of the run."""
        for queue in self._waiting.values():
            queue.clear()
        for computation in list(self._running.values()):
            self.stop(computation, "end")

    def _record(self, computation: Computation, ended_ns: int, part: float) -> None:
        device, started_ns = computation.device, computation.started_ns
        flop, _, given, made = computation.work
        flop, energy_j = flop * part, 0.0
        if device != SERVER:
            energy_j = self._energy.energy_j(flop, self._flop_per_s[device], (ended_ns - started_ns) / NS_PER_S)
        self._ledger.energy_j += energy_j
        stopped = CODE[computation.stopped]
        self._ledger.computes.append((device, started_ns, ended_ns, flop, energy_j, given, made, stopped))

"""The processors of all devices and of the server: one computation at a time each, in simulated time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from simpy.events import NORMAL, Event

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.devices.batteries import Batteries
from fednet_emu.devices.battery import COMPUTING, Load
from fednet_emu.devices.powers import PerDevice
from fednet_emu.devices.speeds import Frequency
from fednet_emu.devices.stragglers import NoStraggler, Straggler
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import NS_PER_S, Clock, Timer, all_to_ns, to_ns
from fednet_emu.kernel.events import Completion, not_awaited
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.radio.energy import ComputeEnergy
from fednet_emu.records.ledger import NEVER_NS, SERVER, Ledger, device_label
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import ComputeRow

MOST_PAUSES = 1 << 16
"""Largest number of times that a computation stops for want of charge; more would take minutes of computing time."""


class Work(NamedTuple):
    """A computation: its cost of `flop` floating-point operations, and a result that is available when it has ended.

    `input` and `output` are the numbers of the deferred values that go in and come out, for the records; -1 for none.
    """

    flop: float
    result: Any
    input: int = -1
    output: int = -1


class Computation(Completion):
    """Event that comes when a computation has ended; its value is the work's result.

    `started_ns` and `ended_ns` are `NEVER_NS` while it waits for the processor, or for a battery to be charged. Then it
    goes on where it was: `left_ns` of its `duration_ns` are left. `clock_part` is the part of the device's full clock
    at which it runs.
    """

    def __init__(self, processors: Processors, device: int, work: Work, count: int) -> None:
        self.env = processors.clock  # what `Completion` does, without its call
        self.callbacks = []
        self._ok = True
        self._processors = processors
        self.device, self.work, self.count = device, work, count
        self.started_ns = self.ended_ns = NEVER_NS
        self.duration_ns = self.left_ns = 0
        self.clock_part = 1.0
        self.stopped = ""
        self.pauses = 0
        self.load: Load | None = None
        self._timer: Timer | None = None

    @property
    def params(self) -> Any:
        """Trained parameters are in the value of this event; asking here is an `AlgorithmError`."""
        raise not_awaited(self, "its params")

    def forget(self) -> None:
        """Leave the clock's queue and release the work, so that a result that is never used is not computed."""
        self.work = self.work._replace(result=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def go_on(self) -> None:
        """Compute what is left from now on, until `pause`, and trigger at the end."""
        clock = self._processors.clock
        self.started_ns, self.ended_ns = clock.now, clock.now + self.left_ns
        self._timer = clock.call_at(self.ended_ns, self._come, NORMAL)

    def pause(self) -> None:
        """Stop computing for now."""
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self.left_ns -= self._processors.clock.now - self.started_ns
        self.started_ns = self.ended_ns = NEVER_NS

    def _come(self, _event: Event) -> None:
        self._timer = None  # no cycle of references may keep the result
        self._processors.end(self)
        self._processors.clock.come(self, self.work.result)

    def cancel(self, outcome: Any) -> None:
        self._processors.stop(self, outcome.lost)

    def describe(self) -> str:
        until = "that waits for its turn" if self.ended_ns == NEVER_NS else f"until t={self.ended_ns / NS_PER_S:.6g} s"
        return f"a computation of {device_label(self.device)} {until}"


class Processors:
    """All processors of a run. Each works through its computations one by one, in the order of the requests.

    When the battery of a device gets empty its computation is recorded as far as it is, and the rest is done when the
    device is back. If nothing will ever charge the battery the rest is not done: the event comes when it would have
    come, so that nobody waits for ever, and the result stays on the device, which is away.

    Attributes:
        granted: the part of its full clock at which each device computes in a planned round, by device.

    Args:
        clock: simulated time.
        ledger: records.
        flop_per_s: speeds [devices] in FLOP/s.
        server_flop_per_s: that of the server; None if it does not compute.
        energy: laws of what computations draw beside the idle power, by profile; None where none is known.
        straggler: how computations take longer.
        straggler_key: its randomness.
        batteries: what computations draw from, if anything.
        frequency: the clocks.
        overhead_s: time in s that each computation of a device takes beside its operations; None for none.
        which: for each device, which of the profiles it has; empty for one.
        slowdown: how many times longer the overhead takes on some devices, whose speeds are as much lower already.
    """

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        flop_per_s: Array,
        server_flop_per_s: float | None,
        energy: Sequence[ComputeEnergy | None],
        straggler: Straggler,
        straggler_key: int,
        batteries: Batteries | None = None,
        frequency: Frequency = Frequency(),  # noqa: B008  # frozen
        overhead_s: PerDevice | None = None,
        which: bytes = b"",
        slowdown: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        self.clock = clock
        self._ledger = ledger
        self._speeds = flop_per_s * frequency.part
        self._flop_per_s: list[float] = self._speeds.tolist()
        self._frequency, self.granted = frequency, dict[int, float]()
        self._server_flop_per_s = server_flop_per_s
        self._energy, self._which = energy, which or bytes(len(flop_per_s))
        self._overhead_s, self._slowdown = overhead_s, slowdown
        self._straggler = straggler
        self._straggler_key = straggler_key
        self._batteries = batteries
        self._always_nominal, self._always_full = type(straggler) is NoStraggler, frequency.within_s is None
        self._count: dict[int, int] = {}
        self._running: dict[int, Computation] = {}
        self._waiting: dict[int, deque[Computation]] = {}

    def flop_per_s(self, device: int) -> float:
        """Speed of a device at its full clock, or of the server.

        Raises:
            ScenarioError: the server has no speed.
        """
        if device != SERVER:
            return self._flop_per_s[device]
        if self._server_flop_per_s is None:
            raise ScenarioError("server.flop_per_s: is required, the algorithm computes on the server; give its speed")
        return self._server_flop_per_s

    def expected_s(self, device: int, flop: float) -> float:
        """Time in s of some work without straggling, at the clock that the device chooses for it."""
        full_s = self._full_s(device, flop)
        return full_s / self._frequency.chosen(full_s)

    def nominal(self, device: int, flop: float) -> tuple[float, float, float]:
        """Time in s and energy in J of some work at a device's full clock, and the lowest part of it that saves."""
        least, full_s = self._frequency.least, self._full_s(device, flop)
        full_j = self.energy_j(device, flop, full_s)
        saves = self.energy_j(device, flop, full_s / least, least) < full_j
        return full_s, full_j, least if saves else 1.0

    def _full_s(self, device: int, flop: float) -> float:
        """Time in s of some work at the full clock of a device, or of the server: a fixed time, and work over speed."""
        if device == SERVER:
            return flop / self.flop_per_s(SERVER)
        full_s = flop / self._flop_per_s[device]
        if self._overhead_s is None:
            return full_s
        return self._overhead_s[device] * self._slowdown.get(device, 1.0) / self._frequency.part + full_s

    @property
    def energy_known(self) -> Mask:
        """Whether it is known what the computations of each device [devices] draw."""
        known = np.array([law is not None for law in self._energy])
        return np.asarray(known[np.frombuffer(self._which, np.uint8)])

    def energy_j(self, device: int, flop: float, duration_s: float, clock_part: float = 1.0) -> float:
        """Energy in J of some work beside the idle power; 0 where no law is known."""
        law = self._energy[self._which[device]]
        return 0.0 if law is None else law.energy_j(flop, duration_s, self._frequency.part * clock_part)

    def run(self, device: int, work: Work) -> Computation:
        """Compute as soon as the processor is free; the event comes at the end."""
        count = self._count[device] = self._count.get(device, -1) + 1
        computation = Computation(self, device, work, count)
        if device in self._running:
            self._waiting.setdefault(device, deque()).append(computation)
        else:
            self._begin(computation)
        return computation

    @property
    def are_certain(self) -> bool:
        """Whether no computation is under way, and none can stop or be planned: no batteries, no granted clocks."""
        return self._batteries is None and not self.granted and not self._running

    def durations_ns(self, devices: IntArray, flop: Array, began_ns: int, earlier: int = 0) -> IntArray:
        """Durations in ns [n] of computations that begin on idle devices, all different, as `run` would have them.

        Args:
            devices: [n] their numbers.
            flop: [n] operations of each.
            began_ns: when they begin.
            earlier: number of computations of each device since the last that `run` or `add` has counted.
        """
        duration_s = flop / self._speeds[devices]
        if self._overhead_s is not None:
            overhead_s = self._overhead_s.of(devices)
            if self._slowdown:
                overhead_s *= np.array([self._slowdown.get(k, 1.0) for k in devices.tolist()])
            duration_s = overhead_s / self._frequency.part + duration_s
        if not self._always_full:
            duration_s = np.array([each / self._frequency.chosen(each) for each in duration_s.tolist()])
        if not self._always_nominal:
            duration_s = np.array(
                [
                    self._straggler.duration_s(
                        each,
                        k,
                        began_ns / NS_PER_S,
                        uniform(mix(self._straggler_key, k), self._count.get(k, -1) + 1 + earlier),
                    )
                    for k, each in zip(devices.tolist(), duration_s.tolist(), strict=True)
                ]
            )
        return all_to_ns(duration_s)

    def add(
        self,
        devices: IntArray,
        flop: Array,
        started_ns: IntArray,
        ended_ns: IntArray,
        inputs: IntArray,
        outputs: IntArray,
    ) -> Array:
        """Record computations that are over, in the order of their ends; return the energy in J of each.

        The caller adds it to the energy of the ledger.

        Args:
            devices: [n] where they ran.
            flop: [n] operations of each.
            started_ns: [n] when each began.
            ended_ns: [n] when it ended.
            inputs: [n] numbers of the input values.
            outputs: [n] numbers of the results.
        """
        numbers, energy_j = devices.tolist(), np.zeros(len(devices))
        for k in numbers:
            self._count[k] = self._count.get(k, -1) + 1
        if any(law is not None for law in self._energy):
            rows = zip(numbers, flop.tolist(), ((ended_ns - started_ns) / NS_PER_S).tolist(), strict=True)
            for place, (k, its_flop, span_s) in enumerate(rows):
                part = 1.0 if self._always_full else self._frequency.chosen(self._full_s(k, its_flop))
                energy_j[place] = self.energy_j(k, its_flop, span_s, part)
        self._ledger.computes.extend(
            device=devices, started_ns=started_ns, ended_ns=ended_ns, flop=flop, energy_j=energy_j,
            input=inputs, result=outputs, stopped=np.zeros(len(devices)),
        )  # fmt: skip
        return energy_j

    def _begin(self, computation: Computation) -> None:
        device = computation.device
        duration_s = self._full_s(device, computation.work.flop)
        if device != SERVER:
            if self.granted or not self._always_full:
                computation.clock_part = self.granted.get(device) or self._frequency.chosen(duration_s)
                duration_s /= computation.clock_part
            if not self._always_nominal:
                draw = uniform(mix(self._straggler_key, device), computation.count)
                duration_s = self._straggler.duration_s(duration_s, device, self.clock.now_s, draw)
        duration_ns = to_ns(duration_s)  # may refuse; then nothing runs on the device
        self._running[device] = computation
        computation.duration_ns = computation.left_ns = duration_ns
        if device == SERVER or self._batteries is None:
            computation.go_on()
        elif self._batteries.on[device]:
            self._go_on(computation, self._batteries)
        else:
            self._wait_for_charge(computation, self._batteries)

    def _go_on(self, computation: Computation, batteries: Batteries) -> None:
        """Compute from now on what is left of a computation."""
        computation.go_on()
        device, duration_s = computation.device, computation.duration_ns / NS_PER_S
        energy_j = self.energy_j(device, computation.work.flop, duration_s, computation.clock_part)
        power_w = energy_j / duration_s if duration_s else 0.0
        pause = partial(self._pause, computation, batteries)
        computation.load = batteries.load(device, COMPUTING, power_w, pause)

    def _pause(self, computation: Computation, batteries: Batteries) -> None:
        """Record what is done of a computation, because the battery is empty.

        Raises:
            ScenarioError: it has stopped too often.
        """
        self._record_part(computation, "empty")
        computation.pause()
        computation.pauses += 1
        if computation.pauses > MOST_PAUSES:
            done = 1.0 - computation.left_ns / computation.duration_ns
            raise ScenarioError(
                f"devices.battery: a computation of {device_label(computation.device)} stops for want of charge more "
                f"than {MOST_PAUSES} times, got one that is {done:.2g} done by then; give a larger battery, a larger "
                "restart_share or less work"
            )
        self._wait_for_charge(computation, batteries)

    def _wait_for_charge(self, computation: Computation, batteries: Batteries) -> None:
        def back() -> None:
            if not computation.stopped:
                self._go_on(computation, batteries)

        if not batteries.when_back(computation.device, back):
            computation.stopped = "empty"
            computation.go_on()

    def end(self, computation: Computation) -> None:
        """Record a computation that has come to its end; the next one of the device begins."""
        if not computation.stopped:
            self._record(computation, computation.ended_ns)
        self._next(computation.device)

    def stop(self, computation: Computation, reason: str) -> None:
        """Stop a computation: the part done so far is recorded, and the processor is free for the next one."""
        device = computation.device
        if self._running.get(device) is not computation:
            if computation in self._waiting.get(device, ()):
                computation.stopped = reason
                self._waiting[device].remove(computation)
                computation.forget()
            return
        computes = computation.started_ns != NEVER_NS and not computation.stopped
        computation.stopped = reason
        if computes:
            self._record_part(computation, reason)
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

    def _record_part(self, computation: Computation, reason: str) -> None:
        """Record a computation that stops now, if it has taken any time."""
        if computation.started_ns < self.clock.now:
            self._record(computation, self.clock.now, reason)
        else:
            self._unload(computation, 0.0)

    def _record(self, computation: Computation, ended_ns: int, stopped: str = "") -> None:
        device, started_ns, (flop, _, given, made) = computation.device, computation.started_ns, computation.work
        span_ns, energy_j = ended_ns - started_ns, 0.0
        if span_ns != computation.duration_ns:
            flop *= span_ns / computation.duration_ns
        if device != SERVER:
            energy_j = self.energy_j(device, flop, span_ns / NS_PER_S, computation.clock_part)
        if computation.load is not None:
            self._unload(computation, energy_j)
        self._ledger.energy_j += energy_j
        made = -1 if stopped == "empty" else made  # the rest follows, and makes it
        row: ComputeRow = _new(ComputeRow, (device, started_ns, ended_ns, flop, energy_j, given, made, CODE[stopped]))
        self._ledger.computes.append(row)

    def _unload(self, computation: Computation, energy_j: float) -> None:
        """End the load of a computation, if its device has a battery."""
        if computation.load is not None and self._batteries is not None:
            self._batteries.unload(computation.load, energy_j)
            computation.load = None  # it refers to the computation


_new = tuple.__new__  # the constructor of a named tuple takes twice as long

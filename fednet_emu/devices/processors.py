"""The processors of all devices and of the server; each processor runs one computation at a time."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from simpy.events import NORMAL, Event

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.devices.batteries import COMPUTING, Batteries, Load
from fednet_emu.devices.powers import PerDevice
from fednet_emu.devices.speeds import Frequency
from fednet_emu.devices.stragglers import NoStraggler, Straggler
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import NS_PER_S, Clock, Timer, all_to_ns, to_ns
from fednet_emu.kernel.events import Completion, not_awaited
from fednet_emu.kernel.streams import mix, mixes, uniform, uniforms
from fednet_emu.radio.energy import ComputeEnergy
from fednet_emu.records.ledger import NEVER_NS, SERVER, Ledger, device_label
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import ComputeRow

MOST_PAUSES = 1 << 16
"""Maximum number of pauses of a computation because of an empty battery. More pauses raise an error, because their
simulation would take minutes."""


class Work(NamedTuple):
    """A computation to be run: its number of floating-point operations, and the value that its event will have.

    `input` and `output` are the indices, in the records, of the deferred values that the computation reads and
    produces; -1 for none.
    """

    flop: float
    result: Any
    input: int = -1
    output: int = -1


class Computation(Completion):
    """Event that triggers at the end of a computation; its value is the computation's result.

    `started_ns` and `ended_ns` are `NEVER_NS` while the computation waits for the processor, or for a battery to be
    charged. `duration_ns` is the total duration, and `left_ns` the duration that remained at `started_ns`. `clock_part`
    is the clock frequency of the computation divided by the maximum clock frequency of the device. `stopped` is the
    reason why the computation was stopped, or empty.
    """

    def __init__(self, processors: Processors, device: int, work: Work, count: int) -> None:
        self.env = processors.clock  # the constructor of `Completion`, without the call
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
        """Always raise an `AlgorithmError`; the value of the event, obtained by `yield`, has the trained parameters."""
        raise not_awaited(self, "its params")

    def forget(self) -> None:
        self.work = self.work._replace(result=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def go_on(self) -> None:
        """Run the rest of the computation; this event triggers at its end, unless `pause` is called before."""
        clock = self._processors.clock
        self.started_ns, self.ended_ns = clock.now, clock.now + self.left_ns
        self._timer = clock.call_at(self.ended_ns, self._come, NORMAL)

    def pause(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self.left_ns -= self._processors.clock.now - self.started_ns
        self.started_ns = self.ended_ns = NEVER_NS

    def _come(self, _event: Event) -> None:
        self._timer = None  # avoids a reference cycle that would keep the result in memory
        self._processors.end(self)
        self._processors.clock.come(self, self.work.result)

    def cancel(self, outcome: Any) -> None:
        self._processors.stop(self, outcome.lost)

    def describe(self) -> str:
        until = "that waits for its turn" if self.ended_ns == NEVER_NS else f"until t={self.ended_ns / NS_PER_S:.6g} s"
        return f"a computation of {device_label(self.device)} {until}"


class Processors:
    """All processors of a run. Each processor runs its computations one at a time, in the order of the requests.

    When the battery of a device becomes empty, the completed share of its computation is recorded; the rest runs when
    the device returns. If the battery will never be charged, the rest is not computed. To avoid a deadlock, the event
    still triggers at its scheduled time, but the result cannot leave the absent device.
    """

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        flop_per_s: Array,  # [devices]
        server_flop_per_s: float | None,
        energy: Sequence[ComputeEnergy | None],  # energy of computations in addition to idle power, by profile
        straggler: Straggler,
        straggler_key: int,
        batteries: Batteries | None = None,
        frequency: Frequency = Frequency(),  # noqa: B008  # frozen
        overhead_s: PerDevice | None = None,  # fixed time of each computation
        which: bytes = b"",  # index of the profile of each device; empty for a single profile
        slowdown: Mapping[int, float] = MappingProxyType({}),  # factors for `overhead_s`; `flop_per_s` includes them
    ) -> None:
        self.clock = clock
        self._ledger = ledger
        self._speeds = flop_per_s * frequency.part
        self._flop_per_s: list[float] = self._speeds.tolist()
        self._frequency = frequency
        self.granted: dict[int, float] = {}  # clock frequencies of a planned round, relative to the maximum ones
        self._server_flop_per_s = server_flop_per_s
        self._energy, self._which = energy, which or bytes(len(flop_per_s))
        self._overhead_s, self._slowdown = overhead_s, slowdown
        self._straggler = straggler
        self._straggler_key = straggler_key
        self._batteries = batteries
        self._always_nominal, self._always_full = type(straggler) is NoStraggler, frequency.within_s is None
        self._begun = array("q", bytes(8 * (len(flop_per_s) + 1)))  # numbers of computations; the last is the server's
        self._counts = np.frombuffer(self._begun, np.int64)  # shares the memory of `_begun`
        self._running: dict[int, Computation] = {}
        self._waiting: dict[int, deque[Computation]] = {}

    def flop_per_s(self, device: int) -> float:
        """Return the speed in FLOP/s of a device at maximum clock frequency, or of the server (error if not set)."""
        if device != SERVER:
            return self._flop_per_s[device]
        if self._server_flop_per_s is None:
            raise ScenarioError("server.flop_per_s: is required, the algorithm computes on the server; give its speed")
        return self._server_flop_per_s

    def expected_s(self, device: int, flop: float) -> float:
        """Return the duration in s without straggling, at the clock frequency that the device chooses."""
        full_s = self._full_s(device, flop)
        return full_s / self._frequency.chosen(full_s)

    def nominal(self, device: int, flop: float) -> tuple[float, float, float]:
        """Return the duration in s and the energy in J at maximum clock frequency, and the minimum relative frequency.

        The minimum relative frequency is 1 if the minimum frequency does not save energy.
        """
        least, full_s = self._frequency.least, self._full_s(device, flop)
        full_j = self.energy_j(device, flop, full_s)
        saves = self.energy_j(device, flop, full_s / least, least) < full_j
        return full_s, full_j, least if saves else 1.0

    def _full_s(self, device: int, flop: float) -> float:
        """Return the duration in s at the maximum clock frequency: fixed overhead (devices only) + `flop` / speed."""
        if device == SERVER:
            return flop / self.flop_per_s(SERVER)
        full_s = flop / self._flop_per_s[device]
        if self._overhead_s is None:
            return full_s
        return self._overhead_s[device] * self._slowdown.get(device, 1.0) / self._frequency.part + full_s

    @property
    def energy_known(self) -> Mask:
        known = np.array([law is not None for law in self._energy])
        return np.asarray(known[np.frombuffer(self._which, np.uint8)])

    def energy_j(self, device: int, flop: float, duration_s: float, clock_part: float = 1.0) -> float:
        """Return the energy in J of a computation, in addition to idle power; 0 if it is unknown."""
        law = self._energy[self._which[device]]
        return 0.0 if law is None else law.energy_j(flop, duration_s, self._frequency.part * clock_part)

    def run(self, device: int, work: Work) -> Computation:
        computation = Computation(self, device, work, self._begun[device])
        self._begun[device] += 1
        if device in self._running:
            self._waiting.setdefault(device, deque()).append(computation)
        else:
            self._begin(computation)
        return computation

    @property
    def are_certain(self) -> bool:
        """True if durations are predictable: no batteries, no granted clock frequencies, no running computations."""
        return self._batteries is None and not self.granted and not self._running

    def durations_ns(self, devices: IntArray, flop: Array, began_ns: int, earlier: int = 0) -> IntArray:
        """Return the durations [n] in ns of computations of `flop` [n] operations, each on another idle device.

        The durations are equal to those of `run`, for computations that begin at `began_ns`. `earlier` is the number of
        previous computations of each device that neither `run` nor `add` has counted yet.
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
            draws = uniforms(mixes(self._straggler_key, devices), self._counts[devices] + earlier)
            duration_s = self._straggler.durations_s(duration_s, devices, began_ns / NS_PER_S, draws)
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
        """Record n ended computations, sorted by end time, and return their energies [n] in J.

        The caller must add the energies to the total energy of the records. `inputs` and `outputs` are indices of
        deferred values.
        """
        np.add.at(self._counts, devices, 1)
        parts: Iterable[float] = repeat(1.0)
        energy_j = np.zeros(len(devices))
        if any(law is not None for law in self._energy):
            columns = devices.tolist(), flop.tolist(), ((ended_ns - started_ns) / NS_PER_S).tolist()
            if not self._always_full:
                parts = map(self._frequency.chosen, map(self._full_s, *columns[:2]))
            law = self._energy[0]
            if len(self._energy) == 1 and law is not None and self._always_full:
                energy_j = np.array(list(map(law.energy_j, *columns[1:], repeat(self._frequency.part))))
            else:
                energy_j = np.array(list(map(self.energy_j, *columns, parts)), np.float64)
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
        duration_ns = to_ns(duration_s)  # may raise an error, so it precedes the entry in `_running`
        self._running[device] = computation
        computation.duration_ns = computation.left_ns = duration_ns
        if device == SERVER or self._batteries is None:
            computation.go_on()
        elif self._batteries.on[device]:
            self._go_on(computation, self._batteries)
        else:
            self._wait_for_charge(computation, self._batteries)

    def _go_on(self, computation: Computation, batteries: Batteries) -> None:
        computation.go_on()
        device, duration_s = computation.device, computation.duration_ns / NS_PER_S
        energy_j = self.energy_j(device, computation.work.flop, duration_s, computation.clock_part)
        power_w = energy_j / duration_s if duration_s else 0.0
        pause = partial(self._pause, computation, batteries)
        computation.load = batteries.load(device, COMPUTING, power_w, pause)

    def _pause(self, computation: Computation, batteries: Batteries) -> None:
        """Pause a computation because the battery is empty; raise a `ScenarioError` after `MOST_PAUSES` pauses."""
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
        """Record a completed computation, and start the device's next waiting computation."""
        if not computation.stopped:
            self._record(computation, computation.ended_ns)
        self._next(computation.device)

    def stop(self, computation: Computation, reason: str) -> None:
        """Stop a computation for `reason`, record its completed share, and start the device's next computation."""
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
        for queue in self._waiting.values():
            queue.clear()
        for computation in list(self._running.values()):
            self.stop(computation, "end")

    def _record_part(self, computation: Computation, reason: str) -> None:
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
        made = -1 if stopped == "empty" else made  # the remaining part of the computation makes the result
        row: ComputeRow = _new(ComputeRow, (device, started_ns, ended_ns, flop, energy_j, given, made, CODE[stopped]))
        self._ledger.computes.append(row)

    def _unload(self, computation: Computation, energy_j: float) -> None:
        if computation.load is not None and self._batteries is not None:
            self._batteries.unload(computation.load, energy_j)
            computation.load = None  # avoids a reference cycle, as the load refers to the computation


_new = tuple.__new__  # takes half the time of a named tuple's constructor

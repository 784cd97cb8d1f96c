"""Batteries: the settings and the charge of one battery, and the batteries of all devices of a run.

The time at which a battery becomes empty, or is charged enough for its device to return, is computed in advance. It is
computed again whenever the loads of the battery change.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from pydantic import Field
from simpy.events import Event

from fednet_emu.arrays import Array, Mask
from fednet_emu.component.component import Component
from fednet_emu.devices.harvesting import AnyHarvesting, NoHarvesting, Source
from fednet_emu.devices.powers import PerDevice
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock, Timer
from fednet_emu.kernel.streams import Streams, mix, uniform
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.rows import BatteryRow

COMPUTING, SENDING, RECEIVING, IDLE = range(4)
"""Kinds of energy consumption, as indices of `Charge.used_j`."""

_MOST_PIECES = 32
"""Number of intervals of constant power that are computed in advance; at their end, the next intervals are computed."""


class Battery(Component):
    """A battery in each device; it supplies the energy for computing, sending, receiving and idling.

    A device becomes absent at the nanosecond at which its battery is empty: the transfers of the device fail, its
    computation stops, and it draws no power. The device returns as soon as the battery is charged to `restart_share`; a
    stopped computation then continues. Ignored here: self-discharge, ageing, charging losses, and a supply voltage that
    falls with the charge.
    """

    capacity_j: float = Field(ge=1e-6, le=1e12)
    """Capacity in J. Energy that is harvested while the battery is full is lost (spilled)."""
    initial_share: float = Field(default=1.0, ge=0, le=1)
    """Initial charge as a fraction of the capacity; if it is 0, the devices are absent at first."""
    initial_spread: float = Field(default=0.0, ge=0, le=1)
    """Width of the interval below `initial_share` from which each device's initial share is drawn uniformly."""
    restart_share: float = Field(default=0.1, ge=1e-3, le=1)
    """Fraction of the capacity to which an empty battery must be charged before its device returns."""
    harvesting: AnyHarvesting = NoHarvesting()
    """Energy source of the batteries."""

    def _check(self) -> None:
        if self.initial_spread > self.initial_share:
            raise ValueError(
                f"initial_spread: reaches below an empty battery, got {self.initial_spread:g}; "
                f"it must be at most initial_share, {self.initial_share:g}"
            )


class Load:
    """A load on a device's battery: a piecewise constant power, and a function to call when the battery becomes empty.

    `drawn_j` is the energy in J that the load has drawn so far. `cut_ns` is the time in ns at which the battery became
    empty, or `FOREVER_NS` if the battery has not become empty.
    """

    __slots__ = ("cut_ns", "device", "drawn_j", "emptied", "from_ns", "power_w", "use")

    def __init__(self, device: int, use: int, now_ns: int, power_w: float, emptied: Callable[[], None]) -> None:
        self.device, self.use, self.emptied = device, use, emptied
        self.from_ns, self.power_w = [now_ns], [power_w]
        self.drawn_j, self.cut_ns = 0.0, FOREVER_NS

    def at(self, now_ns: int) -> tuple[float, int]:
        """Return the current power in W, and the time in ns of its next change."""
        if len(self.from_ns) == 1:
            return self.power_w[0], FOREVER_NS
        following = bisect_right(self.from_ns, now_ns)
        until_ns = self.from_ns[following] if following < len(self.from_ns) else FOREVER_NS
        return self.power_w[max(following, 1) - 1], until_ns


class Span(NamedTuple):
    """An interval in which all powers are constant; a packet with the energy `arrival_j` is harvested at its end."""

    start_ns: int
    end_ns: int
    harvest_w: float
    draws_w: list[float]
    arrival_j: float


class Charge:
    """The charge of one battery, integrated exactly over intervals of constant power.

    All amounts of energy refer to the last update, at `since_ns`. The charge may fall below zero by the energy that is
    drawn in one nanosecond. `spilled_j` is the harvested energy that exceeded the capacity, and `used_j` lists the
    consumed energy by kind of consumption.
    """

    def __init__(self, capacity_j: float, charge_j: float, idle_w: float, source: Source) -> None:
        self._capacity_j, self._idle_w, self._source = capacity_j, idle_w, source
        self.on = charge_j > 0
        self.loads: list[Load] = []
        self.since_ns, self.charge_j = 0, charge_j
        self.harvested_j = self.spilled_j = 0.0
        self.used_j = [0.0, 0.0, 0.0, 0.0]

    def _spans(self, until_ns: int) -> Iterator[Span]:
        """Yield the intervals of constant power between the last update and `until_ns`, for the current loads."""
        start_ns, loads = self.since_ns, self.loads
        while start_ns < until_ns:
            harvest_w, piece_ns, arrival_j = self._source.piece(start_ns)
            powers = [load.at(start_ns) for load in loads]
            draws_w = [*(power_w for power_w, _ in powers), self._idle_w] if self.on else []
            end_ns = min(piece_ns, until_ns, *(change_ns for _, change_ns in powers))
            yield Span(start_ns, end_ns, harvest_w, draws_w, arrival_j if end_ns == piece_ns else 0.0)
            start_ns = end_ns

    def advance(self, now_ns: int) -> None:
        for start_ns, end_ns, harvest_w, draws_w, arrival_j in self._spans(now_ns):
            span_s = (end_ns - start_ns) / NS_PER_S
            if self.on:
                for load, power_w in zip(self.loads, draws_w[:-1], strict=True):
                    load.drawn_j += power_w * span_s
                    self.used_j[load.use] += power_w * span_s
                self.used_j[IDLE] += self._idle_w * span_s
            self._take(harvest_w * span_s, sum(draws_w) * span_s)
            if arrival_j:
                self._take(arrival_j, 0.0)
        self.since_ns = now_ns

    def _take(self, harvested_j: float, drawn_j: float) -> None:
        self.harvested_j += harvested_j
        charge_j = self.charge_j + (harvested_j - drawn_j)
        self.charge_j = min(charge_j, self._capacity_j)
        self.spilled_j += charge_j - self.charge_j

    def settle(self, load: Load, energy_j: float) -> None:
        """Set `drawn_j` of a load that has ended to the exact energy `energy_j`, which removes rounding errors."""
        missing_j = energy_j - load.drawn_j
        load.drawn_j = energy_j
        self.used_j[load.use] += missing_j
        self.charge_j -= missing_j

    def reaches_ns(self, needed_j: float) -> tuple[int, bool]:
        """Return the time in ns at which the battery becomes empty or, if it is empty now, is charged to `needed_j`.

        The time is `FOREVER_NS` if this never happens. The second result is True if the battery changes its state at
        this time, and False if the time is only the end of the period for which the charge was computed in advance.
        """
        charge_j, end_ns = self.charge_j, self.since_ns
        if self.on and not self.loads and not self._idle_w:
            return FOREVER_NS, False
        for place, (start_ns, end_ns, harvest_w, draws_w, arrival_j) in enumerate(self._spans(FOREVER_NS)):
            if place == _MOST_PIECES:
                return start_ns, False
            net_w = harvest_w - sum(draws_w)
            after_j = charge_j + net_w * ((end_ns - start_ns) / NS_PER_S)
            if self.on and after_j < 0:
                return (start_ns + _whole_ns(charge_j / -net_w) if net_w < 0 < charge_j else start_ns), True
            if not self.on and net_w > 0 and after_j >= needed_j:
                wait_s = max(needed_j - charge_j, 0.0) / net_w
                return min(start_ns - _whole_ns(-wait_s), end_ns), True
            charge_j = min(after_j + arrival_j, self._capacity_j)
            if not self.on and charge_j >= needed_j:
                return end_ns, True
        return end_ns, False


def _whole_ns(duration_s: float) -> int:
    """Convert s to ns, rounded down; a number of ns just below an integer because of rounding errors is rounded up."""
    exact = duration_s * NS_PER_S
    return math.floor(exact + min(4 * math.ulp(exact), 0.25)) if abs(exact) < FOREVER_NS else FOREVER_NS


class Batteries:
    """The batteries of all devices.

    A row for each battery is added to the records at the start, at the end, and at each change of its loads. A device
    draws its idle power while its battery is not empty. `on` is the mask [devices] of devices whose batteries are not
    empty.
    """

    def __init__(
        self, battery: Battery, count: int, idle_w: PerDevice, clock: Clock, ledger: Ledger, streams: Streams
    ) -> None:
        self._clock, self._ledger, self._idle_w = clock, ledger, idle_w
        self._needed_j = battery.restart_share * battery.capacity_j
        self._never = battery.harvesting.mean_w == 0
        spread, harvest = streams.key("battery"), streams.key("harvesting")
        self._charges = [
            Charge(
                battery.capacity_j,
                battery.capacity_j * (battery.initial_share - battery.initial_spread * uniform(spread, device)),
                idle_w[device],
                battery.harvesting.source(mix(harvest, device)),
            )
            for device in range(count)
        ]
        self.on: Mask = np.array([charge.on for charge in self._charges], np.bool_)
        self._due_ns = [FOREVER_NS] * count
        self._timers: list[Timer | None] = [None] * count
        self._back: dict[int, list[Callable[[], None]]] = {}
        for device in range(count):
            if not self.on[device]:
                ledger.idle.change(clock.now, -idle_w[device])
            self._record(device)
            self._plan(device)

    def load(self, device: int, use: int, power_w: float, emptied: Callable[[], None]) -> Load:
        """Start a load of `power_w` in W on a battery that is not empty; `emptied` is called if it becomes empty."""
        charge, load = self._now(device), Load(device, use, self._clock.now, power_w, emptied)
        charge.loads.append(load)
        self._plan(device)
        return load

    def change(self, load: Load, from_ns: Sequence[int], power_w: Sequence[float]) -> None:
        """Set the future power of a load to `power_w[i]` in W between the times `from_ns[i]` and `from_ns[i + 1]`."""
        if load.cut_ns == FOREVER_NS:
            self._now(load.device)
            load.from_ns, load.power_w = list(from_ns), list(power_w)
            self._plan(load.device)

    def unload(self, load: Load, energy_j: float) -> None:
        """End a load now; `energy_j` is the total energy in J that the load has drawn."""
        charge = self._now(load.device)
        charge.settle(load, energy_j)
        if load.cut_ns == FOREVER_NS:
            charge.loads.remove(load)
            self._plan(load.device)

    def charges_j(self) -> Array:
        return np.array([max(self._now(device).charge_j, 0.0) for device in range(len(self._charges))])

    def returns_ns(self, device: int) -> int:
        """Return the time in ns from which the battery is not empty, now or later; `FOREVER_NS` if it stays empty."""
        return self._clock.now if self.on[device] else self._due_ns[device]

    def when_back(self, device: int, callback: Callable[[], None]) -> bool:
        """Call `callback` once an empty battery is charged enough; return False if it will never be charged."""
        if self._never:
            return False
        self._back.setdefault(device, []).append(callback)
        if (timer := self._timers[device]) is not None:
            timer.to_foreground()
        return True

    def stranded(self) -> int:
        """Return the number of devices whose batteries are empty and will never be charged."""
        return int(np.count_nonzero(~self.on)) if self._never else 0

    def used_j(self, use: int) -> float:
        """Return the energy in J that all devices together have consumed so far for one kind of consumption."""
        return float(sum(charge.used_j[use] for charge in self._charges))

    def _now(self, device: int) -> Charge:
        charge = self._charges[device]
        if charge.since_ns < self._clock.now:
            charge.advance(self._clock.now)
            self._record(device)
        return charge

    def _plan(self, device: int) -> None:
        """Set a timer for the time at which the battery becomes empty, or is charged enough for the device to return.

        The timer runs in the background if the battery has neither loads nor callbacks, because no process then waits
        for it.
        """
        timer, self._timers[device], self._due_ns[device] = self._timers[device], None, FOREVER_NS
        if timer is not None:
            timer.cancel()
        charge = self._charges[device]
        if self._never and not charge.on:
            return
        due_ns, certain = charge.reaches_ns(self._needed_j)
        if due_ns < FOREVER_NS:
            due_ns = max(due_ns, charge.since_ns + (not charge.on))  # a battery stays empty for at least a nanosecond
            self._due_ns[device] = due_ns
            unnoticed = not charge.loads and device not in self._back
            due = partial(self._due, device, certain)
            self._timers[device] = self._clock.call_at(due_ns, due, background=unnoticed)

    def _due(self, device: int, certain: bool, _event: Event) -> None:
        charge, self._timers[device] = self._charges[device], None
        charge.advance(self._clock.now)
        if not certain:
            self._plan(device)
            return
        charge.on = not charge.on
        self.on[device] = charge.on
        self._ledger.idle.change(self._clock.now, self._idle_w[device] if charge.on else -self._idle_w[device])
        cut, charge.loads = charge.loads, []
        callbacks = self._back.pop(device, []) if charge.on else []
        self._record(device)
        self._plan(device)
        for load in cut:
            load.cut_ns = self._clock.now
        for load in cut:
            load.emptied()
        for callback in callbacks:
            callback()

    def _record(self, device: int) -> None:
        its = self._charges[device]
        row = (device, its.since_ns, its.charge_j, its.harvested_j, its.spilled_j, *its.used_j, int(its.on))
        self._ledger.batteries.append(BatteryRow._make(row))

    def close(self) -> None:
        for device, charge in enumerate(self._charges):
            charge.advance(self._clock.now)
            self._record(device)

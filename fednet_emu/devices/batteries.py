"""The batteries of all devices in a run, with callbacks when a battery gets empty and when its device is back.

The time at which a battery gets empty, or is charged enough, is calculated ahead, and again at each change of its
loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from simpy.events import Event

from fednet_emu.arrays import Array, Mask
from fednet_emu.devices.battery import Battery, Charge, Load
from fednet_emu.devices.powers import PerDevice
from fednet_emu.kernel.clock import FOREVER_NS, Clock, Timer
from fednet_emu.kernel.streams import Streams, mix, uniform
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.rows import BatteryRow


class Batteries:
    """The batteries of all devices.

    The ledger gets a row for each battery at the start, at the end, and at each change of its loads. A device draws its
    idle power while its battery is not empty. `on` is the mask [devices] of devices that their batteries supply.
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
        """Start a load on the battery of a device that is on; `emptied` is called when the battery gets empty."""
        charge, load = self._now(device), Load(device, use, self._clock.now, power_w, emptied)
        charge.loads.append(load)
        self._plan(device)
        return load

    def change(self, load: Load, from_ns: Sequence[int], power_w: Sequence[float]) -> None:
        """Change the power of a load to `power_w[i]` from `from_ns[i]` until `from_ns[i + 1]`, from now on."""
        if load.cut_ns == FOREVER_NS:
            self._now(load.device)
            load.from_ns, load.power_w = list(from_ns), list(power_w)
            self._plan(load.device)

    def unload(self, load: Load, energy_j: float) -> None:
        """End a load now; `energy_j` is its total energy."""
        charge = self._now(load.device)
        charge.settle(load, energy_j)
        if load.cut_ns == FOREVER_NS:
            charge.loads.remove(load)
            self._plan(load.device)

    def charges_j(self) -> Array:
        return np.array([max(self._now(device).charge_j, 0.0) for device in range(len(self._charges))])

    def returns_ns(self, device: int) -> int:
        """Time, now or later, before which the device's battery stays empty; `FOREVER_NS` for ever."""
        return self._clock.now if self.on[device] else self._due_ns[device]

    def when_back(self, device: int, callback: Callable[[], None]) -> bool:
        """Call back once when a device with an empty battery is on again; return False if it never will be."""
        if self._never:
            return False
        self._back.setdefault(device, []).append(callback)
        if (timer := self._timers[device]) is not None:
            timer.to_foreground()
        return True

    def stranded(self) -> int:
        """Number of devices whose batteries are empty and are never charged."""
        return int(np.count_nonzero(~self.on)) if self._never else 0

    def used_j(self, use: int) -> float:
        """Energy in J of all devices for one use up to the end of the run."""
        return float(sum(charge.used_j[use] for charge in self._charges))

    def _now(self, device: int) -> Charge:
        """Update a battery to the present, and record it."""
        charge = self._charges[device]
        if charge.since_ns < self._clock.now:
            charge.advance(self._clock.now)
            self._record(device)
        return charge

    def _plan(self, device: int) -> None:
        """Set a timer for the time at which the battery gets empty, or is charged enough.

        The timer runs in the background if it can wake no process: without loads and callbacks.
        """
        timer, self._timers[device], self._due_ns[device] = self._timers[device], None, FOREVER_NS
        if timer is not None:
            timer.cancel()
        charge = self._charges[device]
        if self._never and not charge.on:
            return
        due_ns, certain = charge.reaches_ns(self._needed_j)
        if due_ns < FOREVER_NS:
            due_ns = max(due_ns, charge.since_ns + (not charge.on))  # a battery is empty for a nanosecond at least
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

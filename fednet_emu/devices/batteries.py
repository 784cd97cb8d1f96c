"""The batteries of all devices in a run: each tells what draws from it when it gets empty, and when it is back.

Nothing happens between two changes of what draws: the instant at which a battery gets empty, or has been charged
enough, is calculated ahead, and again at each change.
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

    Args:
        battery: their settings.
        count: how many devices there are.
        idle_w: power in W that each device draws all the time, but while it is away for want of charge.
        clock: simulated time.
        ledger: records; each battery has a row for the start, the end, and each instant at which its draws change.
        streams: randomness.

    Attributes:
        on: mask [devices] of those that are not away for want of charge.
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

    # ---- what draws --------------------------------------------------------------------------------------------------

    def load(self, device: int, use: int, power_w: float, emptied: Callable[[], None]) -> Load:
        """Draw a power from now on from the battery of a device that is on; `emptied` is called when it gets empty."""
        charge, load = self._now(device), Load(device, use, self._clock.now, power_w, emptied)
        charge.loads.append(load)
        self._plan(device)
        return load

    def change(self, load: Load, from_ns: Sequence[int], power_w: Sequence[float]) -> None:
        """Draw these powers in W instead from now on, each from an instant until the next; the first is now."""
        if load.cut_ns == FOREVER_NS:
            self._now(load.device)
            load.from_ns, load.power_w = list(from_ns), list(power_w)
            self._plan(load.device)

    def unload(self, load: Load, energy_j: float) -> None:
        """End a load now, which has drawn this energy in all."""
        charge = self._now(load.device)
        charge.settle(load, energy_j)
        if load.cut_ns == FOREVER_NS:
            charge.loads.remove(load)
            self._plan(load.device)

    # ---- what can be seen --------------------------------------------------------------------------------------------

    def charges_j(self) -> Array:
        """Energy in J in each battery now, [devices]."""
        return np.array([max(self._now(device).charge_j, 0.0) for device in range(len(self._charges))])

    def returns_ns(self, device: int) -> int:
        """An instant, now or later, before which the device is empty; `FOREVER_NS` if it stays so."""
        return self._clock.now if self.on[device] else self._due_ns[device]

    def when_back(self, device: int, callback: Callable[[], None]) -> bool:
        """Call back once when a device that is empty is on again; False, and never, if nothing charges it."""
        if self._never:
            return False
        self._back.setdefault(device, []).append(callback)
        if (timer := self._timers[device]) is not None:
            timer.to_foreground()
        return True

    def stranded(self) -> int:
        """How many devices are empty and stay so, because nothing charges them."""
        return int(np.count_nonzero(~self.on)) if self._never else 0

    def used_j(self, use: int) -> float:
        """Energy in J that all devices together have drawn for this use by the end of the run."""
        return float(sum(charge.used_j[use] for charge in self._charges))

    # ---- the course of the charge ------------------------------------------------------------------------------------

    def _now(self, device: int) -> Charge:
        """A battery, followed until now; an instant at which it is looked at has a row."""
        charge = self._charges[device]
        if charge.since_ns < self._clock.now:
            charge.advance(self._clock.now)
            self._record(device)
        return charge

    def _plan(self, device: int) -> None:
        """Look ahead to when the battery gets empty, or has been charged enough.

        Nothing but the battery itself notices if nothing draws from it but the idle power, and nobody has asked to be
        called when its device is back.
        """
        timer, self._timers[device], self._due_ns[device] = self._timers[device], None, FOREVER_NS
        if timer is not None:
            timer.cancel()
        charge = self._charges[device]
        if self._never and not charge.on:
            return
        due_ns, certain = charge.reaches_ns(self._needed_j)
        if due_ns < FOREVER_NS:
            due_ns = max(due_ns, charge.since_ns + (not charge.on))  # a device that is empty is so for a nanosecond
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
        charge = self._charges[device]
        computing_j, sending_j, receiving_j, idle_j = charge.used_j
        self._ledger.batteries.append(
            BatteryRow(
                device=device,
                simulated_ns=charge.since_ns,
                charge_j=charge.charge_j,
                harvested_j=charge.harvested_j,
                spilled_j=charge.spilled_j,
                computing_j=computing_j,
                sending_j=sending_j,
                receiving_j=receiving_j,
                idle_j=idle_j,
                state=int(charge.on),
            )
        )

    def close(self) -> None:
        """Record all charges at the end of the run."""
        for device, charge in enumerate(self._charges):
            charge.advance(self._clock.now)
            self._record(device)

"""Availability: the times at which devices are reachable over the network.

A transfer fails if its device leaves before the end of the transfer. A device with an empty battery is absent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, PrivateAttr, field_validator

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.devices.batteries import Batteries
from fednet_emu.devices.mobility.base import Paths, Visits
from fednet_emu.devices.orbits import Pass, PassTable, SatelliteView
from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.kernel.streams import uniform, uniforms


class Availability(Component):
    """Times at which each device is reachable: always by default; subclasses override the methods."""

    FORESEEN: ClassVar[bool] = False
    """Whether the return times of absent devices are known in advance, so that messages to or from an absent device
    wait."""

    def along(self, paths: Paths) -> Availability:
        """Return the availability of devices that move on `paths`; by default, the availability itself."""
        return self

    def until_ns(self, device: int, now_ns: int, key: int) -> int:
        """Return the time in ns at which a present device leaves (`FOREVER_NS` for never); `now_ns` if it is absent."""
        return FOREVER_NS

    def present(self, count: int, now_ns: int, key: int) -> Mask:
        return np.ones(count, np.bool_)

    def returns_ns(self, device: int, now_ns: int, key: int) -> int:
        """Return the first time in ns, not before `now_ns`, at which a device is present; `FOREVER_NS` for never."""
        return now_ns


class Always(Availability):
    """Every device is always present."""


class Periodic(Availability):
    """Each device is alternately present for `on_s` and absent for `off_s`, starting at a random phase."""

    on_s: float = Field(gt=0)
    """Duration in s for which a device is present in each cycle."""
    off_s: float = Field(gt=0)
    """Duration in s for which a device is absent in each cycle."""

    def _phase_ns(self, device: int, now_ns: int, key: int) -> tuple[int, int]:
        period_ns = to_ns(self.on_s) + to_ns(self.off_s)
        return (now_ns + int(uniform(key, device) * period_ns)) % period_ns, period_ns

    def until_ns(self, device: int, now_ns: int, key: int) -> int:
        phase_ns, _ = self._phase_ns(device, now_ns, key)
        return now_ns + max(to_ns(self.on_s) - phase_ns, 0)

    def present(self, count: int, now_ns: int, key: int) -> Mask:
        period_ns = to_ns(self.on_s) + to_ns(self.off_s)
        offsets_ns = (uniforms(key, np.arange(count)) * period_ns).astype(np.int64)
        return (now_ns + offsets_ns) % period_ns < to_ns(self.on_s)

    def returns_ns(self, device: int, now_ns: int, key: int) -> int:
        phase_ns, period_ns = self._phase_ns(device, now_ns, key)
        return now_ns if phase_ns < to_ns(self.on_s) else now_ns + period_ns - phase_ns


class Windows(Availability):
    """Each listed device is present in given time windows; a device that is not listed is always present."""

    devices: dict[int, tuple[tuple[float, float], ...]]
    """Windows [from, to) in s in which a device is present, by device index."""

    @field_validator("devices")
    @classmethod
    def _windows_are_in_order(cls, devices: dict[int, tuple[tuple[float, float], ...]]) -> dict[int, object]:
        for device, windows in devices.items():
            edges = [edge for window in windows for edge in window]
            if any(later <= earlier for earlier, later in pairwise(edges)) or min(edges, default=0) < 0:
                raise ValueError(
                    f"device {device}: windows must be [from, to) in seconds, in order and apart, got {windows}"
                )
        return dict(devices)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        count = scenario.devices.count
        if unknown := [device for device in self.devices if not 0 <= device < count]:
            yield "devices", f"no such devices, got {unknown}; must be from 0 to {count - 1}"

    def until_ns(self, device: int, now_ns: int, key: int) -> int:
        if device not in self.devices:
            return FOREVER_NS
        inside = (to_ns(to_s) for from_s, to_s in self.devices[device] if to_ns(from_s) <= now_ns < to_ns(to_s))
        return next(inside, now_ns)

    def present(self, count: int, now_ns: int, key: int) -> Mask:
        there = np.ones(count, np.bool_)
        for device in self.devices:
            if device < count:
                there[device] = self.until_ns(device, now_ns, key) > now_ns
        return there

    def returns_ns(self, device: int, now_ns: int, key: int) -> int:
        if device not in self.devices:
            return now_ns
        starts = (max(to_ns(from_s), now_ns) for from_s, to_s in self.devices[device] if now_ns < to_ns(to_s))
        return next(starts, FOREVER_NS)


class FromMobility(Availability):
    """A device is present while its vehicle is in the recorded traffic.

    Only kinds of mobility with recorded vehicles, such as `sumo`, can be used. A vehicle leaves one time step after its
    last row in the recording. A gap in the rows of a vehicle also counts as an absence.
    """

    def along(self, paths: Paths) -> Availability:
        return Windows(devices=dict(enumerate(paths.present_s))) if isinstance(paths, Visits) else self

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        mobility = scenario.devices.mobility
        if not mobility.COMES_AND_GOES:
            yield "", f"no device leaves by {mobility.kind} mobility, got from-mobility; give vehicles, or another kind"


class Passes(Availability):
    """A satellite is present while its elevation over a station of `cells: {kind: ground}` exceeds `mask_deg`.

    Pass times are known in advance: in rounds and exchanges, a message to or from a satellite below the horizon waits
    for the next pass, and a message that is cut off by the end of a pass is sent again from the start. Passes shorter
    than ten seconds may be missed. A satellite without a pass for ten days counts as permanently absent. Ignored here:
    handover between stations during a transfer; the transfer keeps the link of its first station.
    """

    FORESEEN: ClassVar[bool] = True

    mask_deg: float = Field(10.0, ge=0, lt=90)
    """Minimum elevation above the horizon, in degrees; 5 to 25 in practice."""

    _table: PassTable | None = PrivateAttr(None)

    def along(self, paths: Paths) -> Availability:
        if not isinstance(paths, SatelliteView):
            return self
        seen = self.model_copy()
        seen._table = PassTable(paths, self.mask_deg)
        return seen

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        mobility = scenario.devices.mobility
        if not mobility.ORBITS:
            yield "", f"only satellites pass, got passes with {mobility.kind} mobility; give walker or tle"

    def _next(self, device: int, now_ns: int) -> Pass:
        found = None if self._table is None else self._table.next(device, now_ns)
        return found or (FOREVER_NS, FOREVER_NS)

    def until_ns(self, device: int, now_ns: int, key: int) -> int:
        rise_ns, set_ns = self._next(device, now_ns)
        return set_ns if rise_ns <= now_ns else now_ns

    def present(self, count: int, now_ns: int, key: int) -> Mask:
        return np.array([self._next(device, now_ns)[0] <= now_ns for device in range(count)], np.bool_)

    def returns_ns(self, device: int, now_ns: int, key: int) -> int:
        return max(self._next(device, now_ns)[0], now_ns)


AVAILABILITIES = kinds(Always, Periodic, Windows, FromMobility, Passes)
AnyAvailability = Annotated[Availability, Slot("availability", AVAILABILITIES)]


class Presence:
    """Presence of all devices of a run, which depends on the availability and on the batteries of the devices."""

    def __init__(self, availability: Availability, key: int, count: int, batteries: Batteries | None = None) -> None:
        self._availability = availability
        self._key = key
        self._among = np.arange(count)
        self.count = count
        self.batteries = batteries
        self.always = isinstance(availability, Always) and batteries is None
        self.foreseen = availability.FORESEEN

    @property
    def asked(self) -> int:
        return len(self._among)

    def only(self, devices: IntArray) -> Presence:
        """Return a copy that is limited to the given device indices."""
        some = copy.copy(self)
        some._among = devices
        return some

    def until_ns(self, device: int, now_ns: int) -> int:
        """Return the time in ns at which a device leaves if its battery lasts; `FOREVER_NS` for the server."""
        if self.always or device < 0 or device >= self.count:
            return FOREVER_NS
        if self.batteries is not None and not self.batteries.on[device]:
            return now_ns
        return self._availability.until_ns(device, now_ns, self._key)

    def present(self, now_ns: int) -> IntArray:
        """Return the indices of the devices that are present at `now_ns`, in ascending order."""
        if self.always:
            return self._among
        there = self._availability.present(self.count, now_ns, self._key)
        if self.batteries is not None:
            there = there & self.batteries.on
        return self._among[there[self._among]]

    @property
    def scheduled(self) -> bool:
        """True if devices can be absent for other reasons than an empty battery."""
        return not isinstance(self._availability, Always)

    def expected(self, now_ns: int) -> Mask:
        """Return the mask [count] of the devices that would be present at `now_ns` if no battery were empty."""
        return self._availability.present(self.count, now_ns, self._key)

    def next_return_ns(self, now_ns: int) -> int:
        """Return the first time in ns, not before `now_ns`, at which any device can be present, or `FOREVER_NS`."""
        return min((self._returns_ns(int(device), now_ns) for device in self._among), default=FOREVER_NS)

    def foreseen_ns(self, device: int, now_ns: int) -> int:
        """Return the time in ns at which an absent device returns; `FOREVER_NS` if unknown in advance or never."""
        returns_ns = self._returns_ns(device, now_ns) if self.foreseen and device >= 0 else FOREVER_NS
        return returns_ns if returns_ns > now_ns else FOREVER_NS

    def _returns_ns(self, device: int, now_ns: int) -> int:
        if self.batteries is not None:
            now_ns = max(now_ns, self.batteries.returns_ns(device))
        return now_ns if now_ns == FOREVER_NS else self._availability.returns_ns(device, now_ns, self._key)

    def close(self) -> None:
        if self.batteries is not None:
            self.batteries.close()

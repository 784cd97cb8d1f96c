"""When devices are on the network. A device that leaves in the middle of a transfer loses it.

One whose battery is empty is away, too.
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
from fednet_emu.devices.orbits.sky import Pass, PassTable, SatelliteView
from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.kernel.streams import uniform, uniforms


class Availability(Component):
    """When each device is reachable: always, unless a kind says otherwise."""

    FORESEEN: ClassVar[bool] = False
    """Whether everybody knows when a device returns, so that messages to and from it wait for that."""

    def along(self, paths: Paths) -> Availability:
        """The same where devices move on these paths, for kinds that follow from how they move."""
        return self

    def until_ns(self, device: int, now_ns: int, key: int) -> int:
        """Time in ns until which a device is present; `now_ns` if it is away now, `FOREVER_NS` if it never leaves."""
        return FOREVER_NS

    def present(self, count: int, now_ns: int, key: int) -> Mask:
        """Mask [count] of the devices that are present now."""
        return np.ones(count, np.bool_)

    def returns_ns(self, device: int, now_ns: int, key: int) -> int:
        """First time in ns, now or later, at which a device is present; `FOREVER_NS` if it never returns."""
        return now_ns


class Always(Availability):
    """Every device is always there."""


class Periodic(Availability):
    """Each device is present for `on_s`, away for `off_s`, and so on, starting at its own random phase."""

    on_s: float = Field(gt=0)
    """Time in s for which a device is present in each cycle."""
    off_s: float = Field(gt=0)
    """Time in s for which a device is away in each cycle."""

    def _phase_ns(self, device: int, now_ns: int, key: int) -> tuple[int, int]:
        period_ns = to_ns(self.on_s) + to_ns(self.off_s)
        return (now_ns + int(uniform(key, device) * period_ns)) % period_ns, period_ns

    def until_ns(self, device: int, now_ns: int, key: int) -> int:
        phase_ns, _ = self._phase_ns(device, now_ns, key)
        return now_ns + max(to_ns(self.on_s) - phase_ns, 0)

    def present(self, count: int, now_ns: int, key: int) -> Mask:
        period_ns = to_ns(self.on_s) + to_ns(self.off_s)
        offsets_ns = (uniforms(key, np.arange(count)) * period_ns).astype(np.int64)
        there: Mask = (now_ns + offsets_ns) % period_ns < to_ns(self.on_s)
        return there

    def returns_ns(self, device: int, now_ns: int, key: int) -> int:
        phase_ns, period_ns = self._phase_ns(device, now_ns, key)
        return now_ns if phase_ns < to_ns(self.on_s) else now_ns + period_ns - phase_ns


class Windows(Availability):
    """Given windows [from_s, to_s) per device; a device that is not listed is always there."""

    devices: dict[int, tuple[tuple[float, float], ...]]
    """Maps the number of a device to the windows [from, to] in s in which it is present."""

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
    """A device is present while the vehicle that it rides in is in the recording, for a mobility that comes and goes.

    A vehicle leaves one time step after its last row; gaps of its rows are absences, too.
    """

    def along(self, paths: Paths) -> Availability:
        return Windows(devices=dict(enumerate(paths.present_s))) if isinstance(paths, Visits) else self

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        mobility = scenario.devices.mobility
        if not mobility.COMES_AND_GOES:
            yield "", f"nobody leaves by {mobility.kind} mobility, got from-mobility; give vehicles, or another kind"


class Passes(Availability):
    """A satellite is present while it stands high enough over one of the stations, those of `cells: {kind: ground}`.

    Its returns are foreseen: in rounds and exchanges, a message to or from a satellite that has set, or that the set
    has cut, is sent again from the start at its next pass. Passes of less than ten seconds may be missed; a satellite
    that has not been seen for ten days is gone.
    Ignored here: that a transfer may start at one station and go on at another; it has the link of the first.
    """

    FORESEEN: ClassVar[bool] = True

    mask_deg: float = Field(10.0, ge=0, lt=90)
    """Least elevation in degrees above the horizon; 5 to 25 in practice."""

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
    """Availability of all devices of a run, with its random phases, and their batteries if they have any.

    Attributes:
        count: how many devices there are.
        batteries: the batteries; None for devices that never run out of energy.
        always: whether every device is always there.
        foreseen: whether everybody knows when devices return.
    """

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
        """How many devices it is asked about."""
        return len(self._among)

    def only(self, devices: IntArray) -> Presence:
        """The same, asked about some of the devices only."""
        some = copy.copy(self)
        some._among = devices
        return some

    def until_ns(self, device: int, now_ns: int) -> int:
        """The end of the device's present window; the server never leaves. When its battery gets empty is not known."""
        if self.always or device < 0:
            return FOREVER_NS
        if self.batteries is not None and not self.batteries.on[device]:
            return now_ns
        return self._availability.until_ns(device, now_ns, self._key)

    def present(self, now_ns: int) -> IntArray:
        """The devices that are there now, in order."""
        if self.always:
            return self._among
        there = self._availability.present(self.count, now_ns, self._key)
        if self.batteries is not None:
            there = there & self.batteries.on
        return self._among[there[self._among]]

    @property
    def scheduled(self) -> bool:
        """Whether devices come and go, whatever their batteries."""
        return not isinstance(self._availability, Always)

    def expected(self, now_ns: int) -> Mask:
        """Mask [count] of the devices that are there at a time, if their batteries are not empty."""
        return self._availability.present(self.count, now_ns, self._key)

    def next_return_ns(self, now_ns: int) -> int:
        """An instant, now or later, before which none of the devices is there; `FOREVER_NS` if none ever returns."""
        return min((self._returns_ns(int(device), now_ns) for device in self._among), default=FOREVER_NS)

    def foreseen_ns(self, device: int, now_ns: int) -> int:
        """When a device that is away now returns, if everybody knows that; `FOREVER_NS` if not, or never."""
        returns_ns = self._returns_ns(device, now_ns) if self.foreseen and device >= 0 else FOREVER_NS
        return returns_ns if returns_ns > now_ns else FOREVER_NS

    def _returns_ns(self, device: int, now_ns: int) -> int:
        if self.batteries is not None:
            now_ns = max(now_ns, self.batteries.returns_ns(device))
        return now_ns if now_ns == FOREVER_NS else self._availability.returns_ns(device, now_ns, self._key)

    def close(self) -> None:
        """Close the accounts of the batteries at the end of the run."""
        if self.batteries is not None:
            self.batteries.close()

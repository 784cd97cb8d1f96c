"""Group structures of cyclic participation: which devices transmit together, and which are in several groups."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator

from fednet_emu.algorithms.cyclic.admission import candidate_senders, coloured_groups, greedy_groups, with_further_seats
from fednet_emu.arrays import IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Federation
from fednet_emu.units import linear_to_db

Groups = list[list[int]]


def separate(devices: int, groups: int) -> Groups:
    """Scenario 1 of the paper: consecutive groups whose sizes differ by at most one; each device is in one group."""
    return [part.tolist() for part in np.array_split(np.arange(devices), groups)]


def at_random(devices: int, groups: int, seats: int, rng: np.random.Generator) -> Groups:
    """Return random groups; every device is in `seats` different groups.

    Devices are assigned one at a time, in random order, each to the smallest group that it is not yet in.
    """
    formed: Groups = [[] for _ in range(groups)]
    for _ in range(seats):
        for device in rng.permutation(devices).tolist():
            draws = rng.permutation(groups).tolist()
            free = [k for k in draws if device not in formed[k]]
            formed[min(free, key=lambda k: len(formed[k]))].append(device)
    return [sorted(group) for group in formed if group]


def seats_of(groups: Sequence[Iterable[int]]) -> dict[int, list[int]]:
    """Return a dict from each device to the indices of its groups, in ascending order."""
    seats: dict[int, list[int]] = {}
    for k, group in enumerate(groups):
        for device in group:
            seats.setdefault(device, []).append(k)
    return seats


def parts_of(samples: int, seats: int, rng: np.random.Generator) -> list[IntArray]:
    """Split a device's sample indices 0..samples-1 at random into `seats` parts whose sizes differ by at most one."""
    return [np.sort(part) for part in np.array_split(rng.permutation(samples), seats)]


Seats = list[dict[int, float]]
"""For each group, in the order of the cycle, a dict from device index to transmit power as a fraction of full power."""

Demands = Iterable[tuple[str, str, int]]


class GroupStructure(Component):
    """A rule that forms the groups."""

    @abstractmethod
    def form(self, fed: Federation, cycle: int) -> Seats:
        """Return the groups that are used from cycle `cycle` on, with the transmit power of each member."""

    def demands(self) -> Demands:
        """Yield (key, error message, minimum) for each setting that needs a minimum number of devices."""
        groups = getattr(self, "groups", None)
        if groups is not None:
            yield "structure.groups", "has more groups than devices", groups


class NumberedGroups(GroupStructure):
    """Groups that depend only on the numbers of devices and groups; all members send at full power."""

    groups: int = Field(gt=0)
    """Number of groups."""

    @abstractmethod
    def of(self, devices: int) -> Groups:
        """Return the groups of the devices 0, 1, ..., `devices` - 1."""

    def form(self, fed: Federation, cycle: int) -> Seats:
        return _at_full_power(self.of(fed.n_devices))


class Separate(NumberedGroups):
    """Scenario 1 of the paper: consecutive groups whose sizes differ by at most one; every device is in one group."""

    kind = "scenario-1"

    def of(self, devices: int) -> Groups:
        return separate(devices, self.groups)


class CommonDevice(NumberedGroups):
    """Scenario 2 of the paper (more clients): the groups of scenario 1, except that device 0 joins all groups."""

    kind = "scenario-2"

    def of(self, devices: int) -> Groups:
        first, *others = separate(devices, self.groups)
        return [first, *([*group, 0] for group in others)]


class CopiedNeighbours(NumberedGroups):
    """Scenario 3 of the paper (more groups): the first device of a group also joins the next group.

    The last device of each group that receives a device moves to a new group, so the sizes of the existing groups do
    not change. Each group needs at least two devices.
    """

    kind = "scenario-3"
    groups: int = Field(gt=1)
    """Number of groups, not counting the new group."""
    variant: Literal["cyclic", "chain", "pairwise"] = "cyclic"
    """Which groups receive a device from the previous group. cyclic: every group (the first receives from the last);
    chain: every group but the first; pairwise: every second group, so that no two copied devices share a group."""

    def of(self, devices: int) -> Groups:
        n, base = self.groups, separate(devices, self.groups)
        receiving = {"cyclic": range(n), "chain": range(1, n), "pairwise": range(1, n, 2)}[self.variant]
        formed = [
            [base[k - 1][0], *group[:-1]] if k in receiving else group  # k - 1 = -1 is the last group
            for k, group in enumerate(base)
        ]
        return [*formed, [base[k][-1] for k in receiving]]

    def form(self, fed: Federation, cycle: int) -> Seats:
        if fed.n_devices < 2 * self.groups:
            raise ScenarioError(
                f"algorithm.structure.groups: leaves groups with fewer than 2 devices, got {self.groups} for "
                f"{fed.n_devices} devices; must be at most {fed.n_devices // 2}"
            )
        return super().form(fed, cycle)


class CommonDeviceAndNewGroup(NumberedGroups):
    """Scenario 4 of the paper (more groups): device 0 joins all groups; the devices that it replaces form a new one."""

    kind = "scenario-4"
    groups: int = Field(gt=0)
    """Number of groups, not counting the new group."""

    def of(self, devices: int) -> Groups:
        first, *others = separate(devices, self.groups)
        return [first, *([0, *group[:-1]] for group in others), [0, *(group[-1] for group in others)]]


class ListedGroups(GroupStructure):
    """Groups given as lists of devices; a device that is in no list takes no part."""

    kind = "list"
    groups: tuple[tuple[int, ...], ...] = Field(min_length=1)
    """Indices of the devices of each group, from 0."""

    @field_validator("groups")
    @classmethod
    def _sets_of_devices(cls, groups: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        for group in groups:
            if not group or len(set(group)) < len(group) or min(group) < 0:
                raise ValueError(f"not a group of devices, got {list(group)}; give different numbers from 0")
        return groups

    def form(self, fed: Federation, cycle: int) -> Seats:
        return _at_full_power([list(group) for group in self.groups])

    def demands(self) -> Demands:
        yield "structure.groups", "has a highest number, plus one, that is too high", max(map(max, self.groups)) + 1


class RandomGroups(GroupStructure):
    """Random groups, drawn again when groups are re-formed; with `seats: 1` group sizes differ by at most one."""

    kind = "random"
    groups: int = Field(gt=0)
    """Number of groups."""
    seats: int = Field(1, gt=0)
    """Number of groups that each device joins."""

    @field_validator("seats")
    @classmethod
    def _different_groups(cls, seats: int, info: object) -> int:
        groups = getattr(info, "data", {}).get("groups", seats)
        if seats > groups:
            raise ValueError(f"a device cannot sit in a group twice, got {seats}; must be at most groups, {groups}")
        return seats

    def form(self, fed: Federation, cycle: int) -> Seats:
        return _at_full_power(at_random(fed.n_devices, self.groups, self.seats, fed.streams("groups", cycle)))


class InterferenceGroups(GroupStructure):
    """Groups chosen from the channel so that every member can be decoded while the whole group sends simultaneously.

    Members send with the lowest powers that give each member the SINR it needs (Foschini and Miljanic). One receiver
    without interference cancellation can decode several senders only if the SINR needed is below 0 dB. With several
    cells or with cancellation, groups can have several members at a higher SINR. A device that cannot be decoded even
    alone takes no part until groups are formed again. Ignored here: fading, against which `margin_db` gives a margin.
    """

    kind = "interference"
    method: Literal["greedy", "colouring"] = "greedy"
    """How groups are found. greedy: one group after the other, each grown device by device until no further device
    fits; colouring: by colouring the graph of pairs that cannot transmit together, and splitting each colour whose
    devices still cannot all be decoded."""
    sinr_db: float | None = None
    """SINR that each member needs, in dB; null is the lowest SINR at which the rate model and the access scheme carry
    any data."""
    margin_db: float = Field(0.0, ge=0)
    """Margin against fading, in dB, added to the target SINR of the transmit powers."""
    most: int | None = Field(None, gt=0)
    """Maximum number of devices in a group; null for no limit. With 1, devices train and transmit one at a time."""
    seats: int = Field(1, gt=0)
    """Maximum number of groups that a device may join, as long as all members of each group are still decoded."""

    def form(self, fed: Federation, cycle: int) -> Seats:
        rivals = candidate_senders(fed, self.sinr_db, self.margin_db)
        able = [device.index for device in fed.devices() if device.n_samples]
        grouping = greedy_groups if self.method == "greedy" else coloured_groups
        groups = with_further_seats(rivals, grouping(rivals, able, self.most), self.seats, self.most)
        if not groups:
            best_db = linear_to_db(float(rivals.snr.diagonal().max()))
            raise ScenarioError(
                f"algorithm.structure: no device is decoded even alone, got a best mean SNR of {best_db:.1f} dB where "
                f"{linear_to_db(rivals.target):.1f} dB is needed; lower sinr_db, margin_db or the distances"
            )
        powers = [rivals.joint_powers(group) for group in groups]
        return [
            dict(zip(group, power.tolist(), strict=True))
            for group, power in zip(groups, powers, strict=True)
            if power is not None
        ]


def _at_full_power(groups: Groups) -> Seats:
    return [dict.fromkeys(group, 1.0) for group in groups]


STRUCTURES: dict[str, type[GroupStructure]] = kinds(
    Separate, CommonDevice, CopiedNeighbours, CommonDeviceAndNewGroup, ListedGroups, RandomGroups, InterferenceGroups
)

AnyGroupStructure = Annotated[GroupStructure, Slot("structure", STRUCTURES)]

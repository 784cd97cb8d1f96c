"""Group structures of cyclic participation: who may transmit together, and who sits in several groups."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fednet_emu.algorithms.cyclic.groups import (
    Groups,
    Variant,
    at_random,
    separate,
    with_common_device,
    with_common_device_and_new_group,
    with_copies_of_neighbours,
)
from fednet_emu.component import Component, Slot
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Federation
from fednet_emu.radio.admission import coloured_groups, greedy_groups, with_further_seats
from fednet_emu.units import linear_to_db

Seats = list[dict[int, float]]
"""For each group, in the order of the cycle, its devices and the part of its power that each of them sends with."""

Demands = Iterable[tuple[str, str, int]]


class GroupStructure(Component):
    """The law by which groups are formed."""

    @abstractmethod
    def form(self, fed: Federation, cycle: int) -> Seats:
        """The groups from this cycle on."""

    def demands(self) -> Demands:
        """Settings (key, meaning, number of devices) that need so many devices."""
        return ()


class Separate(GroupStructure):
    """Scenario 1: consecutive groups of equal size (within one); every device sits in one."""

    kind: Literal["scenario-1"] = "scenario-1"
    groups: int = Field(gt=0)
    """Number of groups."""

    def form(self, fed: Federation, cycle: int) -> Seats:
        """The same groups in every cycle."""
        return _at_full_power(separate(fed.n_devices, self.groups))

    def demands(self) -> Demands:
        """A device for each group."""
        return _one_for_each(self.groups)


class CommonDevice(GroupStructure):
    """Scenario 2, more clients: device 0 joins every group of scenario 1."""

    kind: Literal["scenario-2"] = "scenario-2"
    groups: int = Field(gt=0)
    """Number of groups."""

    def form(self, fed: Federation, cycle: int) -> Seats:
        """The same groups in every cycle."""
        return _at_full_power(with_common_device(fed.n_devices, self.groups))

    def demands(self) -> Demands:
        """A device for each group."""
        return _one_for_each(self.groups)


class CopiedNeighbours(GroupStructure):
    """Scenario 3, more groups: devices take a place in the next group as well, whose last one moves to a new group."""

    kind: Literal["scenario-3"] = "scenario-3"
    groups: int = Field(gt=1)
    """Number of groups before the new one."""
    variant: Variant = "cyclic"
    """Who receives a copy: every group, the first one from the last (cyclic); every group but the first (chain); or
    every second group (pairwise)."""

    def form(self, fed: Federation, cycle: int) -> Seats:
        """The same groups in every cycle.

        Raises:
            ScenarioError: a group would be left without devices of its own.
        """
        if fed.n_devices < 2 * self.groups:
            raise ScenarioError(
                f"algorithm.structure.groups: leaves groups with fewer than 2 devices, got {self.groups} for "
                f"{fed.n_devices} devices; must be at most {fed.n_devices // 2}"
            )
        return _at_full_power(with_copies_of_neighbours(fed.n_devices, self.groups, self.variant))

    def demands(self) -> Demands:
        """A device for each group."""
        return _one_for_each(self.groups)


class CommonDeviceAndNewGroup(GroupStructure):
    """Scenario 4, more groups: device 0 takes a place in every group, and whoever had it moves to a new group."""

    kind: Literal["scenario-4"] = "scenario-4"
    groups: int = Field(gt=0)
    """Number of groups before the new one."""

    def form(self, fed: Federation, cycle: int) -> Seats:
        """The same groups in every cycle."""
        return _at_full_power(with_common_device_and_new_group(fed.n_devices, self.groups))

    def demands(self) -> Demands:
        """A device for each group."""
        return _one_for_each(self.groups)


class ListedGroups(GroupStructure):
    """Groups as they are given; a device in none of them takes no part."""

    kind: Literal["list"] = "list"
    groups: tuple[tuple[int, ...], ...] = Field(min_length=1)
    """Numbers of the devices of each group, from 0."""

    @field_validator("groups")
    @classmethod
    def _sets_of_devices(cls, groups: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        for group in groups:
            if not group or len(set(group)) < len(group) or min(group) < 0:
                raise ValueError(f"not a group of devices, got {list(group)}; give different numbers from 0")
        return groups

    def form(self, fed: Federation, cycle: int) -> Seats:
        """The same groups in every cycle."""
        return _at_full_power([list(group) for group in self.groups])

    def demands(self) -> Demands:
        """The devices that are named."""
        yield "structure.groups", "has a highest number, plus one, that is too high", max(map(max, self.groups)) + 1


class RandomGroups(GroupStructure):
    """Groups drawn at random, of equal size (within one) when every device sits in one; drawn anew when re-formed."""

    kind: Literal["random"] = "random"
    groups: int = Field(gt=0)
    """Number of groups."""
    seats: int = Field(1, gt=0)
    """Groups in which each device sits."""

    @field_validator("seats")
    @classmethod
    def _different_groups(cls, seats: int, info: object) -> int:
        groups = getattr(info, "data", {}).get("groups", seats)
        if seats > groups:
            raise ValueError(f"a device cannot sit in a group twice, got {seats}; must be at most groups, {groups}")
        return seats

    def form(self, fed: Federation, cycle: int) -> Seats:
        """Groups of this cycle's own draw."""
        return _at_full_power(at_random(fed.n_devices, self.groups, self.seats, fed.streams("groups", cycle)))

    def demands(self) -> Demands:
        """A device for each group."""
        return _one_for_each(self.groups)


class InterferenceGroups(GroupStructure):
    """Groups formed from the channel: every member is decoded while the whole group transmits at once.

    Members send with the lowest powers that serve all of them (Foschini and Miljanic). One receiver without
    cancellation decodes several only below 0 dB; several cells, or cancellation, make room for more. A device that is
    not decoded even alone takes no part until groups are formed anew.
    Ignored here: fading, for which `margin_db` leaves room.
    """

    kind: Literal["interference"] = "interference"
    method: Literal["greedy", "colouring"] = "greedy"
    """How groups are found: one after the other, each as large as possible; or by colouring the graph of pairs that
    cannot be together and splitting those colours that still do not fit."""
    sinr_db: float | None = None
    """SINR that each member needs; null takes the lowest at which rate law and access scheme carry anything."""
    margin_db: float = Field(0.0, ge=0)
    """How much more than that powers aim at, against fading."""
    most: int | None = Field(None, gt=0)
    """Largest size of a group; null for no limit. 1 lets devices take turns one by one."""
    seats: int = Field(1, gt=0)
    """Groups in which a device may sit, as long as all members of each are still decoded."""

    def form(self, fed: Federation, cycle: int) -> Seats:
        """The groups for the channel as it is now.

        Raises:
            ScenarioError: the uplink never has several senders on the air, nothing says which SINR is needed, or nobody
                reaches it.
        """
        rivals = fed.network.rivals(self.sinr_db, self.margin_db)
        able = [device.index for device in fed.devices() if device.n_samples]
        grouping = greedy_groups if self.method == "greedy" else coloured_groups
        groups = with_further_seats(rivals, grouping(rivals, able, self.most), self.seats, self.most)
        if not groups:
            best_db = linear_to_db(float(rivals.snr.diagonal().max()))
            raise ScenarioError(
                f"algorithm.structure: nobody is decoded even alone, got a best mean SNR of {best_db:.1f} dB where "
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


def _one_for_each(groups: int) -> Demands:
    yield "structure.groups", "has more groups than devices", groups


STRUCTURES: dict[str, type[GroupStructure]] = {
    "scenario-1": Separate,
    "scenario-2": CommonDevice,
    "scenario-3": CopiedNeighbours,
    "scenario-4": CommonDeviceAndNewGroup,
    "list": ListedGroups,
    "random": RandomGroups,
    "interference": InterferenceGroups,
}

AnyGroupStructure = Annotated[GroupStructure, Slot("structure", STRUCTURES)]

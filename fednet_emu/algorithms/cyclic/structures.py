"""Group structures of cyclic participation: which devices transmit together, and which are in several groups.

Finding the largest set of senders that can all be decoded together is NP-hard, so sets are grown greedily, or taken
from a colouring of the graph of pairs that cannot send together. Powers are the lowest at which all members of a set
are decoded (see `power_control`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Federation
from fednet_emu.radio.receiver.power_control import feasibility
from fednet_emu.units import db_to_linear, linear_to_db

SLACK = 1e-9
"""Relative margin of the powers above the SINR target, so that rounding does not put a sender below the target."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateSenders:
    """Senders that may transmit in the same band at the same time."""

    snr: Array  # [n, n] SNR, at the receiver of sender i (row), of sender j (column) at full power
    receiver: Sequence[int]  # [n] the receiver of each sender
    target: float  # SINR (linear) for decoding
    residual: float = 1.0  # fraction of a decoded signal that still interferes; 1 without cancellation

    def joint_powers(self, members: Sequence[int]) -> Array | None:
        """Return the lowest powers [members] at which all members are decoded; None if there are no such powers.

        Powers are fractions of full power. With interference cancellation, the stronger of two senders at one receiver
        is decoded first. The signal of the weaker sender then interferes fully with the stronger sender, but only the
        residual of the stronger sender interferes with the weaker sender. Fading is not modelled.
        """
        gain = self.snr[np.ix_(members, members)]
        receiver, own = np.array([self.receiver[i] for i in members]), np.diagonal(gain)
        rank = np.argsort(np.argsort(-own, kind="stable"))
        before = (receiver[:, None] == receiver[None, :]) & (rank[None, :] < rank[:, None])
        gain = np.where(before, self.residual * gain, gain)
        target = np.full(len(gain), self.target * (1.0 + SLACK))
        found = feasibility(target, gain, np.ones(len(gain)), 1.0)
        return found.power_w if found.feasible else None


def candidate_senders(fed: Federation, sinr_db: float | None = None, margin_db: float = 0.0) -> CandidateSenders:
    """Return the current uplinks of all devices at full power, from which groups of simultaneous senders are formed.

    `sinr_db` is the SINR in dB that each sender needs; None stands for the lowest SINR at which the whole band carries
    bits. `margin_db` is a margin in dB that is added to this SINR.
    """
    uplink = fed.network.uplink
    band, links, access = uplink.band, uplink.links.now(), uplink.settings.access
    if access.residual_share is None or uplink.rates is not None:
        got = access.kind if uplink.rates is None else "recorded rates"
        raise ScenarioError(
            f"network.uplink.access: its senders are never on the air together, got {got}; choose full-reuse or noma"
        )
    devices = np.arange(fed.n_devices)
    receiver = np.array([links.station_of(device) for device in devices.tolist()])
    lowest = max(band.law.min_sinr, band.threshold)
    target = lowest if sinr_db is None else db_to_linear(sinr_db)
    if target == 0:
        raise ScenarioError(
            "network.uplink.access.sinr_threshold_db: the required SINR is missing here and in channel.rate; "
            "give it here, or sinr_db to the groups"
        )
    gain = links.snrs(devices[None, :], receiver[:, None])
    gain = band.reception.of_pairs(gain, receiver, access.capacity or len(receiver))
    return CandidateSenders(gain, receiver.tolist(), target * db_to_linear(margin_db), access.residual_share)


def greedy_group(rivals: CandidateSenders, candidates: Iterable[int], most: int | None = None) -> list[int]:
    """Return a large set of candidates that can send together, grown greedily one candidate at a time.

    Each step adds the candidate that leaves the most spare power, which is the full power minus the highest power of a
    member. The set has at most `most` members. It is empty if no candidate can be decoded even alone.
    """
    group: list[int] = []
    room = list(candidates)
    while room and (most is None or len(group) < most):
        powers = {i: rivals.joint_powers([*group, i]) for i in room}
        loads = {i: float(power.max()) for i, power in powers.items() if power is not None}
        if not loads:
            break
        group.append(min(loads, key=loads.__getitem__))
        room = [i for i in loads if i != group[-1]]  # a sender that does not fit now cannot fit a larger group
    return sorted(group)


def greedy_groups(rivals: CandidateSenders, candidates: Iterable[int], most: int | None = None) -> list[list[int]]:
    """Split the decodable candidates greedily into groups of at most `most` members that can send together."""
    left, groups = list(candidates), []
    while group := greedy_group(rivals, left, most):
        groups.append(group)
        left = [i for i in left if i not in group]
    return groups


def coloured_groups(rivals: CandidateSenders, candidates: Iterable[int], most: int | None = None) -> list[list[int]]:
    """Return groups from a DSATUR colouring of the graph whose edges are the pairs that cannot send together.

    Interference adds up, so a colour whose senders cannot all be decoded is split greedily.
    """
    import networkx as nx

    able = [i for i in candidates if rivals.joint_powers([i]) is not None]
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(able)
    pairs = ((i, j) for place, i in enumerate(able) for j in able[place + 1 :])
    graph.add_edges_from(pair for pair in pairs if rivals.joint_powers(pair) is None)
    colour = nx.greedy_color(graph, strategy="saturation_largest_first")
    classes = [[i for i in able if colour[i] == shade] for shade in range(max(colour.values(), default=-1) + 1)]
    return [group for members in classes for group in greedy_groups(rivals, members, most)]


def with_further_seats(
    rivals: CandidateSenders, groups: Sequence[Sequence[int]], seats: int, most: int | None = None
) -> list[list[int]]:
    """Return the groups after devices have joined further groups, up to `seats` groups per device.

    A device joins a group only if all members of the group can still be decoded, and if the group has fewer than `most`
    members. Devices are added in descending order of link quality, and each device joins the smallest groups first.
    """
    formed = [list(group) for group in groups]
    own = np.diagonal(rivals.snr)
    for device in sorted({i for group in formed for i in group}, key=lambda i: -own[i]):
        taken = sum(device in group for group in formed)
        for group in sorted(formed, key=len):
            possible = taken < seats and device not in group and (most is None or len(group) < most)
            if possible and rivals.joint_powers([*group, device]) is not None:
                group.append(device)
                taken += 1
    return [sorted(group) for group in formed]


Groups = list[list[int]]


def separate(devices: int, groups: int) -> Groups:
    """Return scenario 1 of the paper: groups of consecutive devices, whose sizes differ by at most one."""
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
    """Split the sample indices 0..samples-1 at random into `seats` sets whose sizes differ by at most one."""
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
    """Number of groups before the new group is added."""
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
    """Number of groups before the new group is added."""

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
    alone does not participate until groups are formed again. Fading is not modelled; `margin_db` provides a margin
    against fading.
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
    """Maximum number of devices in a group; null for no limit. If it is 1, devices train and transmit one at a time."""
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

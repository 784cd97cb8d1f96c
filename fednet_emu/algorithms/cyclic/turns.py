"""The members of the groups of a run, and the turns that the groups take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Literal, NamedTuple

from fednet_emu.algorithms.cyclic.structures import GroupStructure, parts_of, seats_of
from fednet_emu.arrays import IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Federation

Use = Literal["split", "no-split", "no-split-reweighted"]
"""The samples that a device in several groups uses in each of them; the setting `data`."""


class Member(NamedTuple):
    """The membership of a device in one group."""

    device: int
    factor: float  # s_mk, the factor of its change of the model
    samples: IntArray | None  # indices of its samples that it uses in this group; None for all
    power: float  # transmit power, as a fraction of the device's full power


class Turn(NamedTuple):
    """One group's turn: the number of the cycle, the index of the group (both from 0), and all groups of the cycle."""

    cycle: int
    group: int
    groups: list[list[Member]]

    @property
    def members(self) -> list[Member]:
        """The members of the group whose turn it is."""
        return self.groups[self.group]

    def record(self, fed: Federation, structure: GroupStructure, started_s: float) -> None:
        """Add a row to the series `cyclic_turns`, at the end of the turn."""
        ways = {"structure": structure.kind, "access": fed.network.uplink.settings.access.kind}
        place = {"round": fed.round + 1, "cycle": self.cycle, "group": self.group, "groups": len(self.groups)}
        fed.ledger.record("cyclic_turns", **place, **ways, started_s=started_s, ended_s=fed.now_s)


def turns(fed: Federation, structure: GroupStructure, use: Use, reform_cycles: int | None) -> Iterator[Turn]:
    """The turns of all groups, cycle after cycle; groups are formed when the first turn of a cycle is due.

    Raises:
        ScenarioError: no device of any group has samples.
    """
    groups: list[list[Member]] = []
    for cycle in count():
        if cycle == 0 or (reform_cycles is not None and cycle % reform_cycles == 0):
            groups = members(fed, structure.form(fed, cycle), use)
            _record_groups(fed, cycle, groups)
        yield from (Turn(cycle, k, groups) for k in range(len(groups)))


def members(fed: Federation, seats: Sequence[Mapping[int, float]], use: Use) -> list[list[Member]]:
    """The members of each group and their samples, from the devices of each group and their powers.

    Devices without samples are left out, as are groups that have no other devices.

    Raises:
        ScenarioError: no group is left.
    """
    groups: list[list[Member]] = [[] for _ in seats]
    for device, mine in seats_of(seats).items():
        n = fed.device(device).n_samples
        parts = parts_of(n, len(mine), fed.streams("split", device))
        for k, part in zip(mine, parts, strict=True):
            if use == "split":
                member = Member(device, len(part) / max(n, 1), part if len(mine) > 1 else None, seats[k][device])
            else:
                member = Member(device, 1.0 if use == "no-split" else 1 / len(mine), None, seats[k][device])
            if n and (len(part) or use != "split"):
                groups[k].append(member)
    groups = [sorted(group, key=lambda member: member.device) for group in groups if group]
    if not groups:
        raise ScenarioError(
            "algorithm.structure: nobody can train, got groups of devices without samples; change the partition"
        )
    return groups


def _record_groups(fed: Federation, cycle: int, groups: Sequence[Sequence[Member]]) -> None:
    for k, group in enumerate(groups):
        for member in group:
            samples = fed.device(member.device).n_samples if member.samples is None else len(member.samples)
            seat = {"cycle": cycle, "group": k, "device": member.device, "samples": samples}
            fed.ledger.record("cyclic_groups", **seat, factor=member.factor, power_part=member.power)

"""Groups that take turns in a cycle, as lists of device numbers; a device may sit in several.

The four scenarios of "Participation Strategies in Federated Learning with Heterogeneous Client Communications" start
from a base that cuts the devices into consecutive groups, and then copy or move some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from fednet_emu.arrays import IntArray

Groups = list[list[int]]
Variant = Literal["cyclic", "chain", "pairwise"]


def separate(devices: int, groups: int) -> Groups:
    """Scenario 1, the base: consecutive groups of equal size (within one) in which every device sits once."""
    return [part.tolist() for part in np.array_split(np.arange(devices), groups)]


def with_common_device(devices: int, groups: int) -> Groups:
    """Scenario 2, more clients: device 0 joins all other groups of the base, which grow by one."""
    first, *others = separate(devices, groups)
    return [first, *([*group, 0] for group in others)]


def with_copies_of_neighbours(devices: int, groups: int, variant: Variant = "cyclic") -> Groups:
    """Scenario 3, more groups: the first of each group is copied into the next, whose last moves to a new group.

    Groups keep their size. At least two devices per group and two groups are needed.

    Args:
        devices: how many there are.
        groups: groups of the base.
        variant: who receives a copy. cyclic: every group, the first one from the last; chain: every group but the
            first; pairwise: every second group, so that nobody sits together with another who is copied.
    """
    base = separate(devices, groups)
    receiving = {"cyclic": range(groups), "chain": range(1, groups), "pairwise": range(1, groups, 2)}[variant]
    formed = [
        [base[k - 1][0], *group[:-1]] if k in receiving else group  # -1 wraps round to the last
        for k, group in enumerate(base)
    ]
    return [*formed, [base[k][-1] for k in receiving]]


def with_common_device_and_new_group(devices: int, groups: int) -> Groups:
    """Scenario 4, more groups: device 0 takes the last place of all other groups, who form a new one with it."""
    first, *others = separate(devices, groups)
    return [first, *([0, *group[:-1]] for group in others), [0, *(group[-1] for group in others)]]


def at_random(devices: int, groups: int, seats: int, rng: np.random.Generator) -> Groups:
    """Groups drawn at random in which every device has the same number of seats, at most one in each.

    One device after the other, in random order, sits down in the groups that are smallest by then.
    """
    formed: Groups = [[] for _ in range(groups)]
    for _ in range(seats):
        for device in rng.permutation(devices).tolist():
            draws = rng.permutation(groups).tolist()
            free = [k for k in draws if device not in formed[k]]
            formed[min(free, key=lambda k: len(formed[k]))].append(device)
    return [sorted(group) for group in formed if group]


def seats_of(groups: Sequence[Iterable[int]]) -> dict[int, list[int]]:
    """The groups in which each device sits, in their order."""
    seats: dict[int, list[int]] = {}
    for k, group in enumerate(groups):
        for device in group:
            seats.setdefault(device, []).append(k)
    return seats


def parts_of(samples: int, seats: int, rng: np.random.Generator) -> list[IntArray]:
    """A device's samples, by their place among its own, cut at random into equal parts (within one)."""
    return [np.sort(part) for part in np.array_split(rng.permutation(samples), seats)]

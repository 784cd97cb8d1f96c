"""Groups that take turns in a cycle, as lists of device numbers; a device may be in several groups.

The four scenarios of "Participation Strategies in Federated Learning with Heterogeneous Client Communications" start
from consecutive groups of devices and then copy or move some devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from fednet_emu.arrays import IntArray

Groups = list[list[int]]
Variant = Literal["cyclic", "chain", "pairwise"]


def separate(devices: int, groups: int) -> Groups:
    """Scenario 1: consecutive groups whose sizes differ by at most one; every device is in exactly one group."""
    return [part.tolist() for part in np.array_split(np.arange(devices), groups)]


def with_common_device(devices: int, groups: int) -> Groups:
    """Scenario 2, more clients: device 0 also joins all other groups of scenario 1, which grow by one."""
    first, *others = separate(devices, groups)
    return [first, *([*group, 0] for group in others)]


def with_copies_of_neighbours(devices: int, groups: int, variant: Variant = "cyclic") -> Groups:
    """Scenario 3, more groups: each group's first device also joins the next group, whose last moves to a new group.

    Groups keep their size. At least two devices per group and two groups are needed, before the new one. The `variant`
    chooses the groups that receive a copy. cyclic: every group (the first one receives from the last); chain: every
    group but the first; pairwise: every second group, so that no two copied devices share a group.
    """
    base = separate(devices, groups)
    receiving = {"cyclic": range(groups), "chain": range(1, groups), "pairwise": range(1, groups, 2)}[variant]
    formed = [
        [base[k - 1][0], *group[:-1]] if k in receiving else group  # k - 1 = -1 is the last group
        for k, group in enumerate(base)
    ]
    return [*formed, [base[k][-1] for k in receiving]]


def with_common_device_and_new_group(devices: int, groups: int) -> Groups:
    """Scenario 4, more groups: device 0 replaces the last device of all other groups, which form a new group."""
    first, *others = separate(devices, groups)
    return [first, *([0, *group[:-1]] for group in others), [0, *(group[-1] for group in others)]]


def at_random(devices: int, groups: int, seats: int, rng: np.random.Generator) -> Groups:
    """Random groups in which every device is in `seats` groups, at most once in each.

    Devices are placed one at a time, in random order, each into the smallest group that it is not yet in.
    """
    formed: Groups = [[] for _ in range(groups)]
    for _ in range(seats):
        for device in rng.permutation(devices).tolist():
            draws = rng.permutation(groups).tolist()
            free = [k for k in draws if device not in formed[k]]
            formed[min(free, key=lambda k: len(formed[k]))].append(device)
    return [sorted(group) for group in formed if group]


def seats_of(groups: Sequence[Iterable[int]]) -> dict[int, list[int]]:
    """For each device, the indices of its groups, in ascending order."""
    seats: dict[int, list[int]] = {}
    for k, group in enumerate(groups):
        for device in group:
            seats.setdefault(device, []).append(k)
    return seats


def parts_of(samples: int, seats: int, rng: np.random.Generator) -> list[IntArray]:
    """Split a device's sample indices 0..samples-1 at random into `seats` parts whose sizes differ by at most one."""
    return [np.sort(part) for part in np.array_split(rng.permutation(samples), seats)]

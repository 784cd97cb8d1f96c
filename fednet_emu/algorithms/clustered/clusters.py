"""Clusters of devices: the agreement of two clusterings, and the record of the clusters that an algorithm finds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fednet_emu.arrays import IntArray
from fednet_emu.federation import Federation


def adjusted_rand_index(a: Sequence[int] | IntArray, b: Sequence[int] | IntArray) -> float:
    """Agreement of two clusterings [n] of the same items: 1 when they are equal, about 0 when they are unrelated.

    Hubert and Arabie, "Comparing Partitions", Journal of Classification 1985, equation (5). Only equality of labels
    matters. The index is 1 when both clusterings put all items into one cluster, or both put every item into a cluster
    of its own.
    """
    _, first = np.unique(a, return_inverse=True)
    _, second = np.unique(b, return_inverse=True)
    table = np.zeros((first.max() + 1, second.max() + 1), np.int64)
    np.add.at(table, (first, second), 1)
    together, in_a, in_b = _n_pairs(table), _n_pairs(table.sum(1)), _n_pairs(table.sum(0))
    n = len(first)
    expected, largest = in_a * in_b / max(n * (n - 1) / 2, 1), (in_a + in_b) / 2
    return 1.0 if largest == expected else (together - expected) / (largest - expected)


def _n_pairs(sizes: IntArray) -> float:
    return float((sizes * (sizes - 1) // 2).sum())


def record_clusters(fed: Federation, devices: Sequence[int], labels: Sequence[int] | IntArray) -> None:
    """Record the cluster of each device after the latest round, as series `clusters` and `agreement`.

    `clusters` has one row per device; `agreement` one row per record, with the adjusted Rand index against the
    scenario's true groups, or NaN when it has none.
    """
    now = {"round": fed.round}
    groups = fed.task.groups
    for device, label in zip(devices, labels, strict=True):
        fed.record("clusters", **now, device=device, cluster=int(label))
    index = float("nan") if groups is None else adjusted_rand_index(labels, groups[list(devices)])
    fed.record("agreement", **now, n_clusters=len(set(map(int, labels))), rand_index=index)

"""Records of the device clusters that an algorithm finds."""

from __future__ import annotations

from collections.abc import Sequence

from fednet_emu.arrays import IntArray
from fednet_emu.federation import Federation


def record_clusters(fed: Federation, devices: Sequence[int], labels: Sequence[int] | IntArray) -> None:
    """Record the cluster of each device after the latest round, in the series `clusters` and `agreement`.

    A record has a row per device in `clusters`, with the device's entry of `labels`, and a row in `agreement`. This row
    has the adjusted Rand index (Hubert and Arabie, "Comparing Partitions", Journal of Classification 1985) of the
    clusters relative to the scenario's true groups, or NaN if there are no true groups.
    """
    from sklearn.metrics import adjusted_rand_score

    now = {"round": fed.round}
    groups = fed.task.groups
    for device, label in zip(devices, labels, strict=True):
        fed.record("clusters", **now, device=device, cluster=int(label))
    index = float("nan") if groups is None else float(adjusted_rand_score(groups[list(devices)], labels))
    fed.record("agreement", **now, n_clusters=len(set(map(int, labels))), rand_index=index)

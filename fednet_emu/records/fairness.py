"""How evenly the devices of a run were asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np


def jain(counts: Iterable[float]) -> float:
    """Jain's index (sum x)^2 / (n sum x^2) of n numbers: 1 when all are equal, 1 / n when all but one are zero.

    Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer
    Systems", DEC Research Report TR-301, 1984. It is nan where all are zero.
    """
    x = np.asarray(list(counts), np.float64)
    squares = float((x**2).sum())
    return float(x.sum()) ** 2 / (len(x) * squares) if squares else float("nan")


def asking(asked: Mapping[int, int], n_devices: int) -> dict[str, float | None]:
    """Jain's index over how often each device was asked, and the share of devices that ever were; None for unknown.

    Args:
        asked: in how many rounds each device was asked, those that were; empty where the algorithm does not tell.
        n_devices: how many could have been asked.
    """
    if not asked:
        return {"asked_jain": None, "asked_share": None}
    counts = [*asked.values(), *[0] * (n_devices - len(asked))]
    return {"asked_jain": jain(counts), "asked_share": len(asked) / n_devices}

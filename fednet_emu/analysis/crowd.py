"""Many devices at a glance: the share of them in each state over time, and the order in which they are told apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fednet_emu.analysis.activity import WAITING
from fednet_emu.arrays import Array

BINS = 480
"""Stretches of time for which shares are computed: about one for each pixel of a column of a page."""


def state_shares(bars: pd.DataFrame, devices: int, edges_s: Array) -> dict[str, Array]:
    """Mean share of the devices in each activity, exact for each stretch of time; the rest is idle.

    What a device does at the same time counts in each of its activities.

    Args:
        bars: the activities, see `activity_bars`.
        devices: how many devices there are, the idle ones included.
        edges_s: begins of the stretches and the end of the last, [stretches + 1], in simulated seconds.

    Returns:
        For each activity its shares, [stretches].
    """
    widths_s = np.diff(edges_s)
    return {
        str(activity): np.diff(time_before(some["started_s"], edges_s) - time_before(some["ended_s"], edges_s))
        / (widths_s * devices)
        for activity, some in bars.groupby("activity", observed=True)
    }


def time_before(instants_s: ArrayLike, edges_s: Array) -> Array:
    """Sum over instants of the time from an instant to each edge, 0 if it is later, [edges]."""
    ordered = np.sort(np.asarray(instants_s, np.float64))
    count = np.searchsorted(ordered, edges_s)
    return np.asarray(count * edges_s - np.append(0.0, np.cumsum(ordered))[count])


def _waiting_s(bars: pd.DataFrame) -> pd.Series[float]:
    return bars["took_s"].where(bars["activity"] == WAITING, 0.0)


def _computing_s(bars: pd.DataFrame) -> pd.Series[float]:
    return bars["took_s"].where(bars["activity"] == "compute", 0.0)


def _busy_s(bars: pd.DataFrame) -> pd.Series[float]:
    return bars["took_s"].where(bars["activity"] != WAITING, 0.0)


def _lost_s(bars: pd.DataFrame) -> pd.Series[float]:
    return bars["took_s"].where(bars["failed"], 0.0)


SORTS: dict[str, Callable[[pd.DataFrame], pd.Series[float]] | None] = {
    "device": None, "waiting": _waiting_s, "computing": _computing_s, "busy": _busy_s, "lost": _lost_s,
}  # fmt: skip
"""Orders of devices: by number, or by the time that they spend on something, the longest first."""


def ranked(bars: pd.DataFrame, sort: str) -> list[int]:
    """All devices that did anything, in one of the orders of SORTS; equal ones by their numbers."""
    spent = SORTS[sort]
    devices = np.unique(bars["device"].to_numpy(np.int64))
    if spent is None:
        return [int(device) for device in devices]
    timed = bars.assign(took_s=bars["ended_s"] - bars["started_s"])
    total_s = spent(timed).groupby(timed["device"]).sum().reindex(devices).to_numpy(np.float64)
    return [int(device) for device in devices[np.argsort(-total_s, kind="stable")]]


def spread(ranking: list[int], count: int) -> list[int]:
    """`count` devices at equal distances in a ranking, the first and the last included."""
    places = np.linspace(0, len(ranking) - 1, min(count, len(ranking)))
    return [ranking[place] for place in np.round(places).astype(int).tolist()]

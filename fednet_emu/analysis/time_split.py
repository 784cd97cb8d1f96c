"""Where the time of each device went: every second counts once, for the most telling thing that it does."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fednet_emu.analysis.activity import WAITING
from fednet_emu.arrays import Array, Mask

SPENT = ("uplink", "downlink", "sidelink", "compute", WAITING, "idle")
"""What a device's time is spent on. Of things at the same time the first counts; idle is what is left over."""


def time_split(bars: pd.DataFrame, devices: int, simulated_s: float) -> dict[str, Array]:
    """Seconds of each device by what they went to, [devices] for each of SPENT; they add up to `simulated_s`.

    Args:
        bars: the activities within the run, see `activity_bars`; those of the server are left out.
        devices: how many devices there are.
        simulated_s: the duration of the run in simulated seconds.
    """
    bars = bars[bars["device"] >= 0]
    rank = bars["activity"].map({name: place for place, name in enumerate(SPENT)}).to_numpy(np.int64)
    device = bars["device"].to_numpy(np.int64)
    edges = _Edges(device, bars["started_s"].to_numpy(np.float64), bars["ended_s"].to_numpy(np.float64))
    spent: dict[str, Array] = {}
    busy = np.zeros(len(edges.took_s), np.bool_)
    for place, name in enumerate(SPENT[:-1]):
        now = edges.covered(rank == place) & ~busy
        busy |= now
        spent[name] = np.bincount(edges.device[now], edges.took_s[now], minlength=devices).astype(np.float64)
    return {**spent, "idle": np.maximum(simulated_s - sum(spent.values()), 0.0)}


class _Edges:
    """The time of all devices, cut at all begins and ends of their activities; each piece lasts until the next cut."""

    def __init__(self, device: Array, started_s: Array, ended_s: Array) -> None:
        both, at_s = np.concatenate([device, device]), np.concatenate([started_s, ended_s])
        self._order = np.lexsort((at_s, both))
        self.device = both[self._order]
        at_s = at_s[self._order]
        self.took_s = np.append(np.diff(at_s), 0.0)
        self.took_s[np.append(self.device[1:] != self.device[:-1], True)] = 0.0

    def covered(self, chosen: Mask) -> Mask:
        """Whether at least one of the chosen activities [bars] is under way in each piece, [2 bars]."""
        step = chosen.astype(np.int64)
        under_way = np.cumsum(np.concatenate([step, -step])[self._order])
        return np.asarray(under_way > 0)

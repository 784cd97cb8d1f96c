"""Observations by key: the columns of a `ServerView`, and, on request, the oracle keys, which no server can know."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fednet_emu.algorithms.selection.base import ServerView
from fednet_emu.arrays import IntArray
from fednet_emu.federation import Statistic

Observation = dict[str, NDArray[Any]]
"""float32 arrays by key, and the int8 array `action_mask`."""

LARGEST = float(np.finfo(np.float32).max)
"""The number for infinity."""
LIMIT = 10.0
"""Largest scaled value."""

MASK = "action_mask"
DEVICES: dict[str, Callable[[ServerView], Any]] = {
    **{key: attrgetter(key) for key in ("rate_bps", "downlink_rate_bps", "compute_s", "upload_s", "download_s")},
    **{key: attrgetter(key) for key in ("n_samples", "flop_per_s")},
    "duration_s": lambda view: view.took_s,
    "duration_known": lambda view: ~np.isnan(view.took_s),
    "invited": lambda view: view.asked,
    "arrived": lambda view: view.arrived,
    "since_invited": lambda view: view.t - view.last_asked,
    "age": lambda view: view.t - view.last_arrived,
    "charge_j": lambda view: view.charge_j,
}
"""Keys [devices] of the set `server`."""
GLOBALS: dict[str, Callable[[ServerView], float]] = {
    "round": lambda view: view.t,
    "now_s": lambda view: view.now_s,
    "budget_left": lambda view: view.work.budget_left,
}
"""Keys [1] of the set `server`."""
REPORTED: dict[str, Statistic] = {"reported_loss": "loss", "reported_square": "square"}
"""Keys [devices] that devices send with their uploads, 32 bit each; 0 before."""
ORACLE = ("energy_j", "bits", "accuracy", "loss")
"""Keys [1] that no server can know: totals of the whole network, and scores on the test set."""
SERVER = (*DEVICES, *GLOBALS)
PER_DEVICE = (*DEVICES, *REPORTED)
KNOWN = (*SERVER, *REPORTED, *ORACLE)


def keys_of(observe: str | Iterable[str]) -> tuple[str, ...]:
    """The keys of names and of the sets `server` and `oracle`, without the mask."""
    names, sets = (observe,) if isinstance(observe, str) else tuple(observe), {"server": SERVER, "oracle": ORACLE}
    every = (key for name in names for key in sets.get(name, (name,)))
    return tuple(key for key in dict.fromkeys(every) if key != MASK)


def observed(
    view: ServerView, keys: Iterable[str], mask: IntArray | None = None, oracle: Mapping[str, float] | None = None
) -> Observation:
    """The observation of some keys besides the mask; without `oracle` a pure function of the server's knowledge.

    `mask` has the numbers of its devices, by default those that can be invited; `oracle` values by key.
    """
    allowed = np.zeros(len(view.asked), np.int8)
    allowed[view.there if mask is None else mask] = 1
    own = {k: DEVICES[k](view) if k in DEVICES else view.told[REPORTED[k]] for k in keys if k in PER_DEVICE}
    whole = {k: GLOBALS[k](view) if k in GLOBALS else (oracle or {})[k] for k in keys if k not in PER_DEVICE}
    found: Observation = {MASK: allowed}
    found |= zip(own, finite(list(own.values())), strict=True)  # one array at a time would take longer
    found |= zip(whole, finite(list(whole.values()))[:, None], strict=True)
    return found


def finite(values: Any) -> NDArray[np.float32]:
    """The values as float32; 0 for nan, `LARGEST` for infinity."""
    numbers = np.array(values, np.float64)
    numbers[np.isnan(numbers)] = 0.0
    return np.clip(numbers, -LARGEST, LARGEST, out=numbers).astype(np.float32)


def best(scores: Any, view: ServerView) -> list[int]:
    """The cohort with the highest scores [devices]; ties by number."""
    there = view.there
    order = np.argsort(-np.asarray(scores)[there], kind="stable")
    chosen: list[int] = sorted(there[order[: view.size]].tolist())
    return chosen


def constants(view: ServerView, capacity_j: float) -> dict[str, float]:
    """Divisors of the keys that bring them near 1, from the first round of a scenario.

    `capacity_j` is the capacity of a battery; 0 without batteries.
    """

    def mean(values: Any) -> float:
        known = np.asarray(values, float)
        known = known[np.isfinite(known) & (known > 0)]
        return float(known.mean()) if len(known) else 1.0

    round_s = mean(view.compute_s + view.upload_s + view.download_s)
    rates = {key: mean(DEVICES[key](view)) for key in ("rate_bps", "downlink_rate_bps", "n_samples", "flop_per_s")}
    times = dict.fromkeys(("compute_s", "upload_s", "download_s", "duration_s"), round_s)
    rounds = dict.fromkeys(("invited", "arrived", "since_invited", "age", "round"), 10.0)
    return {**rates, **times, **rounds, "now_s": 100.0 * round_s, "charge_j": capacity_j or 1.0}


def divided(observation: Mapping[str, NDArray[Any]], by: Mapping[str, float]) -> Observation:
    """An observation divided by constants, at most `LIMIT`, with the same mask."""
    scaled = {key: values.astype(np.float64) for key, values in observation.items() if key != MASK}
    for key, values in scaled.items():
        scaled[key] = np.clip(values / max(by.get(key, 1.0), sys.float_info.min), -LIMIT, LIMIT).astype(np.float32)
    return {key: scaled.get(key, observation[key]) for key in observation}

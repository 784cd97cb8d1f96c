"""What an agent observes, by key: the columns of a `ServerView`, and, by name only, what no server can see."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fednet_emu.algorithms.selection.base import ServerView
from fednet_emu.arrays import IntArray
from fednet_emu.federation import Statistic

Observation = dict[str, NDArray[Any]]
"""float32 arrays by key, and the int8 array `action_mask`."""

LARGEST = float(np.finfo(np.float32).max)
"""What stands for infinity."""

MASK = "action_mask"
DEVICES: dict[str, Callable[[ServerView], Any]] = {
    "rate_bps": lambda view: view.rate_bps,
    "downlink_rate_bps": lambda view: view.downlink_rate_bps,
    "compute_s": lambda view: view.compute_s,
    "upload_s": lambda view: view.upload_s,
    "download_s": lambda view: view.download_s,
    "n_samples": lambda view: view.n_samples,
    "flop_per_s": lambda view: view.flop_per_s,
    "duration_s": lambda view: view.took_s,
    "duration_known": lambda view: ~np.isnan(view.took_s),
    "invited": lambda view: view.asked,
    "arrived": lambda view: view.arrived,
    "since_invited": lambda view: view.t - view.last_asked,
    "age": lambda view: view.t - view.last_arrived,
    "charge_j": lambda view: view.charge_j,
}
"""Keys [devices] that the server knows."""
GLOBALS: dict[str, Callable[[ServerView], float]] = {
    "round": lambda view: view.t,
    "now_s": lambda view: view.now_s,
    "budget_left": lambda view: view.work.budget_left,
}
"""Keys [1] that the server knows."""
REPORTED: dict[str, Statistic] = {"reported_loss": "loss", "reported_square": "square"}
"""Keys [devices] that devices send with their uploads, 32 bit each time; 0 before."""
ORACLE = ("energy_j", "bits", "accuracy", "loss")
"""Keys [1] that no server can see: totals of the whole network, and scores on the test set."""
SERVER = (*DEVICES, *GLOBALS)
"""The keys of the set `server`."""
KNOWN = (*SERVER, *REPORTED, *ORACLE)


def keys_of(observe: str | Iterable[str]) -> tuple[str, ...]:
    """The keys that are meant by names, of which `server` and `oracle` are sets; without the mask, which is always."""
    names = (observe,) if isinstance(observe, str) else tuple(observe)
    sets = {"server": SERVER, "oracle": ORACLE}
    every = (key for name in names for key in sets.get(name, (name,)))
    return tuple(key for key in dict.fromkeys(every) if key != MASK)


def observed(
    view: ServerView, keys: Iterable[str], mask: IntArray | None = None, oracle: Mapping[str, float] | None = None
) -> Observation:
    """The observation of some keys; without `oracle` it is a pure function of what the server knows.

    Args:
        view: what the server knows.
        keys: the keys, besides `action_mask`.
        mask: numbers of the devices of the mask; None takes those that can be asked.
        oracle: values of the keys in `ORACLE`.
    """
    allowed = np.zeros(len(view.asked), np.int8)
    allowed[view.there if mask is None else mask] = 1
    rows, alone = list[Any](), list[float]()
    places = [key for key in keys if key in DEVICES or key in REPORTED]
    single = [key for key in keys if key not in DEVICES and key not in REPORTED]
    for key in places:
        rows.append(DEVICES[key](view) if key in DEVICES else view.told[REPORTED[key]])
    for key in single:
        alone.append(GLOBALS[key](view) if key in GLOBALS else (oracle or {})[key])
    found: Observation = {MASK: allowed}
    found |= zip(places, finite(rows), strict=True)
    found |= zip(single, finite(alone)[:, None], strict=True)
    return found


def finite(values: Any) -> NDArray[np.float32]:
    """The values as float32; 0 for nan, and the largest number for what is infinite."""
    numbers = np.array(values, np.float64)
    numbers[np.isnan(numbers)] = 0.0
    return np.clip(numbers, -LARGEST, LARGEST, out=numbers).astype(np.float32)


def best(scores: Any, view: ServerView) -> list[int]:
    """The devices of a cohort with the highest scores [devices]; ties by number."""
    there = view.there
    order = np.argsort(-np.asarray(scores)[there], kind="stable")
    chosen: list[int] = sorted(there[order[: view.size]].tolist())
    return chosen


LIMIT = 10.0
"""Largest scaled value; what is larger, or infinite, counts as this."""


def constants(view: ServerView, capacity_j: float) -> dict[str, float]:
    """Divisors of the keys that bring them near 1: nominal times and rates of the first round of a scenario.

    Args:
        view: what the server knows when the run begins.
        capacity_j: capacity of a battery in J; 0 without.
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
    """An observation over constants, at most `LIMIT`; the mask stays."""
    tiny = sys.float_info.min
    return {
        key: values
        if key == MASK
        else np.clip(values.astype(np.float64) / max(by.get(key, 1.0), tiny), -LIMIT, LIMIT).astype(np.float32)
        for key, values in observation.items()
    }

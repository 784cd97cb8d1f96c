"""Observations by key: the server's knowledge and, if requested, values that no real server knows (oracle keys)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fednet_emu.algorithms.selection.base import ServerView
from fednet_emu.federation import Statistic

Observation = dict[str, NDArray[Any]]  # a float32 array for each key, and the int8 array `action_mask`
LARGEST = float(np.finfo(np.float32).max)  # replaces infinity
LIMIT = 10.0  # maximum absolute value after scaling

MASK = "action_mask"
OF_VIEW: dict[str, Callable[[ServerView], Any]] = {
    **{key: attrgetter(key) for key in ("rate_bps", "downlink_rate_bps", "compute_s", "upload_s", "download_s")},
    **{key: attrgetter(key) for key in ("n_samples", "flop_per_s")},
    "duration_s": lambda view: view.took_s,
    "duration_known": lambda view: ~np.isnan(view.took_s),
    "invited": lambda view: view.invited,
    "arrived": lambda view: view.arrived,
    "since_invited": lambda view: view.t - view.last_invited,
    "age": lambda view: view.t - view.last_arrived,
    "charge_j": lambda view: view.charge_j,
    "round": lambda view: [view.t],
    "now_s": lambda view: [view.now_s],
    "budget_left": lambda view: [view.work.budget_left],
}
SERVER = tuple(OF_VIEW)
REPORTED: dict[str, Statistic] = {"reported_loss": "loss", "reported_square": "square"}  # 32 bits per upload
ORACLE = ("energy_j", "bits", "accuracy", "loss")  # unknown to a real server
OF_RUN = ("round", "now_s", "budget_left", *ORACLE)  # one number each, not one per device
KNOWN = (*SERVER, *REPORTED, *ORACLE)


def keys_of(observe: str | Iterable[str]) -> tuple[str, ...]:
    """Return the observation keys that `observe` names, without the mask; `server` and `oracle` mean sets of keys."""
    names = (observe,) if isinstance(observe, str) or not isinstance(observe, Iterable) else tuple(observe)
    every = (key for name in names for key in {"server": SERVER, "oracle": ORACLE}.get(name, (name,)))
    return tuple(key for key in dict.fromkeys(every) if key != MASK)


def observed(
    view: ServerView, keys: Iterable[str], mask: Sequence[int] | None = None, oracle: Mapping[str, float] | None = None
) -> Observation:
    """Return the observation with the given keys and the mask; without oracle keys, only `view` determines the numbers.

    Unknown numbers become 0, and infinite numbers become `LARGEST`. `mask` lists the indices of the devices that the
    action may choose, by default all devices that can be invited. `oracle` has the values that no real server knows.
    """
    allowed = np.zeros(len(view.invited), np.int8)
    allowed[view.there if mask is None else np.array(mask, np.int64)] = 1
    values = {}
    for key in keys:
        told = view.told[REPORTED[key]] if key in REPORTED else None
        values[key] = OF_VIEW[key](view) if key in OF_VIEW else [(oracle or {})[key]] if told is None else told
    numbers, end = np.concatenate([[], *values.values()]), 0  # faster than one array at a time
    numbers[np.isnan(numbers)] = 0.0
    numbers, found = np.clip(numbers, -LARGEST, LARGEST, out=numbers).astype(np.float32), {MASK: allowed}
    for key, its in values.items():
        found[key], end = numbers[end : end + len(its)], end + len(its)
    return found


def best(scores: Any, view: ServerView) -> list[int]:
    """Return the available devices with the highest `scores` [devices] as cohort; ties go to the lower index."""
    there = view.there
    order = np.argsort(-np.asarray(scores)[there], kind="stable")
    return sorted(map(int, there[order[: view.size]]))


def constants(view: ServerView, capacity_j: float) -> dict[str, float]:
    """Return the divisor of each observation key, such as the mean rate of the first round or a battery's capacity."""

    def mean(values: Any) -> float:
        known = np.asarray(values, float)
        known = known[np.isfinite(known) & (known > 0)]
        return float(known.mean()) if len(known) else 1.0

    round_s = mean(view.compute_s + view.upload_s + view.download_s)
    rates = {key: mean(OF_VIEW[key](view)) for key in ("rate_bps", "downlink_rate_bps", "n_samples", "flop_per_s")}
    times = dict.fromkeys(("compute_s", "upload_s", "download_s", "duration_s"), round_s)
    rounds = dict.fromkeys(("invited", "arrived", "since_invited", "age", "round"), 10.0)
    return {**rates, **times, **rounds, "now_s": 100.0 * round_s, "charge_j": capacity_j or 1.0}


def divided(observation: Mapping[str, NDArray[Any]], by: Mapping[str, float]) -> Observation:
    """Return an observation with each key divided by its value in `by` and clipped to +/- `LIMIT`, except the mask."""
    scaled = {}
    for key, its in observation.items():
        divisor = np.float64(max(by.get(key, 1.0), sys.float_info.min))
        scaled[key] = np.clip(its / divisor, -LIMIT, LIMIT).astype(np.float32)
    return scaled | {MASK: observation[MASK]}

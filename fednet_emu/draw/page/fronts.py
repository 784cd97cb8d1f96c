"""The Pareto fronts of a study as a part of its page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.fronts import COSTS, WANTED, ends_of, fronts, points_of
from fednet_emu.analysis.settings import Setting
from fednet_emu.analysis.study import StudyView

MOST = 250
"""Points of a setting that a page shows; of more, evenly spread ones, the last, and those on a front."""


def pareto(view: StudyView, settings: Sequence[Setting]) -> dict[str, Any]:
    """Return the points and fronts of a study as a part of its page.

    Fronts with the accuracy are over all rounds; those of two costs over settings, by what reaching the target cost.
    """
    names = list(dict.fromkeys(setting.data_set for setting in settings))
    rounds = points_of(view, settings)
    return {
        "data_sets": names,
        "rounds": _part(rounds[rounds["learnt"].astype(bool)], [(cost, "accuracy") for cost in COSTS], names),
        "ends": _part(ends_of(view, settings), itertools.combinations(COSTS, 2), names),
    }


def _part(points: pd.DataFrame, pairs: Iterable[tuple[str, str]], names: Sequence[str]) -> dict[str, Any]:
    found = fronts(points, pairs)
    kept = np.zeros(len(points), bool)
    for where in points.groupby("setting", sort=False).indices.values():
        kept[where[np.linspace(0, len(where) - 1, min(len(where), MOST)).round().astype(int)]] = True
    kept |= np.any([*found.values(), kept], axis=0)
    shown = points[kept]
    return {
        **{name: shown[name].to_numpy(np.float64) for name in ("setting", "round", *WANTED)},
        "data_set": shown["data_set"].map(names.index).to_numpy(np.float64),
        "fronts": {pair: np.flatnonzero(on[kept]) for pair, on in found.items()},
    }

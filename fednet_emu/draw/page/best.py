"""Which setting reaches the target at the least cost, for each cost and each data set, in words and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from fednet_emu.analysis.ranking import Ranking, rank
from fednet_emu.analysis.ranking_words import headline, table, words
from fednet_emu.analysis.settings import settings_of
from fednet_emu.analysis.study import StudyView
from fednet_emu.draw.page.columns import TITLES, columns_of
from fednet_emu.errors import FednetError


def rankings(view: StudyView) -> Iterator[dict[str, Any]]:
    """Yield the ranking by time, bits, energy and rounds of the settings of each data set, where it can be made."""
    settings = settings_of(view)
    if not view.target or len(settings) < 2:
        return
    data_sets = list(dict.fromkeys(its.data_set for its in settings if len(its.cells)))
    for data_set in data_sets:
        cells = {cell for its in settings if its.data_set == data_set for cell in its.cells["cell"]}
        part = replace(
            view,
            cells=view.cells[view.cells["cell"].isin(cells)],
            evaluations=view.evaluations[view.evaluations["cell"].isin(cells)],
            missing=view.missing[:0] if len(data_sets) > 1 else view.missing,
        )
        for cost in ("time", "bits", "energy", "rounds"):
            try:
                found = rank(part, cost)
            except FednetError as problem:
                its: dict[str, Any] = {"headline": f"{problem}.", "words": [f"{problem}."], "columns": []}
            else:
                its = {"headline": headline(found), "words": words(found), "columns": _columns(found)}
            yield {"cost": cost, "data_set": data_set, **its}


def _columns(ranking: Ranking) -> list[dict[str, Any]]:
    kind = TITLES[ranking.quantity.column][1]
    ends = {"low": ("95 % from", kind), "high": ("to", kind), "p": ("p", "score")}
    return columns_of(pd.DataFrame(table(ranking)).dropna(axis="columns", how="all"), {**TITLES, **ends})

"""Numbers about cyclic participation: how many groups were formed, and how long a cycle of their turns takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd


def cycle_times(turns: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return a table with the `cycle_columns` of several runs; runs without a complete cycle are left out."""
    runs = pd.DataFrame([cycle_columns(table) for table in turns], columns=["grouping", "groups_formed", "cycle_s"])
    return runs.dropna().reset_index(drop=True)


def cycle_columns(turns: pd.DataFrame) -> dict[str, Any]:
    """Return the way of grouping, mean number of groups and mean cycle time of a run, over its complete cycles.

    Args:
        turns: the series `cyclic_turns` of the run.

    Returns:
        `grouping` (structure and access scheme as text), `groups_formed`, and `cycle_s` in simulated seconds; the
        numbers are NaN if there is no complete cycle.
    """
    cycles = turns.groupby("cycle").agg(
        turns=("group", "size"), groups=("groups", "first"), start_s=("started_s", "min"), end_s=("ended_s", "max")
    )
    whole = cycles[cycles["turns"] == cycles["groups"]]
    return {
        "grouping": ", ".join(turns[["structure", "access"]].iloc[0]) if len(turns) else "",
        "groups_formed": float(whole["groups"].mean()),
        "cycle_s": float((whole["end_s"] - whole["start_s"]).mean()),
    }


SERIES_COLUMNS: dict[str, Callable[[pd.DataFrame], dict[str, Any]]] = {"cyclic_turns": cycle_columns}
"""Functions that summarize a series of a run in a few columns, which are added to the cells of a study."""

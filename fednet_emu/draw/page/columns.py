"""Columns of a page's tables: their titles, and the kind of their values, by which the browser formats them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from fednet_emu.analysis.scales import METRICS, RECORDED, TRADED
from fednet_emu.records.rows import KINDS

TITLES = {
    "rounds": ("Rounds", "count"),
    **{f"{kind}_bit": (kind.capitalize(), "bits") for kind in KINDS},
    **{cost.column: (cost.title, cost.kind) for cost in TRADED.values()},
    **{name: (title, "score") for name, title in METRICS.items()},
    **{cost.to_target: (f"{cost.title} to target", cost.kind) for cost in RECORDED.values()},
    "data_set": ("Data set", "text"),
    "device_count": ("Devices", "count"),
    "groups_formed": ("Groups formed", "score"),
    "cycle_s": ("Cycle", "time"),
}
"""Titles and kinds of the columns that are known; others are called by their names."""


def columns_of(table: pd.DataFrame, titles: Mapping[str, tuple[str, str]] = TITLES) -> list[dict[str, Any]]:
    """Return the columns of a table, each with `name`, `title`, `kind` and `values`, which are numbers or texts."""
    found = []
    for name in table:
        values = table[name]
        numeric = is_numeric_dtype(values) and not is_bool_dtype(values)
        title, kind = titles.get(str(name), (str(name), "number" if numeric else "text"))
        told = (
            values.to_numpy(np.float64)
            if numeric
            else [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
        )
        found.append({"name": str(name), "title": title, "kind": kind if numeric else "text", "values": told})
    return found

"""The page that compares several runs, with learning curves on common axes and summaries side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.quantities import counted
from fednet_emu.analysis.run import RunRecords, distinct_labels
from fednet_emu.analysis.scales import RECORDED, measured
from fednet_emu.draw.page.document import TITLES, columns_of, write_page
from fednet_emu.records.rows import KINDS

SCRIPTS = ("lines.js", "overlay.js")
SHOWN = ("seed", "status", *TITLES, "event_digest")
"""Entries of a run's summary that the page shows. Entries that a run lacks are omitted."""
TITLE_LENGTH = 60


def write_overlay_page(runs: Sequence[RunRecords], path: Path) -> Path:
    """Write the page of several runs to a file and return the file.

    Raises:
        DataError: the evaluations of a run are missing or unreadable, or the file cannot be written.
    """
    names = ", ".join(dict.fromkeys(run.name for run in runs))
    title = names if len(names) <= TITLE_LENGTH else counted(len(runs), "run")
    return write_page(path, title, overlay_document(runs), SCRIPTS)


def overlay_document(runs: Sequence[RunRecords]) -> dict[str, Any]:
    """Return the document of several runs. Values are in seconds, bits and joules, and unknown values are NaN.

    Raises:
        DataError: the evaluations of a run are missing or unreadable.
    """
    labels = distinct_labels(runs)
    tables = [run.table("evaluations") for run in runs]
    metrics = measured(tables)
    rows = pd.DataFrame([{"Run": label, **_summary(run)} for label, run in zip(labels, runs, strict=True)])
    return {
        "labels": labels,
        "metrics": metrics,
        "costs": {name: cost.title for name, cost in RECORDED.items()},
        "curves": [
            {
                "costs": {name: cost.of(table).to_numpy(np.float64) for name, cost in RECORDED.items()},
                "metrics": {name: table[name].to_numpy(np.float64) for name in metrics if name in table},
            }
            for table in tables
        ],
        "summaries": columns_of(rows.dropna(axis="columns", how="all")),
    }


def _summary(run: RunRecords) -> dict[str, Any]:
    known = {name: value for name, value in run.summary.items() if value is not None}
    if all(f"{kind}_bit" in known for kind in KINDS):
        known["total_bit"] = run.total_bit
    return {name: known[name] for name in SHOWN if name in known}

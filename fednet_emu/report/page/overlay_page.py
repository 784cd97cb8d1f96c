"""The page of several runs: their learning curves on one axis and their summaries side by side, as a document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fednet_emu.errors import FednetError
from fednet_emu.report.figures.study_curves import METRICS, STUDY_COSTS
from fednet_emu.report.page.differences import sentence
from fednet_emu.report.page.document import write_page
from fednet_emu.report.views.compare import compare
from fednet_emu.report.views.run import RunView, distinct_labels
from fednet_emu.report.views.study import NEEDED, study_of_run
from fednet_emu.report.views.summary import summary_rows

SCRIPTS = ("lines.js", "overlay.js")


def write_overlay_page(runs: Sequence[RunView], path: Path) -> Path:
    """Write the page of several runs to a file and return the file.

    Raises:
        DataError: the evaluations of a run are missing or unreadable, or the file cannot be written.
    """
    return write_page(path, ", ".join(dict.fromkeys(run.label for run in runs)), overlay_document(runs), SCRIPTS)


def overlay_document(runs: Sequence[RunView]) -> dict[str, Any]:
    """Return what the page of several runs shows; values in seconds, bits and joules, what is unknown as NaN.

    Raises:
        DataError: the evaluations of a run are missing or unreadable.
    """
    labels = distinct_labels(runs)
    tables = [run.table("evaluations") for run in runs]
    metrics = {
        name: title
        for name, title in METRICS.items()
        if any(np.isfinite(table.get(name, np.nan)).any() for table in tables)
    }
    summaries = [dict(summary_rows(run.summary)) for run in runs]
    return {
        "labels": labels,
        "folders": [str(run.folder or "") for run in runs],
        "metrics": metrics,
        "costs": {name: cost.title for name, cost in STUDY_COSTS.items()},
        "curves": [
            {
                "costs": {name: cost.of(table).to_numpy(np.float64) for name, cost in STUDY_COSTS.items()},
                "metrics": {name: table[name].to_numpy(np.float64) for name in metrics if name in table},
            }
            for table in tables
        ],
        "summary": {
            title: [summary.get(title, "") for summary in summaries]
            for title in dict.fromkeys(title for summary in summaries for title in summary)
        },
        "words": compared(runs, labels),
    }


def compared(runs: Sequence[RunView], labels: Sequence[str]) -> list[str]:
    """Return how each further run differs from the first, in words; of other seeds nothing is told, nor of none."""
    told = []
    first, *others = runs
    for run, label in zip(others, labels[1:], strict=True):
        if any(name not in its.summary for its in (first, run) for name in NEEDED):
            continue
        try:
            found = compare(study_of_run(first), study_of_run(run))
        except FednetError:
            continue
        told += [sentence(its, (labels[0], label), {}) for its in found]
    return [f"{text[0].upper()}{text[1:]}." for text in told]

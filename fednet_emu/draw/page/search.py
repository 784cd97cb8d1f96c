"""What a search tried and found, for the page of its study."""

from __future__ import annotations

from typing import Any

from fednet_emu.analysis.searched import SearchView, search_lines
from fednet_emu.draw.page.columns import TITLES, columns_of

KINDS = {"time": "time", "bits": "bits", "energy": "energy", "device-energy": "energy", "rounds": "count"}
"""How a cost is written in the table."""

NAMES = {
    "trial": ("Trial", "count"),
    "setting": ("Setting", "text"),
    "runs": ("Runs", "count"),
    "reached": ("Got there", "count"),
    "score": ("Score", "score"),
    "why_not": ("Why not", "text"),
}
"""Titles and kinds of the columns of trials, beside parameters and costs."""


def search_part(view: SearchView) -> dict[str, Any]:
    """Return the words, the trials and the finalists of a search."""
    costs = {name: (f"Mean {name}", KINDS.get(name, "score")) for name in view.columns}
    titles = {**TITLES, **costs, **NAMES}
    return {
        "words": [line.strip() for line in search_lines(view)],
        "columns": columns_of(view.trials, titles),
        "costs": [{"name": name, "kind": KINDS.get(name, "score")} for name in view.columns],
        "least": bool(view.costs),
        "finalists": list(view.finalists),
    }

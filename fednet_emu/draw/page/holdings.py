"""Who has what, for the page of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fednet_emu.analysis.holdings import Holdings, Part
from fednet_emu.arrays import IntArray

MOST_SHOWN = 2000
"""Most devices that are shown; of more some are, evenly spaced in the order of those that are alike."""
BY = {"counts": "most frequent label", "targets": "median target", "sizes": "number of samples"}


def holdings_document(holdings: Holdings | None, missing: str) -> dict[str, Any]:
    """Return what the page shows of who has what, devices that are alike side by side; or why it is not known.

    Args:
        holdings: what devices have; None if that is not known.
        missing: why not, in words.
    """
    if holdings is None:
        return {"missing": missing}
    order = holdings.train.order()
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), MOST_SHOWN)).round().astype(np.int64))]
    parts = {"train": holdings.train, "test": holdings.test}
    return {
        "devices": chosen,
        "of": len(order),
        "by": next(words for name, words in BY.items() if getattr(holdings.train, name) is not None),
        "parts": {name: _part(part, chosen) for name, part in parts.items() if part.sizes.any()},
    }


def _part(part: Part, devices: IntArray) -> dict[str, Any]:
    told: dict[str, Any] = {"sizes": part.sizes[devices], "all": int(part.sizes.sum())}
    if part.counts is not None:
        told["counts"] = list(part.counts[:, devices])
    if part.targets is not None:
        told["targets"] = list(part.targets[:, devices])
    return told

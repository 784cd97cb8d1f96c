"""Detection of divergence from the scores of a run."""

from __future__ import annotations

import math

import numpy as np

from fednet_emu.records.ledger import Ledger

FAR_ABOVE = 10.0
"""A loss of this many times the first model's counts as diverged; a model that guesses at random is not that bad."""


def divergence(ledger: Ledger) -> str:
    """Return why the last evaluation shows divergence, or an empty text if it does not.

    A run has diverged if the loss is not finite, or is far above that of the first model (if that is above 0).
    """
    losses = ledger.evaluations.column("loss").astype(np.float64)
    if not len(losses):
        return ""
    first, last = float(losses[0]), float(losses[-1])
    if not math.isfinite(last):
        return f"the loss is not finite any more, got {last:g}; lower the learning rate"
    if first > 0 and last > FAR_ABOVE * first:
        return (
            f"the loss is far above that of the first model, got {last:.4g} after {first:.4g}; lower the learning rate"
        )
    return ""

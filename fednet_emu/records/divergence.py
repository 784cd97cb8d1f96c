"""When the scores of a run say that it has diverged."""

from __future__ import annotations

import math

import numpy as np

from fednet_emu.records.ledger import Ledger

FAR_ABOVE = 10.0
"""A loss so many times that of the first model is far above it: a model that answers at random is not that bad."""


def divergence(ledger: Ledger) -> str:
    """What makes the last evaluation that of a diverged run, or nothing.

    It is a loss that is not finite, or one far above that of the first model; a first loss of 0 tells nothing.
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

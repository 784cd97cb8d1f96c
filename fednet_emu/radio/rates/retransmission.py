"""Retransmissions: how many attempts a block takes and how often all of them fail."""

from __future__ import annotations

import math
from typing import NamedTuple


class Attempts(NamedTuple):
    """Expected number of attempts per block, and the probability that every one of them fails."""

    expected: float
    residual_loss: float

    @property
    def throughput(self) -> float:
        """Blocks delivered per attempt, when a block that failed for good is sent anew from above."""
        return (1.0 - self.residual_loss) / self.expected


def truncated_arq(loss: float, max_attempts: int) -> Attempts:
    """Attempts of a block that is lost with one probability each time: (1 - p^M) / (1 - p) and p^M.

    Ignored here: feedback errors, and the time between attempts, which other blocks fill.
    """
    return attempts([loss] * max_attempts)


def chase_combining(snr_db: float, snr_at_10_pct_db: float, snr_at_1_pct_db: float, max_attempts: int) -> Attempts:
    """Attempts of a block whose receiver adds up the SNR of all copies (maximum-ratio combining of equal copies).

    The block error rate after k copies is read at k times the SNR off a line through both given points, in decades
    over dB, and attempts fail independently given their SNR.
    Ignored here: what a failure says about the noise, fading between attempts, feedback errors.
    """
    decade_db = snr_at_1_pct_db - snr_at_10_pct_db
    losses = []
    for copies in range(1, max_attempts + 1):
        decades = 1.0 + (snr_db + 10.0 * math.log10(copies) - snr_at_10_pct_db) / decade_db
        losses.append(min(10.0**-decades, 1.0))
    return attempts(losses)


def attempts(losses: list[float]) -> Attempts:
    """Attempts of a block that is lost with the given probability at each one, in order.

    Ignored here: dependence between attempts.
    """
    expected, reached = 0.0, 1.0
    for loss in losses:
        expected += reached
        reached *= loss
    return Attempts(expected, reached)

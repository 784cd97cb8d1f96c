"""How each band was used over time: by nobody, by one sender, or by several at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fednet_emu.analysis.crowd import time_before
from fednet_emu.arrays import Array, Mask

MOST_NUMBERS = 120_000
MOST_BINS, FEWEST_BINS = 480, 40


@dataclass(frozen=True)
class Use:
    """Use of the band of one kind of link in one cell, in stretches of time.

    Attributes:
        kind: uplink, downlink or sidelink.
        cell: number of the cell, or of the cluster for sidelinks.
        one: share of each stretch with one transmission on the air, [stretches].
        several: share with several at once, [stretches].
    """

    kind: str
    cell: int
    one: Array
    several: Array


def air_use(transfers: pd.DataFrame, simulated_s: float) -> tuple[Array, list[Use]]:
    """Return the edges of equal stretches of the run in simulated seconds, [stretches + 1], and the use of each band.

    The more bands there are, the fewer are the stretches.

    Args:
        transfers: the columns `kind`, `cell`, `started_s` and `ended_s` of the transfers.
        simulated_s: the duration of the run.
    """
    on_air = transfers[transfers["started_s"].notna()]
    bands = on_air.groupby(["kind", "cell"], observed=True)
    bins = min(max(MOST_NUMBERS // max(2 * bands.ngroups, 1), FEWEST_BINS), MOST_BINS)
    edges_s = np.linspace(0.0, max(simulated_s, 1e-9), bins + 1)
    uses = []
    for key, part in bands:
        kind, cell = np.asarray(key, object).tolist()
        ended_s = part["ended_s"].fillna(simulated_s).to_numpy(np.float64)
        one, several = _senders(part["started_s"].to_numpy(np.float64), ended_s, edges_s)
        uses.append(Use(str(kind), int(cell), one, several))
    return edges_s, uses


def _senders(started_s: Array, ended_s: Array, edges_s: Array) -> tuple[Array, Array]:
    """Shares of each stretch in which one, and in which more than one transmission is on the air."""
    at_s = np.concatenate([started_s, ended_s])
    step = np.repeat([1, -1], len(started_s))
    order = np.lexsort((step, at_s))  # ends first: transmissions one right after the other do not overlap
    at_s, count = at_s[order], np.cumsum(step[order])
    begins_s, ends_s, count = at_s[:-1], at_s[1:], count[:-1]

    def share(chosen: Mask) -> Array:
        covered = np.diff(time_before(begins_s[chosen], edges_s) - time_before(ends_s[chosen], edges_s))
        return np.asarray(np.clip(covered / np.diff(edges_s), 0.0, 1.0))

    return share(count == 1), share(count > 1)

"""How round latencies, rates and staleness are distributed in a run: histograms of few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.arrays import Array
from fednet_emu.draw.page.records import Records
from fednet_emu.records.rows import KINDS

BINS = 40


def spreads(records: Records) -> dict[str, Any]:
    """Return histograms by what they are of: `latency_s`, `rate_bps` of each kind of link, and `staleness`."""
    rounds, sent = records.rounds, records.transfers
    took_s = sent["ended_s"] - sent["started_s"]
    on_air = sent[(took_s > 0) & (sent["air_bit"] > 0)]
    rate_bps = on_air["air_bit"] / took_s[on_air.index]
    told = {
        "latency_s": histogram((rounds["ended_s"] - rounds["started_s"]).to_numpy(np.float64)),
        "rate_bps": {kind: histogram(rate_bps[on_air["kind"] == kind].to_numpy(np.float64)) for kind in KINDS},
    }
    stale = _staleness(records)
    return told if stale is None else {**told, "staleness": stale}


def histogram(values: Array) -> dict[str, Any] | None:
    """Edges, counts, median and mean of values; None if there are none.

    The bins are equally wide, or equally wide on a logarithmic axis if positive values span more than a factor of 20.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    low, high = float(known.min()), float(known.max())
    log = low > 0 and high > 20 * low
    if high - low <= 1e-9 * abs(high):
        edges = np.array([low, high]) + max(abs(high), 1e-9) * np.array([-0.05, 0.05])
    else:
        edges = np.geomspace(low, high, BINS + 1) if log else np.linspace(low, high, BINS + 1)
        edges[0], edges[-1] = low, high
    counts = np.histogram(known, edges)[0]
    quantiles = dict(zip(("p5", "median", "p95"), np.quantile(known, [0.05, 0.5, 0.95]).tolist(), strict=True))
    return {
        "edges": edges,
        "counts": counts,
        "log": log,
        "number": len(known),
        "mean": float(known.mean()),
        **quantiles,
    }


def _staleness(records: Records) -> dict[str, Any] | None:
    """How often an update was how many steps old, from any series that an algorithm recorded with this column."""
    run = records.run
    for name in run.names():
        table = run.table(name)
        if "staleness" in table and len(table):
            values, counts = np.unique(pd.to_numeric(table["staleness"]).dropna(), return_counts=True)
            return {"series": name, "values": values, "counts": counts}
    return None

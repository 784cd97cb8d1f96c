"""What trackers are told of the records: each row as it is recorded, as metrics with the costs of that moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any

from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.records.ledger import Ledger, scores_in
from fednet_emu.tracking.tracker import Costs

AXES = ("round", "step", "simulated_s")
"""Columns of a series that say where on the axes a row belongs; the first two number rounds."""
SINGLED_OUT = ("device", "i", "j")
"""Columns of a series whose rows are about single devices: tables, which are no metrics."""


class Listener:
    """Listens to a ledger; what is measured at one moment is told at once, at the latest when the round ends.

    Args:
        ledger: the records of the run.
        clock: its simulated time.
        tell: called with the metrics of a moment and its costs.
    """

    def __init__(self, ledger: Ledger, clock: Clock, tell: Callable[[Mapping[str, float], Costs], None]) -> None:
        self._ledger, self._clock, self._tell = ledger, clock, tell
        self._metrics: dict[str, float] = {}
        self._costs: Costs | None = None
        ledger.listeners.append(self._take)

    def flush(self) -> None:
        """Tell what was recorded and has not been told yet."""
        metrics, self._metrics = self._metrics, {}
        if metrics and self._costs is not None:
            self._tell(metrics, self._costs)

    def close(self) -> None:
        """Tell the rest, and listen no longer."""
        self.flush()
        self._ledger.listeners.remove(self._take)

    def _take(self, table: str, row: Mapping[str, Any]) -> None:
        metrics = dict(metrics_of(table, row))
        if not metrics:
            return
        ended = len(self._ledger.rounds)
        round_ = int(row.get("round", row.get("step", ended)))
        uplink, downlink, sidelink = self._ledger.sent_bit
        costs = Costs(round_, self._clock.now_s, uplink, downlink, sidelink, self._ledger.spent_j(self._clock.now))
        if costs != self._costs or metrics.keys() & self._metrics.keys():
            self.flush()
        self._costs = costs
        self._metrics |= metrics


def metrics_of(table: str, row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the names and values of the metrics in a row: of `evaluations`, `rounds`, or a series of an algorithm.

    NaN says that something was not measured, and is left out; so are texts. A row about a single device or with lists
    has no metrics.
    """
    if table == "evaluations":
        named = {name: row[name] for name in scores_in(row)}
    elif table == "rounds":
        took_s = (row["ended_ns"] - row["started_ns"]) / NS_PER_S
        named = {"rounds/duration_s": took_s, **{f"rounds/{name}": row[name] for name in ("invited", "arrived")}}
    elif any(name in row for name in SINGLED_OUT) or any(isinstance(value, list | tuple) for value in row.values()):
        return
    else:
        named = {f"{table}/{name}": value for name, value in row.items() if name not in AXES}
    for name, value in named.items():
        if isinstance(value, Real) and not math.isnan(value):
            yield name, float(value)

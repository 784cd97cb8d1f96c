"""Start and end the trackers of a run, and send metrics to them. A failing tracker cannot disturb the run."""

from __future__ import annotations

import json
import logging
import math
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

from fednet_emu.errors import FednetError, described
from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.records.folder import LOG_FILE, MANIFEST, RunFolder, read_manifest
from fednet_emu.records.ledger import Ledger, scores_in
from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Scalar, Tracker

AXES = ("round", "step", "simulated_s")
"""Columns of a series that are axes instead of metrics. The columns `round` and `step` contain the number of the
round."""
SINGLED_OUT = ("device", "i", "j")
"""A series with one of these columns describes single devices. Its rows are not logged as metrics."""


class Listener:
    """Receives the records of a run, and logs all metrics of the same simulated time in one call."""

    def __init__(self, ledger: Ledger, clock: Clock, tell: Callable[[Mapping[str, float], Costs], None]) -> None:
        self._ledger, self._clock, self._tell = ledger, clock, tell
        self._metrics: dict[str, float] = {}
        self._costs: Costs | None = None
        ledger.listeners.append(self._take)

    def flush(self) -> None:
        """Log the recorded metrics that have not been logged yet."""
        metrics, self._metrics = self._metrics, {}
        if metrics and self._costs is not None:
            self._tell(metrics, self._costs)

    def close(self) -> None:
        """Log the remaining metrics, and stop receiving records."""
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
    """Yield the names and values of the metrics in a row of `evaluations`, `rounds`, or a series of an algorithm.

    NaN (not measured) and strings are omitted. A row about a single device, or a row with lists, has no metrics.
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


LOG = logging.getLogger("fednet_emu")

NOTE = "tracking.json"
"""Name of the file in the run folder with the id by which trackers identify the run."""


class Tracking:
    """Starts and ends the trackers of a run, and sends metrics to them. Does nothing if there are no trackers."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        folder: RunFolder | None,
        name: str,
        seed: int,
        study: tuple[str, Path] | None = None,
    ) -> None:
        self._given, self._folder = trackers, folder
        self._name, self._seed, self._study = name, seed, study
        self._started: list[Tracker] = []
        self._listener: Listener | None = None
        self._summary: Mapping[str, Any] = {}

    def start(
        self, ledger: Ledger, clock: Clock, settings: Callable[[], Mapping[str, Any]], summary: Mapping[str, Any]
    ) -> None:
        """Start all trackers, and log the records that are added to the ledger from now on. The ledger must be empty.

        `settings` returns the settings of the scenario as a mapping. `summary` is filled in at the end of the run.

        Raises:
            FednetError: a tracker cannot start.
        """
        if not self._given:
            return
        self._summary = summary
        run_id, resumed = _identity(self._folder)
        home = None if self._folder is None else self._folder.home
        group, store = self._study or (self._name, home)
        info = RunInfo(run_id, resumed, self._name, group, self._seed, flat(settings()), home, store)
        for tracker in self._given:
            try:
                tracker.start(info)
            except FednetError:
                raise
            except Exception as error:
                text = f"track: {type(tracker).__name__} cannot start, got {described(error, 300)}"
                raise FednetError(f"{text}; correct it, or omit it") from error
            self._started.append(tracker)
        self._listener = Listener(
            ledger, clock, lambda metrics, costs: self._each(lambda tracker: tracker.log(metrics, costs))
        )

    def flush(self, _fed: Any = None) -> None:
        """Log the metrics of the round that has just ended."""
        if self._listener is not None:
            self._listener.flush()

    def close(self, error: BaseException | None = None) -> None:
        """Log the end of the run (`error` if it failed), after all its records are written."""
        if self._listener is not None:
            self._listener.close()
        if not self._started:
            return
        summary = self._summary
        reason = str(summary.get("diverged") or ("" if error is None else described(error, 300)))
        outcome = Outcome(summary.get("status", "failed"), reason, dict(summary), files_of(self._folder))
        self._each(lambda tracker: tracker.end(outcome))

    def _each(self, tell: Callable[[Tracker], None]) -> None:
        for tracker in list(self._started):
            try:
                tell(tracker)
            except Exception as error:
                self._started.remove(tracker)
                what = f"track: {type(tracker).__name__} failed, got {described(error, 300)}"
                text = f"{what}; the run continues without it"
                LOG.warning("%s", text, exc_info=True)
                warnings.warn(text, stacklevel=2)


def flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Scalar]:
    """Return nested settings as a flat mapping: `{"a": {"b": 1}}` becomes `{"a.b": 1}`. Lists become JSON strings."""
    found: dict[str, Scalar] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value if isinstance(value, Scalar) else json.dumps(value)
    return found


def files_of(folder: RunFolder | None) -> tuple[Path, ...]:
    """Return the existing files of a run: the files in its manifest, the manifest itself, and the log."""
    if folder is None:
        return ()
    names = (*(read_manifest(folder.path) or {"files": {}})["files"], MANIFEST, LOG_FILE)
    return tuple(folder.path / name for name in names if (folder.path / name).is_file())


def _identity(folder: RunFolder | None) -> tuple[str, bool]:
    known = None
    if folder is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads((folder.path / NOTE).read_text(encoding="utf-8"))["id"]
    name = known if isinstance(known, str) and known.isalnum() else secrets.token_hex(4)
    if folder is not None:
        folder.write_json(NOTE, {"id": name})
    return name, name == known

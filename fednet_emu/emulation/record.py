"""Writing of the records of a run, even if the run fails, is interrupted or fills the disk."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.algorithms.base import LocalTraining
from fednet_emu.analysis.scene import Scene
from fednet_emu.emulation.guard import Signals
from fednet_emu.emulation.hardware import hardware, speeds
from fednet_emu.emulation.store import Saver
from fednet_emu.errors import DataError, Diverged
from fednet_emu.federation.federation import Federation
from fednet_emu.files.data_folder import data_folder
from fednet_emu.files.gains import Gains
from fednet_emu.network.network import Network
from fednet_emu.records.folder import FINISHED, LOG_FILE, SUMMARY, RunFolder
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import Ledger, scores_in
from fednet_emu.records.rows import KINDS, EnergyRow
from fednet_emu.records.summaries import empty_s, invitations, messages, other_users, spread
from fednet_emu.scenario.model import Scenario
from fednet_emu.units import linear_to_db

LOG = logging.getLogger("fednet_emu")

APPROXIMATE = "events depend on learnt numbers: a timing-only run, which takes nominal ones, is an approximation"
"""Note to the user at the start of a run in which events depend on learned values."""


def _carbon(scenario: Scenario, ledger: Ledger, summary: Mapping[str, Any]) -> dict[str, float]:
    if scenario.carbon is None:
        return {}
    evaluated = ledger.frame("evaluations")
    times_s, energies_j = ([*evaluated[name].tolist(), float(summary[name])] for name in ("simulated_s", "energy_j"))
    return scenario.carbon.grams(times_s, energies_j, float(summary["host_s"]))


@contextmanager
def recorded(
    fed: Federation,
    folder: RunFolder | None,
    scenario: Scenario,
    savers: Sequence[Saver],
    facts: Mapping[str, Any],
    started: float,
    *,
    measured: bool = False,
) -> Iterator[dict[str, Any]]:
    """Context manager that at the end of a run, even a failed one, writes all records and fills in the summary.

    `savers` store learned values; the caller may extend the list inside the block. `facts` are the first entries of the
    summary, and `started` is the host time (`time.perf_counter`) at which the run started. `measured` is True for a run
    of real programs. Such a run has no event digest and no check for divergence. It is also not checked that only one
    sender transmits at a time, because an interrupted message loses its turn. If not all records of the ended run can
    be written, the status is `failed` and a `DataError` is raised.
    """
    summary, status, reason = dict(facts), "failed", ""
    with _log_file(folder), Signals(fed.clock) as signals:
        if not measured:
            _log_start(fed, scenario, facts)
        try:
            try:
                yield summary
                status = "done"
            finally:  # an interrupt up to here ends the run; later interrupts are ignored
                signals.ignore()
        except Diverged as error:
            status, reason = "diverged", str(error)
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        except BaseException as error:
            LOG.info("failed at t=%.9g s: %s", fed.clock.now_s, error)
            raise
        finally:
            books = _Books(folder)
            for saver in savers:
                books.attempt(partial(saver.finish if status in FINISHED else saver.save, fed))
            with fed.graph.host.part("records"):
                fed.close()
                books.write_tables(fed.ledger)
                whole = totals(fed, scenario, measured=measured)
            if status == "done":
                reason = "" if measured else fed.divergence()
                status = "diverged" if reason else "done"
            summary.update(status=status, diverged=reason or None, **whole)
            parts = {part: spent._asdict() for part, spent in fed.graph.host.parts().items()}
            summary.update(host_s=time.perf_counter() - started, host_parts=parts)
            summary.update(_carbon(scenario, fed.ledger, summary))
            if fed.graph.engine is not None and fed.graph.engine.statistics:
                summary["elsewhere"] = dict(fed.graph.engine.statistics)
            books.close(summary)
            if reason:
                LOG.info("diverged: %s", reason)
            if savers:
                LOG.info("training jobs: %d trained, %d known", whole["trained_jobs"], whole["known_jobs"])
            LOG.info("%s at t=%.9g s, after %.1f s of host time", summary["status"], fed.clock.now_s, summary["host_s"])
        if books.problem is not None:
            raise books.problem


class _Books:
    """Writes the files of an ended run; an error in one file does not prevent the writing of other files."""

    def __init__(self, folder: RunFolder | None) -> None:
        self._folder = folder
        self.problem: DataError | None = None

    def attempt(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except DataError as error:
            LOG.info("not written: %s", error)
            self.problem = self.problem or error

    def write_tables(self, ledger: Ledger) -> None:
        folder = self._folder
        if folder is None:
            return
        tables = ledger.parts()
        self.attempt(lambda: folder.announce([*(f"{name}.parquet" for name in tables), SUMMARY]))
        for name, table in tables.items():
            self.attempt(lambda name=name, table=table: folder.write_table(name, table))  # type: ignore[misc]

    def close(self, summary: dict[str, Any]) -> None:
        folder = self._folder
        if folder is None:
            return
        for _ in range(2):  # second attempt with the status `failed`, if the first attempt had an error
            before = self.problem
            if before is not None and summary["status"] in FINISHED:
                summary["status"] = "failed"
            self.attempt(lambda: folder.write_json(SUMMARY, summary))
            if self.problem is before:
                self.attempt(lambda: folder.end(summary["status"], event_digest=summary["event_digest"]))
            if self.problem is before:
                break
        if summary["status"] in FINISHED:
            self.attempt(folder.settle)


def _log_start(fed: Federation, scenario: Scenario, facts: Mapping[str, Any]) -> None:
    size = "a model of its own" if scenario.algorithm.own_learning else f"{fed.task.model.size} parameters"
    LOG.info("%s, seed %d: %d devices, %s", facts["name"], facts["seed"], fed.n_devices, size)
    if scenario.events_depend_on_learning:
        LOG.info("%s", APPROXIMATE)


def totals(fed: Federation, scenario: Scenario, *, measured: bool) -> dict[str, Any]:
    """Check the conservation laws (see `verify`), and return the totals of a run that has ended."""
    ledger = fed.ledger
    engine = fed.graph.engine
    for choice in engine.choices if engine is not None else ():
        LOG.info("%s", choice)
    laws = verify(ledger, frozenset()) if measured else _laws(fed, ledger)
    for law, broken in laws.items():
        LOG.log(logging.ERROR if broken else logging.INFO, "law %s: %s", law, broken or "holds")
    backhaul = {"backhaul_bit": ledger.backhaul_bit, "backhaul_j": ledger.backhaul_j}  # part of the run's energy
    return {
        "simulated_s": fed.clock.now_s,
        "rounds": len(ledger.rounds),
        **{f"{kind}_bit": sent_bit for kind, sent_bit in zip(KINDS, ledger.sent_bit, strict=True)},
        **(backhaul if len(ledger.backhaul) else {}),
        **_energies(ledger),
        **_emptiness(fed),
        **_privacy(fed, scenario, measured=measured),
        **invitations(ledger.invited, int(np.count_nonzero(fed.task.n_samples)) if ledger.invited else 0),
        **_last_evaluation(ledger),
        "event_digest": None if measured else ledger.event_digest(),
        "verified": not any(laws.values()),
        "broken_laws": {law: broken for law, broken in laws.items() if broken},
        "events_depend_on_learning": scenario.events_depend_on_learning,
        "nominal_values": fed.learner.nominal,
        "transfers": len(ledger.transfers),
        **messages(ledger),
        **({"traffic": other_users(ledger, fed.clock.now)} if ledger.is_shared else {}),
        "wavefronts": fed.graph.statistics.wavefronts,
        "mean_wavefront": fed.graph.statistics.mean_wavefront,
        "exchanges": {"as_arrays": fed.local_rounds.played, "one_by_one": dict(fed.local_rounds.refused)},
        "trained_jobs": fed.graph.statistics.trained,
        "known_jobs": fed.graph.statistics.jobs - fed.graph.statistics.trained,
    }


def _energies(ledger: Ledger) -> dict[str, float | None]:
    """Return energies in J of the whole network and its components; `compute_j` is None if no device has a known one.

    `compute_unknown_share` is the share of devices whose computing energy is unknown, and not in the total.

    `idle_j` is the idle energy of the devices, and `waiting_j` the share of it in times without any activity. The
    energies of transmission, reception and computation are counted in addition to the idle energy.
    """
    devices = {name: ledger.energies.column(name)[:-1] for name in EnergyRow._fields[1:]}
    station_j = sum(float(ledger.energies.column(name)[-1]) for name in ("sending_j", "idle_j"))
    known = ~np.isnan(devices["computing_j"])
    return {
        "energy_j": ledger.spent_j(ledger.ended_ns),
        "compute_j": float(devices["computing_j"][known].sum()) if known.any() else None,
        "compute_unknown_share": float((~known).mean()),
        "transmit_j": float(devices["sending_j"].sum()),
        "rx_energy_j": float(devices["receiving_j"].sum()),
        "idle_j": float(devices["idle_j"].sum()),
        "waiting_j": float(devices["waiting_j"].sum()),
        "station_j": station_j,
    }


def _emptiness(fed: Federation) -> dict[str, float]:
    if fed.presence.batteries is None:
        return {}
    whole_s = fed.clock.now_s * fed.n_devices
    return {"empty_share": float(empty_s(fed.ledger, fed.n_devices).sum() / whole_s) if whole_s else 0.0}


def _laws(fed: Federation, ledger: Ledger) -> dict[str, str]:
    network = fed.network
    media = {"uplink": network.uplink, "downlink": network.downlink, "sidelink": network.sidelink}
    one_cell = ("uplink", "downlink", "sidelink") if network.settings.cells.count == 1 else ("sidelink",)
    clustered = {kind for kind, medium in media.items() if medium is not None and medium.turns.clustered}
    exclusive = frozenset(  # directions in which a cell has at most one burst on the air
        kind
        for kind, medium in media.items()
        if kind in one_cell and medium is not None and medium.turns.places == 1 and kind not in clustered
    )
    return verify(ledger, exclusive, frozenset({"sidelink"} & (exclusive | clustered)))


def _privacy(fed: Federation, scenario: Scenario, *, measured: bool) -> dict[str, float | None]:
    """Return epsilon (None if infinite) and delta after the completed rounds; empty if there is no guarantee."""
    bound, algorithm = scenario.privacy(fed.round), scenario.algorithm
    found = {} if bound is None else {"epsilon": bound.epsilon, "delta": bound.delta}
    if isinstance(algorithm, LocalTraining) and not measured:
        found |= algorithm.sample_privacy(fed.round, fed.task.n_samples.tolist())
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _last_evaluation(ledger: Ledger) -> dict[str, float | None]:
    evaluations, table = ledger.evaluations, ledger.device_evaluations
    found: dict[str, float | None] = dict.fromkeys(scores_in(evaluations.columns))
    if len(evaluations):
        last = {name: float(evaluations.column(name)[-1]) for name in found}
        found = {name: value if math.isfinite(value) else None for name, value in last.items()}
    if len(table):
        found |= spread(table.column("accuracy")[table.column("round") == table.column("round")[-1]])
    return found


@contextmanager
def _log_file(folder: RunFolder | None) -> Iterator[None]:
    """Inside the `with` block, write log messages of this thread, but of no other thread, to the run's log file."""
    if folder is None:
        yield
        return
    mine = threading.get_ident()
    handler = _LogFile(folder.path / LOG_FILE, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda record: record.thread == mine)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        with suppress(OSError):
            handler.close()


class _LogFile(logging.FileHandler):
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the name is given by logging)
        """Ignore errors while writing a log message; a full disk is reported when tables are written."""


MOST_TIMES = 41
MOST_PLACES = 200_000
"""Maximum number of sampled times, and maximum product of devices and times, in the table of device positions."""


def scene(scenario: Scenario, network: Network, until_s: float, data_dir: Path | str | None = None) -> Scene:
    """Return the hardware of the devices, and their positions and links at sampled times from 0 to `until_s`."""
    streams, devices = scenario.streams, scenario.devices.count
    count = max(2, min(MOST_TIMES, MOST_PLACES // devices)) if network.changes and until_s > 0 else 1
    times_s = np.linspace(0.0, until_s, count) if count > 1 else np.zeros(1)
    xy_m, cell, snr, up_bps, down_bps, there = map(np.stack, zip(*map(network.picture, times_s.tolist()), strict=True))
    snr_db = np.reshape(linear_to_db(snr.ravel()), snr.shape)
    hard = hardware(scenario, streams)
    speed, idle_w = speeds(scenario, hard.which, streams, data_folder(data_dir)), hard.powers.idle_w.all
    stations_m = scenario.network.cells.positions_m()[:, :2]
    overhead_s, slowdown = hard.overhead_s.all.copy(), scenario.devices.slowdown
    overhead_s[list(slowdown)] *= list(slowdown.values())
    own = speed, idle_w, overhead_s
    return Scene(times_s, xy_m[..., 0], xy_m[..., 1], cell, snr_db, up_bps, down_bps, there, stations_m, *own)


MOST_GROUND = 40_000
"""Approximate maximum number of grid points in the map of path gains."""


def ground(gains: Gains) -> pd.DataFrame:
    """Return a table with the gain in dB from the best base station to points of a grid; large grids are thinned."""
    every = max(1, math.ceil(math.sqrt(gains.gain_db[0].size / MOST_GROUND)))
    best_db = gains.gain_db.max(axis=0)[::every, ::every]
    x_m, y_m = np.meshgrid(gains.x_m[::every], gains.y_m[::every], indexing="ij")
    return pd.DataFrame({"x_m": x_m.ravel(), "y_m": y_m.ravel(), "gain_db": best_db.ravel()})

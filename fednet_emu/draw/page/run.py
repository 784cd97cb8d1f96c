"""Collect the content of the page of one run, or of several overlaid runs, and write the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.activity import air_use, spread
from fednet_emu.analysis.beside import MESSAGES, rounds_beside, transfers_beside
from fednet_emu.analysis.critical_path import Explanation
from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.analysis.quantities import counted, format_seconds
from fednet_emu.analysis.run import RunRecords, distinct_labels
from fednet_emu.analysis.scales import RECORDED, measured
from fednet_emu.analysis.scene import Scene
from fednet_emu.analysis.summary import summary_rows
from fednet_emu.analysis.usage import Usage, spreads, turn_s, words
from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.draw.page.document import TITLES, columns_of, write_page
from fednet_emu.errors import DataError
from fednet_emu.records.folder import read_manifest, versions
from fednet_emu.records.ledger import DATA_SPLIT, DESCRIBED, GROUND, SEVERAL, TABLES, scores_in
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS
from fednet_emu.records.summaries import deliveries

SCRIPTS = (
    "run_story.js", "run_live.js", "run_curves.js", "run_data.js", "timeline_bars.js", "timeline_paint.js",
    "timeline.js", "run_devices.js", "run_air.js", "run_map.js", "run_spreads.js", "run_tables.js", "run.js",
)  # fmt: skip
MOST_TABLE_ROWS = 100_000
"""Maximum number of rows of a table that no figure on the page shows. Longer tables are truncated."""
MOST_DEVICES = 2000
"""Maximum number of devices in the timeline and in the section on data. If there are more, evenly spaced devices are
shown. The timeline sorts devices by number, and the section on data by the similarity of their samples."""
NOT_RECORDED = "The run has not recorded it, with an older version or with data of its own."
BY = {"counts": "most frequent label", "targets": "median target", "sizes": "number of samples"}
DISTURBING = {
    "full-reuse": "disturbing each other", "noma": "decoded one after the other", "slotted-aloha": "colliding",
    "spatial-reuse": "apart from each other", "dcf": "contending", "lora": "colliding", "ethernet": "sharing the port",
}  # fmt: skip
"""Phrases for the interaction of simultaneous senders, by access scheme. The phrase for any other access scheme is
"sharing the band"."""


def write_run_page(run: RunRecords, path: Path, scenario_text: str) -> Path:
    """Write the page of a run to a file and return the path; `scenario_text` is the scenario of the run as YAML.

    Raises:
        DataError: a table of the run is missing or unreadable, or the file cannot be written.
    """
    return write_page(path, run.name, run_document(run, scenario_text), SCRIPTS)


def run_document(run: RunRecords, scenario_text: str) -> dict[str, Any]:
    """Return the content of the page of a run; see `write_run_page` for the arguments."""
    usage = Usage(run)
    scores = scores_in(map(str, usage.evaluations))
    edges_s, uses = air_use(usage.transfers, usage.simulated_s)
    return {
        "name": run.name,
        "words": words(usage),
        "facts": _facts(run),
        "versions": _versions(run),
        "scenario": scenario_text,
        "devices": usage.devices,
        "simulated_s": usage.simulated_s,
        "kinds": KINDS,
        "reasons": REASONS,
        "curves": {
            "scores": [name for name in scores if usage.evaluations[name].notna().any()],
            "values": _columns(usage.evaluations),
        },
        "rounds": _columns(usage.rounds),
        "live": _live(run),
        "path": _path(run),
        "data": _data_split(run),
        "timeline": timeline(usage),
        "split": usage.split,
        "energy": {**usage.energy_j, **_server_energy(usage)},
        "device": _device_numbers(usage),
        "air": {
            "edges_s": edges_s,
            "several": {kind: _several(run.settings, kind) for kind in KINDS},
            "uses": [
                {"kind": use.kind, "cell": use.cell, "one": _single(use.one), "several": _single(use.several)}
                for use in uses
            ],
        },
        "scene": _scene(usage.scene),
        "ground": _ground(run),
        "spreads": spreads(usage),
        "losses": _losses(usage),
        "tables": _tables(run),
    }


def _path(run: RunRecords) -> dict[str, Any] | None:
    try:
        path = Explanation.of(run)
    except DataError:
        return None
    return {"words": path.words, "devices": path.device_texts, "kinds": _columns(path.kinds)}


def _live(run: RunRecords) -> dict[str, Any] | None:
    if not run.has(MESSAGES):
        return None
    told = {"transfers": _columns(transfers_beside(run)), "rounds": _columns(rounds_beside(run))}
    return {**told, "doubtful": run.summary.get("doubtful") or ""}


def _facts(run: RunRecords) -> list[tuple[str, str]]:
    digest = str(run.summary.get("event_digest", ""))
    return [(title, digest if title == "event digest" else value) for title, value in summary_rows(run.summary)]


def _single(numbers: Array) -> Array:
    return numbers.astype(np.float32)


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    return {str(name): _column(values) for name, values in table.items()}


def _column(values: pd.Series[Any]) -> Any:
    if isinstance(values.dtype, pd.CategoricalDtype) or values.dtype.kind not in "biuf":
        return [None if unknown else str(value) for value, unknown in zip(values, values.isna(), strict=True)]
    return values


def _server_energy(usage: Usage) -> Mapping[str, float]:
    sent, whole_j = usage.transfers, usage.run.summary.get("station_j")
    return {"stations": float(sent.loc[sent["sender"] < 0, "energy_j"].sum()) if whole_j is None else whole_j}


def _device_numbers(usage: Usage) -> dict[str, Any]:
    sent, scene = usage.transfers, usage.scene
    ups = sent[sent["direction"] == "uplink"]
    told = {
        "lost_s": usage.lost_s,
        "turn_s": turn_s(usage),
        "computations": usage.per_device(usage.computes["device"]),
        "uplinks": usage.per_device(ups["sender"]),
        "delivered": usage.per_device(ups["sender"][ups["loss_reason"] == ""]),
    }
    if scene is not None:
        station_m = scene.stations_m[scene.cell]
        distance_m = np.hypot(scene.x_m - station_m[..., 0], scene.y_m - station_m[..., 1]).mean(axis=0)
        told |= {"speed_flop_per_s": scene.speed_flop_per_s, "distance_m": distance_m, "cell": scene.cell[0]}
    return told


def _scene(scene: Scene | None) -> dict[str, Any]:
    """Return positions (in cm), cells, availability and rates of devices, as flat arrays over times and devices."""
    if scene is None:
        return {"missing": NOT_RECORDED}
    whole = {"x_cm": scene.x_m, "y_cm": scene.y_m}
    rates = {"uplink_bps": scene.uplink_bps, "downlink_bps": scene.downlink_bps, "snr_db": scene.snr_db}
    return {
        "times_s": scene.times_s,
        **{name: np.rint(100 * metres).astype(np.int64).ravel() for name, metres in whole.items()},
        "cell": scene.cell.ravel(),
        "there": scene.there.astype(np.uint8).ravel(),
        **{name: _single(np.where(np.isfinite(rate), rate, np.nan)).ravel() for name, rate in rates.items()},
        "stations": scene.stations_m.tolist(),
    }


def _ground(run: RunRecords) -> dict[str, Any] | None:
    if not run.has(GROUND):
        return None
    grid = run.table(GROUND).pivot(index="y_m", columns="x_m", values="gain_db")
    gain_db = grid.to_numpy(np.float64)
    rows = [_single(row) for row in np.where(np.isfinite(gain_db), gain_db, np.nan)]
    return {"x_m": grid.columns.to_numpy(np.float64), "y_m": grid.index.to_numpy(np.float64), "gain_db": rows}


def _data_split(run: RunRecords) -> dict[str, Any]:
    """Return the number of samples, labels and targets of each device. Devices with similar samples are adjacent."""
    if not run.has(DATA_SPLIT):
        return {"missing": NOT_RECORDED}
    split = DataSplit.of(run)
    order = split.train.order()
    chosen = np.array(spread(order.tolist(), MOST_DEVICES))
    parts = {"train": split.train, "test": split.test}
    return {
        "devices": chosen,
        "of": len(order),
        "by": next(words for name, words in BY.items() if getattr(split.train, name) is not None),
        "parts": {name: _part(part, chosen) for name, part in parts.items() if part.sizes.any()},
    }


def _part(part: Part, devices: IntArray) -> dict[str, Any]:
    told: dict[str, Any] = {"sizes": part.sizes[devices], "all": int(part.sizes.sum())}
    if part.counts is not None:
        told["counts"] = list(part.counts[:, devices])
    if part.targets is not None:
        told["targets"] = list(part.targets[:, devices])
    return told


def _several(scenario: Mapping[str, Any], kind: str) -> str:
    band = scenario.get("network", {}).get(kind) or {}
    access = band.get("access") if isinstance(band, Mapping) else None
    return DISTURBING.get(access.get("kind", "") if isinstance(access, Mapping) else "", "sharing the band")


def _losses(usage: Usage) -> list[dict[str, Any]]:
    """Return the number of deliveries and their bits for each direction and reason of loss, most frequent first.

    A transfer to several devices counts as one delivery for each device. The reason is empty if a delivery succeeded.
    """
    heard = usage.receptions[usage.receptions["receiver"] >= 0]
    each = deliveries(usage.transfers, heard).astype({"direction": str, "loss_reason": str})
    counts = each.groupby(["direction", "loss_reason"])["size_bit"].agg(["size", "sum"]).reset_index()
    counts = counts.sort_values("size", ascending=False)
    return [
        {"kind": kind, "lost": lost, "count": int(count), "bit": float(bit)}
        for kind, lost, count, bit in counts.itertuples(index=False, name=None)
    ]


def _tables(run: RunRecords) -> dict[str, Any]:
    told = {}
    for name in run.names():
        if name in ("transfers", "receptions", "computes", *DESCRIBED):
            continue
        whole = run.table(name)
        if len(whole) and len(whole.columns):
            told[name] = {"rows": len(whole), "own": name not in TABLES, "values": _columns(whole[:MOST_TABLE_ROWS])}
    return told


def _versions(run: RunRecords) -> dict[str, Any]:
    manifest = (read_manifest(run.folder) if run.folder is not None else None) or {"versions": versions()}
    return {"packages": manifest["versions"], "host": manifest.get("host", {}), "written": manifest.get("written", "")}


# ---- timeline --------------------------------------------------------------------------------------------------------

MOST_ROWS = 2_500_000
"""Maximum total number of transfers, receptions and computations on a page."""
EXACT_ROWS = 200_000
"""Maximum number of transfers for which a page has times in nanoseconds and includes energies. If there are more
transfers, times are in microseconds, and energies are omitted."""


def timeline(usage: Usage) -> dict[str, Any]:
    """Return the transfers, receptions and computations for the page of a run, and notes on omitted records.

    Times are integers in units of `quantum_s`, which is part of the result. The duration of a transfer that was never
    on the air is -1.
    """
    notes, devices = [], np.arange(usage.devices)
    if usage.devices > MOST_DEVICES:
        devices = np.array(spread(devices.tolist(), MOST_DEVICES))
        notes.append(f"Rows are those of {MOST_DEVICES} of {usage.devices} devices, evenly spread by number.")
    sent, heard, made = _of(usage, devices)
    until_s = _until_s(sent, heard, made)
    if until_s < usage.simulated_s:
        sent, made = sent[sent["requested_s"] <= until_s], made[made["started_s"] <= until_s]
        heard = heard[heard["transfer"].isin(sent["transfer"])]
        notes.append(
            f"Bars end at {format_seconds(until_s)}: more than {MOST_ROWS} would not fit into a page. "
            "`fednet trace` has them all."
        )
    exact = len(sent) <= EXACT_ROWS
    if not exact:
        notes.append("Times of single transfers are rounded to microseconds, and their energies are left out.")
    unit_s = 1e-9 if exact else 1e-6
    energy = {"energy_j": sent["energy_j"] + sent["rx_energy_j"]} if exact else {}
    return {
        "quantum_s": unit_s,
        "devices": devices,
        "notes": notes,
        "transfers": {**_transfers(sent, unit_s), **energy},
        "receptions": {
            "transfer": np.searchsorted(sent["transfer"].to_numpy(), heard["transfer"].to_numpy()),
            "receiver": heard["receiver"],
            "lost": _codes(heard["loss_reason"], REASONS),
        },
        "computes": {
            "device": made["device"],
            "started": _whole(made["started_s"], unit_s),
            "took": _whole(made["ended_s"], unit_s) - _whole(made["started_s"], unit_s),
            "stopped": _codes(made["stopped"], REASONS),
        },
    }


def _transfers(sent: pd.DataFrame, unit_s: float) -> Mapping[str, Any]:
    requested, ended = _whole(sent["requested_s"], unit_s), _whole(sent["ended_s"], unit_s)
    never = sent["started_s"].isna().to_numpy()
    started = np.where(never, ended, _whole(sent["started_s"].fillna(0.0), unit_s))
    return {
        "number": sent["transfer"],
        "kind": _codes(sent["direction"], KINDS),
        "sender": sent["sender"],
        "receiver": sent["receiver"],
        "receivers": sent["receivers"],
        "requested": requested,
        "waited": started - requested,
        "took": np.where(never, -1, ended - started),
        "size_bit": sent["size_bit"].astype(np.int64),
        "unsent_bit": np.rint((sent["size_bit"] - sent["transmitted_bit"]).fillna(0.0).to_numpy()).astype(np.int64),
        "lost": _codes(sent["loss_reason"], REASONS),
        "cell": sent["cell"],
    }


def _of(usage: Usage, devices: IntArray) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    sent, heard, made = usage.transfers, usage.receptions, usage.computes
    heard, made = heard[heard["receiver"] >= 0], made[made["device"] >= 0]
    if len(devices) == usage.devices:
        return sent, heard, made
    heard = heard[_among(heard["receiver"], devices)]
    several = (sent["receiver"] == SEVERAL) & sent["transfer"].isin(heard["transfer"])
    sent = sent[_among(sent["sender"], devices) | _among(sent["receiver"], devices) | several]
    return sent, heard, made[_among(made["device"], devices)]


def _among(column: pd.Series[int], devices: IntArray) -> Mask:
    return np.asarray(np.isin(column.to_numpy(), devices))


def _until_s(sent: pd.DataFrame, heard: pd.DataFrame, made: pd.DataFrame) -> float:
    """Return the simulated time in s up to which the records fit into the page; infinity if all records fit."""
    if len(sent) + len(heard) + len(made) <= MOST_ROWS:
        return np.inf
    heard_s = sent.set_index("transfer")["requested_s"].reindex(heard["transfer"])
    begins_s = np.concatenate([sent["requested_s"], heard_s, made["started_s"]])
    return float(np.partition(begins_s, MOST_ROWS)[MOST_ROWS])


def _whole(times_s: pd.Series[float], unit_s: float) -> IntArray:
    return np.asarray(np.rint(times_s.to_numpy(np.float64) / unit_s), np.int64)


def _codes(words: pd.Series[str], of: Sequence[str]) -> IntArray:
    return np.asarray(pd.Categorical(words, categories=list(of)).codes, np.int64)


# ---- several runs ----------------------------------------------------------------------------------------------------

SHOWN = ("seed", "status", *TITLES, "event_digest")
"""Entries of a run's summary that the page shows. Entries that are not in the summary are omitted."""
TITLE_LENGTH = 60


def write_overlay_page(runs: Sequence[RunRecords], path: Path) -> Path:
    """Write the page of several overlaid runs to a file and return the path of the file.

    Raises:
        DataError: the evaluations of a run are missing or unreadable, or the file cannot be written.
    """
    names = ", ".join(dict.fromkeys(run.name for run in runs))
    title = names if len(names) <= TITLE_LENGTH else counted(len(runs), "run")
    return write_page(path, title, overlay_document(runs), ("lines.js", "overlay.js"))


def overlay_document(runs: Sequence[RunRecords]) -> dict[str, Any]:
    """Return the content of the page of several runs. Values are in s, bits and J, and unknown values are NaN.

    Raises:
        DataError: the evaluations of a run are missing or unreadable.
    """
    labels = distinct_labels(runs)
    tables = [run.table("evaluations") for run in runs]
    metrics = measured(tables)
    rows = pd.DataFrame([{"Run": label, **_summary(run)} for label, run in zip(labels, runs, strict=True)])
    return {
        "labels": labels,
        "metrics": metrics,
        "costs": {name: cost.title for name, cost in RECORDED.items()},
        "curves": [
            {
                "costs": {name: cost.of(table).to_numpy(np.float64) for name, cost in RECORDED.items()},
                "metrics": {name: table[name].to_numpy(np.float64) for name in metrics if name in table},
            }
            for table in tables
        ],
        "summaries": columns_of(rows.dropna(axis="columns", how="all")),
    }


def _summary(run: RunRecords) -> dict[str, Any]:
    known = {name: value for name, value in run.summary.items() if value is not None}
    if all(f"{kind}_bit" in known for kind in KINDS):
        known["total_bit"] = run.total_bit
    return {name: known[name] for name in SHOWN if name in known}

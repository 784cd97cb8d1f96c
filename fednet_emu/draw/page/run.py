"""Collect the content of the page of one run, and write the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.activity import air_use
from fednet_emu.analysis.beside import MESSAGES, rounds_beside, transfers_beside
from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.analysis.explanation import Explanation
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.scene import Scene
from fednet_emu.analysis.summary import summary_rows
from fednet_emu.analysis.usage import Usage, spreads, turn_s, words
from fednet_emu.arrays import Array, IntArray
from fednet_emu.draw.page.document import write_page
from fednet_emu.draw.page.timeline import timeline
from fednet_emu.errors import DataError
from fednet_emu.records.folder.manifest import read_manifest, versions
from fednet_emu.records.ledger import DATA_SPLIT, DESCRIBED, GROUND, SEVERAL, TABLES, scores_in
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS

SCRIPTS = (
    "run_story.js", "run_live.js", "run_curves.js", "run_data.js", "timeline_bars.js", "timeline_paint.js",
    "timeline.js", "run_devices.js", "run_air.js", "run_map.js", "run_spreads.js", "run_tables.js", "run.js",
)  # fmt: skip
MOST_TABLE_ROWS = 100_000
"""Maximum number of rows of a table that no figure on the page shows. Longer tables are truncated."""
MOST_DEVICES = 2000
"""Maximum number of devices in the section on data. If there are more devices, they are sorted by the similarity of
their samples, and evenly spaced devices of this order are shown."""
NOT_RECORDED = "The run has not recorded it, with an older version or with data of its own."
BY = {"counts": "most frequent label", "targets": "median target", "sizes": "number of samples"}
DISTURBING = {
    "full-reuse": "disturbing each other", "noma": "decoded one after the other", "slotted-aloha": "colliding",
    "spatial-reuse": "apart from each other", "dcf": "contending", "lora": "colliding", "ethernet": "sharing the port",
}  # fmt: skip
"""Words for the interaction of simultaneous senders with each access scheme. Other schemes have "sharing the band"."""


def write_run_page(run: RunRecords, path: Path, scenario_text: str) -> Path:
    """Write the page of a run to a file and return the file.

    Args:
        run: the run.
        path: the file.
        scenario_text: the scenario of the run, as YAML.

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
    """Return the critical paths of the rounds, in words and as time per kind of part; None if there are no rounds."""
    try:
        path = Explanation.of(run)
    except DataError:
        return None
    return {"words": path.words, "devices": path.device_texts, "kinds": _columns(path.kinds)}


def _live(run: RunRecords) -> dict[str, Any] | None:
    """Return the comparison of a live run with its prediction, or None if the run is not a live run."""
    if not run.has(MESSAGES):
        return None
    told = {"transfers": _columns(transfers_beside(run)), "rounds": _columns(rounds_beside(run))}
    return {**told, "doubtful": run.summary.get("doubtful") or ""}


def _facts(run: RunRecords) -> list[tuple[str, str]]:
    """Return the rows of the summary, with the event digest in full length."""
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
    """Return the quantities of all devices, as one array [devices] for each quantity."""
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
    """Return positions (in cm), cells, availability and rates of all devices at all recorded times, as flat arrays."""
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
    """Return the map of channel gains in dB, one row for each y coordinate, or None if the run recorded no map."""
    if not run.has(GROUND):
        return None
    grid = run.table(GROUND).pivot(index="y_m", columns="x_m", values="gain_db")
    gain_db = grid.to_numpy(np.float64)
    rows = [_single(row) for row in np.where(np.isfinite(gain_db), gain_db, np.nan)]
    return {"x_m": grid.columns.to_numpy(np.float64), "y_m": grid.index.to_numpy(np.float64), "gain_db": rows}


def _data_split(run: RunRecords) -> dict[str, Any]:
    """Return the distribution of samples over devices. Devices with similar samples are adjacent."""
    if not run.has(DATA_SPLIT):
        return {"missing": NOT_RECORDED}
    split = DataSplit.of(run)
    order = split.train.order()
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), MOST_DEVICES)).round().astype(np.int64))]
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
    """Count deliveries by direction and reason of loss, most frequent first. The reason of arrived deliveries is empty.

    A transfer to several devices counts as one delivery for each device.
    """
    sent = usage.transfers
    heard = usage.receptions[usage.receptions["receiver"] >= 0]
    heard = heard.merge(sent[["transfer", "direction", "size_bit"]], on="transfer")
    alone = sent[sent["receiver"] != SEVERAL]
    columns = ["direction", "loss_reason", "size_bit"]
    each = pd.concat([part[columns].astype({"direction": str, "loss_reason": str}) for part in (alone, heard)])
    counts = each.groupby(["direction", "loss_reason"])["size_bit"].agg(["size", "sum"]).reset_index()
    counts = counts.sort_values("size", ascending=False)
    return [
        {"kind": kind, "lost": lost, "count": int(count), "bit": float(bit)}
        for kind, lost, count, bit in counts.itertuples(index=False, name=None)
    ]


def _tables(run: RunRecords) -> dict[str, Any]:
    """Return all tables that no figure on the page shows, each with its number of rows before truncation."""
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

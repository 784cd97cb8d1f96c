"""The tables of a study: all evaluations of all finished runs, and one row for each run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.scales import Measure, first_reached, with_total_bits
from fednet_emu.analysis.settings import data_set_names
from fednet_emu.analysis.study import DATA_SET, DEVICE_COUNT
from fednet_emu.files.writing import write_table
from fednet_emu.records.ledger import SCORES, Ledger
from fednet_emu.study.file import Target
from fednet_emu.study.runs import StudyRun

TABLES = ("study.parquet", "cells.parquet")
"""The tables that figures and comparisons read; the host times beside them differ from sweep to sweep."""
KEYS = ("seed", "cell")
"""Columns that name a run, beside those of the axes."""
TOTALS = ("rounds", "simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "energy_j")
BACKHAUL = ("backhaul_bit", "backhaul_j")
"""Totals of runs that use a backhaul; its energy is part of `energy_j`, its bits are none of `total_bit`."""


def write_tables(
    folder: Path,
    runs: Sequence[StudyRun],
    finished: Mapping[int, Path],
    failures: Mapping[int, str],
    target: Target | None,
) -> None:
    """Write the tables of a study into its folder.

    These are `study.parquet` with all evaluations, `cells.parquet` with one row for each run, and, separate from them,
    `hosts.parquet` with host times. The rows are in the order of the study, whatever the order in which runs finished:
    `finished` has the run folders, and `failures` the reasons, by the run's position in `runs`.
    """
    summaries: dict[int, dict[str, Any]] = {
        place: json.loads((finished[place] / "summary.json").read_text(encoding="utf-8")) for place in sorted(finished)
    }
    evaluations = _evaluations(runs, [(place, finished[place]) for place in summaries])
    diverged = [runs[place].name for place, summary in summaries.items() if summary["status"] == "diverged"]
    sound = evaluations[~evaluations["cell"].isin(diverged)]
    reached = first_reached(sound, [run.name for run in runs], *aim(target)).reset_index(drop=True)
    data = [run.scenario.data for run in runs]
    names = data_set_names([None if its is None else its.model_dump(mode="json") for its in data])
    rows = [
        {
            **_keys(run),
            **_status(summaries.get(place), failures.get(place)),
            DATA_SET: names[place],
            DEVICE_COUNT: run.scenario.devices.count,
            **_totals(summaries.get(place, {}), run.scenario.evaluation.columns),
        }
        for place, run in enumerate(runs)
    ]
    hosts = [{"cell": runs[place].name, "host_s": summary["host_s"]} for place, summary in summaries.items()]
    write_table(folder / "study.parquet", [evaluations])
    table = pd.DataFrame(rows) if rows else pd.DataFrame(columns=[*KEYS, "status", "reason", DATA_SET, DEVICE_COUNT])
    write_table(folder / "cells.parquet", [pd.concat([table, reached], axis="columns")])
    write_table(folder / "hosts.parquet", [pd.DataFrame(hosts, columns=["cell", "host_s"])])


def _status(summary: Mapping[str, Any] | None, failure: str | None) -> dict[str, str]:
    """Return the columns `status` and `reason` of a run."""
    if summary is not None:
        return {"status": summary["status"], "reason": summary.get("diverged") or ""}
    return {"status": "waiting", "reason": ""} if failure is None else {"status": "failed", "reason": failure}


def aim(target: Target | None) -> tuple[Measure | None, float]:
    """Return the measure of a target and its level; None and NaN without a target."""
    if target is None:
        return None, math.nan
    if target.accuracy is not None:
        return "accuracy", target.accuracy
    return "loss", target.loss or math.nan


def _keys(run: StudyRun) -> dict[str, Any]:
    return {**run.columns, "seed": run.scenario.seed, "cell": run.name}


def _totals(summary: Mapping[str, Any], metrics: Sequence[str]) -> dict[str, float]:
    used = [name for name in BACKHAUL if name in summary]
    found = {
        name: float(math.nan if summary.get(name) is None else summary[name])
        for name in (*TOTALS, *used, *SCORES, *metrics)
    }
    return {**found, "total_bit": found["uplink_bit"] + found["downlink_bit"] + found["sidelink_bit"]}


def _evaluations(runs: Sequence[StudyRun], finished: Sequence[tuple[int, Path]]) -> pd.DataFrame:
    """Return the evaluations of the finished runs as one table, whose first columns are the keys of each run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    none = pa.Table.from_pandas(Ledger().evaluations.frame(), preserve_index=False)
    tables = [pq.ParquetFile(folder / "evaluations.parquet").read(use_threads=False) for _, folder in finished]
    together = pa.concat_tables(tables or [none], promote_options="permissive").replace_schema_metadata()
    rows = np.repeat([place for place, _ in finished], [len(table) for table in tables]).astype(int)
    keys = pd.DataFrame([_keys(run) for run in runs], columns=None if runs else KEYS)
    keys = keys.iloc[rows].reset_index(drop=True)
    return pd.concat([keys, with_total_bits(together.to_pandas())], axis="columns")

"""The tables of a study: all evaluations of all finished cells, and one row for each cell."""

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
"""Columns that name a cell, beside those of the axes."""
TOTALS = ("rounds", "simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "energy_j")
BACKHAUL = ("backhaul_bit", "backhaul_j")
"""Totals of runs that use a backhaul; its energy is part of `energy_j`, its bits are none of `total_bit`."""


def write_tables(
    folder: Path,
    cells: Sequence[StudyRun],
    finished: Mapping[int, Path],
    failures: Mapping[int, str],
    target: Target | None,
) -> None:
    """Write the tables of a study into its folder.

    These are `study.parquet` with all evaluations, `cells.parquet` with one row for each cell, and, separate from them,
    `hosts.parquet` with host times. The rows are in the order of the study, whatever the order in which cells finished.

    Args:
        folder: the folder of the study.
        cells: all cells of the study.
        finished: the run folders of the finished cells, by the cell's position in `cells`.
        failures: the reasons why cells failed, by the cell's position in `cells`.
        target: the target of the study; None for none.
    """
    summaries = {place: _summary(finished[place]) for place in sorted(finished)}
    evaluations = _evaluations(cells, [(place, finished[place]) for place in summaries])
    diverged = [cells[place].name for place, summary in summaries.items() if summary["status"] == "diverged"]
    sound = evaluations[~evaluations["cell"].isin(diverged)]
    reached = first_reached(sound, [cell.name for cell in cells], *aim(target)).reset_index(drop=True)
    data = [cell.scenario.data for cell in cells]
    names = data_set_names([None if its is None else its.model_dump(mode="json") for its in data])
    rows = [
        {
            **_keys(cell),
            **_status(summaries.get(place), failures.get(place)),
            DATA_SET: names[place],
            DEVICE_COUNT: cell.scenario.devices.count,
            **_totals(summaries.get(place, {}), cell.scenario.evaluation.columns),
        }
        for place, cell in enumerate(cells)
    ]
    hosts = [{"cell": cells[place].name, "host_s": summary["host_s"]} for place, summary in summaries.items()]
    write_table(folder / "study.parquet", [evaluations])
    table = pd.DataFrame(rows) if rows else pd.DataFrame(columns=[*KEYS, "status", "reason", DATA_SET, DEVICE_COUNT])
    write_table(folder / "cells.parquet", [pd.concat([table, reached], axis="columns")])
    write_table(folder / "hosts.parquet", [pd.DataFrame(hosts, columns=["cell", "host_s"])])


def _status(summary: Mapping[str, Any] | None, failure: str | None) -> dict[str, str]:
    """Return the columns `status` and `reason` of a cell."""
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


def _keys(cell: StudyRun) -> dict[str, Any]:
    return {**cell.columns, "seed": cell.scenario.seed, "cell": cell.name}


def _totals(summary: Mapping[str, Any], metrics: Sequence[str]) -> dict[str, float]:
    used = [name for name in BACKHAUL if name in summary]
    found = {name: _number(summary.get(name)) for name in (*TOTALS, *used, *SCORES, *metrics)}
    return {**found, "total_bit": found["uplink_bit"] + found["downlink_bit"] + found["sidelink_bit"]}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _summary(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return content


def _evaluations(cells: Sequence[StudyRun], finished: Sequence[tuple[int, Path]]) -> pd.DataFrame:
    """Return the evaluations of the finished cells as one table, whose first columns are the keys of each cell."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    none = pa.Table.from_pandas(Ledger().evaluations.frame(), preserve_index=False)
    tables = [pq.ParquetFile(folder / "evaluations.parquet").read(use_threads=False) for _, folder in finished]
    together = pa.concat_tables(tables or [none], promote_options="permissive").replace_schema_metadata()
    rows = np.repeat([place for place, _ in finished], [len(table) for table in tables]).astype(int)
    keys = pd.DataFrame([_keys(cell) for cell in cells], columns=None if cells else KEYS)
    keys = keys.iloc[rows].reset_index(drop=True)
    return pd.concat([keys, with_total_bits(together.to_pandas())], axis="columns")

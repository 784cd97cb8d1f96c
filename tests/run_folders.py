"""Synthetic run folders: a synchronous algorithm over a shared uplink, played by a dozen lines of arithmetic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

COLUMNS: dict[str, dict[str, str]] = {
    "transfers": {
        "transfer": "int64",
        "direction": "category",
        "sender": "int64",
        "receiver": "int64",
        "receivers": "int64",
        "size_bit": "float64",
        "payload": "int64",
        "requested_s": "float64",
        "started_s": "float64",
        "ended_s": "float64",
        "transmitted_bit": "float64",
        "delivered_bit": "float64",
        "lost_bit": "float64",
        "loss_reason": "category",
        "energy_j": "float64",
    },
    "receptions": {"transfer": "int64", "receiver": "int64", "loss_reason": "category"},
    "computes": {
        "device": "int64",
        "started_s": "float64",
        "ended_s": "float64",
        "flop": "float64",
        "energy_j": "float64",
        "input": "int64",
        "result": "int64",
        "stopped": "category",
    },
    "evaluations": {
        "round": "int64",
        "simulated_s": "float64",
        "uplink_bit": "float64",
        "downlink_bit": "float64",
        "sidelink_bit": "float64",
        "energy_j": "float64",
        "loss": "float64",
        "accuracy": "float64",
        "worst_accuracy": "float64",
        "std_accuracy": "float64",
    },
    "rounds": {"round": "int64", "started_s": "float64", "ended_s": "float64", "invited": "int64", "arrived": "int64"},
}


def frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A table with all its columns and types; what a row leaves out is 0, NaN or an empty text."""
    empty = {"int64": 0, "float64": np.nan, "category": ""}
    columns = COLUMNS[table]
    content = {name: [row.get(name, empty[kind]) for row in rows] for name, kind in columns.items()}
    return pd.DataFrame(content).astype(columns)


def write_run(folder: Path, tables: dict[str, list[dict[str, Any]]], **summary: Any) -> Path:
    """Write a run folder with the given rows; tables that are not given are empty."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COLUMNS:
        frame(name, tables.get(name, [])).to_parquet(folder / f"{name}.parquet")
    (folder / "summary.json").write_text(json.dumps({"name": folder.name, "seed": 1, **summary}), encoding="utf-8")
    (folder / "scenario.yaml").write_text(
        "name: story\ndevices:\n  count: 10\nnetwork:\n  bandwidth_hz: 1e6\n", encoding="utf-8"
    )
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    return folder


class Play:
    """A synchronous algorithm: broadcast, compute, then uplinks one after the other; some are lost."""

    def __init__(self, devices: int, cohort: int, rounds: int, seed: int, loss: float, regression: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in COLUMNS}
        self.pace = self.rng.lognormal(0.0, 0.4, devices)
        self.loss, self.regression, self.cohort = loss, regression, cohort
        self.now_s = self.uplink_bit = self.downlink_bit = 0.0
        for number in range(rounds):
            self.play_round(number)

    def play_round(self, number: int) -> None:
        """One round: everyone invited hears the model, computes and sends."""
        started_s = self.now_s
        invited = self.rng.choice(len(self.pace), self.cohort, replace=False)
        heard_s = started_s + 0.4
        broadcast = {"sender": -1, "receiver": -2, "receivers": self.cohort}
        transfer = self.add_transfer(
            direction="downlink", requested_s=started_s, started_s=started_s, ended_s=heard_s, **broadcast
        )
        self.downlink_bit += 6e5
        free_s, arrived = heard_s, 0
        for device in sorted(invited, key=lambda i: self.pace[i]):
            missed = bool(self.rng.random() < self.loss / 2)
            reception = {"transfer": transfer, "receiver": int(device), "loss_reason": "outage" if missed else ""}
            self.tables["receptions"].append(reception)
            if missed:
                continue
            ready_s = heard_s + self.pace[device] * self.rng.uniform(0.9, 1.1)
            self.tables["computes"].append({"device": int(device), "started_s": heard_s, "ended_s": ready_s})
            starts_s = max(ready_s, free_s)
            free_s = starts_s + self.rng.exponential(1.5 / self.cohort)
            lost = "outage" if self.rng.random() < self.loss else ""
            times = {"requested_s": ready_s, "started_s": starts_s, "ended_s": free_s}
            self.add_transfer(
                direction="uplink", sender=int(device), receiver=-1, receivers=1, loss_reason=lost, **times
            )
            self.uplink_bit += 6e5
            arrived += not lost
        self.now_s = free_s
        ends = {"round": number, "ended_s": free_s}
        self.tables["rounds"].append({"started_s": started_s, "invited": self.cohort, "arrived": arrived, **ends})
        self.evaluate(number)

    def add_transfer(self, **row: Any) -> int:
        """Add a row to the transfers and return its number."""
        self.tables["transfers"].append({"transfer": len(self.tables["transfers"]), "size_bit": 6e5, **row})
        return len(self.tables["transfers"]) - 1

    def evaluate(self, number: int) -> None:
        """Evaluate a model that improves with every round."""
        accuracy = 0.92 - 0.8 * np.exp(-number / (10 * self.pace[0])) + self.rng.normal(0, 0.008)
        self.tables["evaluations"].append(
            {
                "round": number,
                "simulated_s": self.now_s,
                "uplink_bit": self.uplink_bit,
                "downlink_bit": self.downlink_bit,
                "sidelink_bit": 0.0,
                "energy_j": self.uplink_bit * 2e-6,
                "loss": 2.3 * np.exp(-number / 6) + 0.004,
                "accuracy": np.nan if self.regression else accuracy,
            }
        )


@pytest.fixture(name="make_frame", scope="session")
def _make_frame() -> Callable[..., pd.DataFrame]:
    return frame


@pytest.fixture(name="write_run")
def _write_run() -> Callable[..., Path]:
    return write_run


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Write the folder of a synthetic run and return its path."""

    def make(
        name: str,
        *,
        devices: int = 10,
        cohort: int = 6,
        rounds: int = 30,
        seed: int = 1,
        loss: float = 0.1,
        regression: bool = False,
    ) -> Path:
        play = Play(devices, cohort, rounds, seed, loss, regression)
        return write_run(tmp_path / name, play.tables, seed=seed)

    return make

"""Made-up studies: runs that gain accuracy at their own pace and price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.scales import first_reached
from fednet_emu.analysis.study import StudyRecords


def raced(runs: dict[Any, list[dict[str, Any]]], axis: str = "method", target: float = 0.9) -> StudyRecords:
    """A study with one axis; each run says at which second it reaches accuracy 0.9, if ever, and when it ends.

    Args:
        runs: for each level the runs of its seeds, with `at` (s, None: never), `until` (s), `watt` (J/s), `bps` (bit/s)
            and `status`; evaluations are a second apart, a round takes two.
        axis: the name of the axis.
        target: the target of the study.
    """
    tables, found = [], []
    for level, of_level in runs.items():
        for seed, run in enumerate(of_level):
            steps = np.arange(int(run.get("until", 20)) + 1)
            at = run.get("at")
            keys = {axis: level, "seed": run.get("seed", seed), "run": f"{level}-{seed}"}
            rows = pd.DataFrame(
                {
                    **keys,
                    "round": steps // 2,
                    "simulated_s": steps.astype(float),
                    "uplink_bit": steps * run.get("bps", 1e6),
                    "downlink_bit": 0.0,
                    "sidelink_bit": 0.0,
                    "total_bit": steps * run.get("bps", 1e6),
                    "energy_j": steps * run.get("watt", 1.0),
                    "loss": 1.0,
                    "accuracy": np.where(steps >= (np.inf if at is None else at), 0.9, 0.5 + steps / 1000),
                }
            )
            tables.append(rows)
            found.append(
                {
                    **keys,
                    "status": run.get("status", "done"),
                    **rows.iloc[-1][["simulated_s", "total_bit", "energy_j", "loss", "accuracy"]],
                    **first_reached(rows, [keys["run"]], "accuracy", target).iloc[0],
                }
            )
    table, known = pd.concat(tables, ignore_index=True), pd.DataFrame(found)
    return StudyRecords("race", {axis: list(runs)}, {"accuracy": target}, table, known.assign(device_count=10), ())


@pytest.fixture(name="raced", scope="session")
def _raced() -> Callable[..., StudyRecords]:
    return raced

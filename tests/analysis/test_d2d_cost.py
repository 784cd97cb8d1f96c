"""Claims about what device-to-device links are worth, on a made-up study of two methods and two seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from d2d_cost import multiples, spent, with_transmissions

from fednet_emu.analysis.study import StudyRecords

AXES = {"method": ["aware", "fedavg"], "data": ["a"]}
BASELINE = {"method": "fedavg"}


@pytest.fixture
def view(tmp_path: Path) -> StudyRecords:
    """Per round `aware` uploads 2 and pushes 10, `fedavg` uploads 5; per round accuracy grows by 0.2 and 0.1.

    With seed 1 `fedavg` needs 3 rounds for what takes it 2 with seed 0.
    """
    tables = []
    for method, gain, uploads, pushes in (("aware", 0.2, 2, 10), ("fedavg", 0.1, 5, 0)):
        for seed in (0, 1):
            cell = f"{method}{seed}"
            (tmp_path / "cells" / cell).mkdir(parents=True)
            pd.DataFrame({"invited": [uploads] * 4}).to_parquet(tmp_path / "cells" / cell / "rounds.parquet")
            if pushes:
                counted = pd.DataFrame({"d2d_senders": [pushes] * 4})
                counted.to_parquet(tmp_path / "cells" / cell / "connectivity.parquet")
            rounds = np.arange(5)
            late = seed if method == "fedavg" else 0
            spending = {"total_bit": rounds * 8, "energy_j": rounds * 1.0, "simulated_s": rounds * 1.0}
            accuracy = gain * np.maximum(rounds - late, 0)
            table = pd.DataFrame({"round": rounds, "accuracy": accuracy, **spending})
            tables.append(table.assign(method=method, data="a", seed=seed, cell=cell))
    study = StudyRecords("story", AXES, {}, pd.concat(tables, ignore_index=True), pd.DataFrame(), ())
    return with_transmissions(study, tmp_path)


def test_uploads_and_pushes_are_counted_until_the_target(view: StudyRecords) -> None:
    """Accuracy 0.2 takes one round of 2 uploads and 10 pushes, or two rounds (three with seed 1) of 5 uploads."""
    table = spent(view, BASELINE, 0.2)

    assert table["uploads"].tolist() == [2, 2, 10, 15]
    assert table["pushes"].tolist() == [10, 10, 0, 0]


def test_the_target_may_be_where_the_baseline_ends(view: StudyRecords) -> None:
    """FedAvg ends at 0.4 or, with seed 1, at 0.3; the other method needs two rounds for either."""
    table = spent(view, BASELINE, None)

    assert table["target_accuracy"].tolist() == pytest.approx([0.4, 0.3, 0.4, 0.3])
    assert table["round"].tolist() == [2, 2, 4, 4]


def test_costs_are_multiples_of_the_baseline_with_the_same_seed(view: StudyRecords) -> None:
    """At half an upload a push, 2 + 5 is 0.7 of 10 uploads and 7 / 15 of 15; Student's interval of two."""
    table = multiples(spent(view, BASELINE, 0.2), [*AXES], BASELINE, prices=(0.5,))
    row = table[(table["method"] == "aware") & (table["cost"] == "cost_0.5")].iloc[0]

    mean, half = (0.7 + 7 / 15) / 2, (0.7 - 7 / 15) / 2
    assert row["mean"] == pytest.approx(mean)
    assert row["high"] - mean == pytest.approx(12.7062 * half, rel=1e-5)  # t of one degree of freedom


def test_runs_that_never_got_there_are_not_compared(view: StudyRecords) -> None:
    """FedAvg reaches 0.35 with seed 0 alone: one ratio is left, and it has no interval."""
    table = multiples(spent(view, BASELINE, 0.35), [*AXES], BASELINE)
    row = table[(table["method"] == "aware") & (table["cost"] == "cost_0")].iloc[0]

    assert row["seeds"] == 1
    assert row["mean"] == pytest.approx(4 / 20)
    assert np.isnan(row["low"])

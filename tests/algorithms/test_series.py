"""What algorithms record of their own: every series has its columns, and no value is missing in any row."""

from __future__ import annotations

import pytest

from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.scenario.algorithms import brings_own_learning
from fednet_emu.testing import run_small

WORK = "lr: 0.003, batch_size: null"
SERIES = {
    "cfl": (
        ("algorithm={kind: cfl, cohort: 4, local_steps: 1, stationary: 1e-9, split: 1e9, " + WORK + "}",),
        {"updates": "round simulated_s first members mean longest"},
    ),
    "frank-wolfe-clustering": (
        ("algorithm={kind: frank-wolfe-clustering, cohort: 4, local_steps: 1, alpha: 1, dual_lr: 0.01, " + WORK + "}",),
        {"weights": "round simulated_s i j weight", "convergence": "round simulated_s gap moved gradient_norm"},
    ),
    "cyclic-fedavg": (
        ("algorithm={kind: cyclic-fedavg, local_steps: 1, structure: {kind: scenario-1, groups: 2}, " + WORK + "}",),
        {"cyclic_turns": "round cycle group groups structure access started_s ended_s"},
    ),
    "aspire": (
        ("algorithm={kind: aspire, planes: fixed, active: null, lr: 0.1, gap_every: 1}",),
        {
            "aspire": "step simulated_s active arrived planes displaced bits_paper bits_actual",
            "activations": "step device arrived_s staleness",
            "stationarity": "step simulated_s squared_gap",
        },
    ),
}
"""For each algorithm its settings, and the columns of its series."""

COUNTS = {"round", "step", "cycle"}
"""Columns that number the rounds, steps or cycles of a run."""


@pytest.mark.parametrize("kind", SERIES)
def test_series_have_their_columns(kind: str) -> None:
    """As documented, in every row, with a value each; rounds and steps are counted, and time does not run back."""
    settings, expected = SERIES[kind]
    fed = run_small(*settings, "stop.rounds=4")

    for name, columns in expected.items():
        rows = fed.ledger.series[name]
        assert rows
        assert all(set(row) == set(columns.split()) for row in rows)
        assert all(value is not None for row in rows for value in row.values())
        for column in COUNTS & set(columns.split()):
            numbers = [row[column] for row in rows]
            assert numbers == sorted(numbers)
            assert set(numbers) <= set(range(5))


def test_who_brings_learning_of_its_own() -> None:
    """Flower does, by name or by settings; ours do not, nor does what is not known or not named."""
    assert [brings_own_learning(given) for given in ("flower", {"kind": "flower", "app": "x"})] == [True, True]
    ours = ("fedavg", {"kind": "fedavg"}, FedAvg(cohort=1, lr=0.1, batch_size=None, local_steps=1))
    assert [brings_own_learning(given) for given in (*ours, "no-such-kind", {}, None)] == [False] * 6

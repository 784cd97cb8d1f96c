"""Claims about opening run folders."""

from __future__ import annotations

import pandas as pd
import pytest

from fednet_emu.analysis.activity import COMPUTE_COLUMNS, RECEPTION_COLUMNS, TRANSFER_COLUMNS
from fednet_emu.analysis.run import RunRecords, distinct_labels
from fednet_emu.draw.figures.curves import EVALUATION_COLUMNS, ROUND_COLUMNS
from fednet_emu.errors import DataError
from fednet_emu.records.ledger import Ledger


def test_a_run_gives_its_summary_scenario_and_tables(tmp_path, write_run):
    """A run folder opens into its summary, its scenario (YAML 1.2: 1e6 is a number), and tables by name."""
    folder = write_run(tmp_path / "a", {"rounds": [{"round": 3, "started_s": 1.0, "ended_s": 2.5}]}, accuracy=0.9)
    run = RunRecords.opened(folder)
    assert run.name == "a"
    assert run.summary["accuracy"] == 0.9
    assert run.settings["network"]["bandwidth_hz"] == 1_000_000.0
    assert run.table("rounds", ["ended_s", "round"]).to_dict("records") == [{"ended_s": 2.5, "round": 3}]
    assert RunRecords.opened(folder, name="mine").name == "mine"


def test_the_label_is_the_folder_when_the_run_has_no_name(tmp_path, write_run):
    """A run without a name is labelled by its folder."""
    assert RunRecords.opened(write_run(tmp_path / "seed-3", {}, name=None)).name == "seed-3"


def test_equal_labels_are_told_apart_by_seed_then_by_folder(tmp_path, write_run):
    """Runs of one scenario are told apart in a legend, and a label that is already unique stays short."""
    one, two, other = (
        RunRecords.opened(write_run(tmp_path / folder, {}, name=name, seed=seed))
        for folder, name, seed in (("x", "fedavg", 1), ("y", "fedavg", 2), ("z", "cyclic", 1))
    )
    again = RunRecords.opened(write_run(tmp_path / "w", {}, name="cyclic", seed=1))
    assert distinct_labels([one, two, other]) == ["fedavg, seed 1", "fedavg, seed 2", "cyclic"]
    assert distinct_labels([one, other, again]) == ["fedavg", "cyclic, z", "cyclic, w"]


@pytest.mark.parametrize("missing", ["summary.json", "scenario.yaml"])
def test_a_run_that_died_is_recognised(tmp_path, write_run, missing):
    """A folder without its summary or scenario is an error that names the file and says what to do."""
    folder = write_run(tmp_path / "a", {})
    (folder / missing).unlink()
    with pytest.raises(DataError) as caught:
        RunRecords.opened(folder)
    assert str(caught.value) == (
        f"{folder / missing}: no such file in this run folder; "
        "finish the run that writes it, or run it again with --force"
    )


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("summary.json", "{", "unreadable, got 'Expecting property name"),
        ("summary.json", "[1]", "expected a mapping of names to values, got list"),
        ("scenario.yaml", "a: [", "unreadable, got 'while parsing"),
        ("scenario.yaml", "", "expected a mapping of names to values, got NoneType"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, write_run, name, content, problem):
    """A file that cannot be parsed is an error that begins with its path and quotes the parser."""
    folder = write_run(tmp_path / "a", {})
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        RunRecords.opened(folder)
    assert str(caught.value).startswith(f"{folder / name}: {problem}")


def test_tables_that_cannot_be_read_are_named(tmp_path, write_run):
    """A missing table, a missing column and a file that is no Parquet are errors that name the file."""
    run = RunRecords.opened(write_run(tmp_path / "a", {}))
    (run.folder / "computes.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"staleness\.parquet: no such table in this run folder"):
        run.table("staleness")
    with pytest.raises(DataError, match=r"rounds\.parquet: not a readable table, got '.*latency_s"):
        run.table("rounds", ["latency_s"])
    with pytest.raises(DataError, match=r"computes\.parquet: not a readable table"):
        run.table("computes")


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("transfers", TRANSFER_COLUMNS),
        ("receptions", RECEPTION_COLUMNS),
        ("computes", COMPUTE_COLUMNS),
        ("rounds", ROUND_COLUMNS),
        ("evaluations", EVALUATION_COLUMNS),
    ],
)
def test_the_ledger_writes_the_columns_that_figures_read(tmp_path, table, columns):
    """Every column that a figure asks for is one that a run's ledger has, and survives Parquet even when empty."""
    path = tmp_path / "table.parquet"
    Ledger().frames()[table].to_parquet(path)
    assert list(pd.read_parquet(path, columns=list(columns)).columns) == list(columns)

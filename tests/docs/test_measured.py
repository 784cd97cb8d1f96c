"""Tables of results: they are calculated from `runs.csv`, and say so when they cannot be."""

from __future__ import annotations

from pathlib import Path

import measured_table as measured
import pytest

RUNS = """access,seed,rounds,total_bit,time_to_target_s
tdma,0,10,2.0e6,4.0
tdma,1,12,2.0e6,6.0
ofdma,0,10,3.0e6,
ofdma,1,14,3.0e6,3.0
"""


@pytest.fixture(autouse=True)
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of reference results with one study in it."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/runs.csv").write_text(RUNS, encoding="utf-8")
    (tmp_path / "README.md").write_text("# Results\n\nOf before narrowing: `toy/`.\n\n| folder |\n", encoding="utf-8")
    monkeypatch.setattr(measured, "REFERENCE", tmp_path)


def test_means_have_units_and_missing_runs_are_counted() -> None:
    """Seeds are averaged, bits are shown in Mbit, and a run that never got there is not left out without a word."""
    head, rows = measured.rows(measured.runs("toy"), ["access"], ["total_bit", "time_to_target_s"])

    assert head == ["access", "on the air (Mbit)", "time to target (s)"]
    assert rows == [["tdma", "2.00", "5.00"], ["ofdma", "3.00", "3.00, 1 of 2 runs"]]


def test_differences_are_paired_by_seed() -> None:
    """12 and 10 against 14 and 10 rounds: one more on average, with Student's interval of two differences, 0 and 2."""
    head, rows = measured.rows(measured.runs("toy"), ["access"], ["rounds"], minus="tdma")

    assert head == ["access", "rounds", "minus that of tdma"]
    assert rows == [["tdma", "11.0", ""], ["ofdma", "12.0", "1.00 (-11.7 to 13.7)"]]


def test_rows_can_be_chosen() -> None:
    """`where` keeps the rows with a value, or with one of several."""
    assert measured.runs("toy", "access=ofdma")["seed"].tolist() == [0, 1]
    assert len(measured.runs("toy", "access=ofdma|tdma; seed=1")) == 2


def test_published_numbers_stand_beside_ours(tmp_path: Path) -> None:
    """They are shown as the source prints them, in the row that they are of; a row without one stays empty."""
    (tmp_path / "toy/published.csv").write_text("access,rounds\nofdma,9.0 ± 1\n", encoding="utf-8")
    printed = measured.runs("toy", file="published.csv", dtype=str)

    head, rows = measured.rows(measured.runs("toy"), ["access"], ["rounds", "total_bit"], published=printed)

    assert head == ["access", "rounds", "published", "on the air (Mbit)"]
    assert rows == [["tdma", "11.0", "", "2.00"], ["ofdma", "12.0", "9.0 ± 1", "3.00"]]


def test_a_file_without_seeds_is_shown_as_it_is(tmp_path: Path) -> None:
    """One row is one number, whole where it is whole."""
    (tmp_path / "toy/alone.csv").write_text("alpha,clusters,gap\n0.01,2,0.044\n", encoding="utf-8")

    _, rows = measured.rows(measured.runs("toy", file="alone.csv"), ["alpha"], ["clusters", "gap"])

    assert rows == [["0.01", "2", "0.0440"]]


def test_intervals_of_a_file_become_columns(tmp_path: Path) -> None:
    """A row for each value of `by`, a column for each value of `across`."""
    (tmp_path / "toy/multiples.csv").write_text(
        "method,data,mean,low,high\na,x,1,0.5,1.5\na,y,2,2,2\n", encoding="utf-8"
    )

    head, rows = measured.intervals(measured.runs("toy", file="multiples.csv"), ["method"], ["data"])

    assert head == ["method", "x", "y"]
    assert rows == [["a", "1.00 (0.50 to 1.50)", "2.00 (2.00 to 2.00)"]]


def test_what_is_not_there_is_named() -> None:
    """A study, a column or a value that does not exist is an error, not an empty table."""
    with pytest.raises(ValueError, match=r"no study 'gone' with runs\.csv"):
        measured.runs("gone")
    with pytest.raises(ValueError, match=r"no column 'speed'; it has access, seed"):
        measured.runs("toy", "speed=1")
    with pytest.raises(ValueError, match="no row of 'toy' has access=csma"):
        measured.runs("toy", "access=csma")
    with pytest.raises(ValueError, match="no column joules"):
        measured.rows(measured.runs("toy"), ["access"], ["joules"])


def test_the_sentence_below_a_table_names_file_and_age() -> None:
    """What the results' README says of a study's age is said below its tables, too."""
    assert "2 seeds" in measured.source("toy", "mean", 2)
    assert "toy/runs.csv" in measured.source("toy", "mean", 2)
    assert "measured before `channel.narrowing`" in measured.source("toy", "mean", 2)

"""The reference of the recorded tables: every column has a meaning, and nothing that is gone is explained."""

from __future__ import annotations

import pytest
import record_tables
from record_tables import page

from fednet_emu.records.ledger import TABLES, Ledger
from fednet_emu.records.rows import ComputeRow
from fednet_emu.scenario.schema import docstrings


def test_every_table_and_column_is_explained() -> None:
    """The page has a section for each table, and a row for each column as `frames` shows it."""
    text, ledger = page(), Ledger()
    ledger.add_phases()

    for name, frame in ledger.frames().items():
        section = text.split(f"## {name}\n")[1].split("\n## ")[0]
        assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == list(frame)
    assert "| `started_s` | number | s | yes |" in text
    assert all(f"## {name}" in text for name in TABLES)


def test_a_column_without_a_meaning_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds a column says below it what it means."""
    known = {name: its for name, its in docstrings(ComputeRow).items() if name != "flop"}
    monkeypatch.setattr(record_tables, "docstrings", lambda row: known if row is ComputeRow else docstrings(row))
    with pytest.raises(KeyError, match="flop"):
        page()

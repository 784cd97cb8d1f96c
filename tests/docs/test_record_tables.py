"""The reference of the recorded tables: every column has a meaning, and nothing that is gone is explained."""

from __future__ import annotations

from record_tables import page

from fednet_emu.records.ledger import TABLES, Ledger


def test_every_table_and_column_is_explained() -> None:
    """The page has a section for each table, and a row for each column as `frames` shows it."""
    text, ledger = page(), Ledger()
    ledger.add_phases()

    for name, frame in ledger.frames().items():
        section = text.split(f"## {name}\n")[1].split("\n## ")[0]
        assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == list(frame)
    assert "| `started_s` | number | s | yes |" in text
    assert all(f"## {name}" in text for name in TABLES)

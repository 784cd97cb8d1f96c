"""Claims about tables: what goes in comes out, however the rows were packed."""

import struct

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.records import table as module
from fednet_emu.records.table import Column, Table
from tests.quick import examples

COLUMNS = {
    "ended_ns": Column(np.int64, seconds=True),
    "kind": Column(np.int8, words=("uplink", "downlink")),
    "size_bit": Column(np.int64),
    "energy_j": Column(np.float64, digest=False),
}
ROW = st.tuples(st.integers(-1, 2**62), st.integers(0, 1), st.integers(0, 2**40), st.floats(0, 1))


def filled(rows):
    """A table with these rows."""
    table = Table(COLUMNS)
    for row in rows:
        table.append(row)
    return table


@examples(60)
@given(
    rows=st.lists(ROW, max_size=20),
    sizes=st.tuples(*3 * [st.integers(1, 7)]),
    looks=st.sets(st.integers(0, 20)),
    way=st.sampled_from(["append", "add", "extend"]),
    filed_from=st.integers(0, 20),
)
def test_packing_changes_nothing(rows, sizes, looks, way, filed_from, tmp_path_factory):
    """Chunk by chunk, looked at in between, many rows at once, or in a file: the same columns and the same digest."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("CHUNK_ROWS", "HELD_ROWS", "BLOCK_ROWS"), sizes, strict=True):
            patch.setattr(module, name, size)
        table = Table(COLUMNS)
        for number, row in enumerate(rows):
            if way == "extend":
                table.extend(**{name: np.array([value]) for name, value in zip(COLUMNS, row, strict=True)})
            elif way == "add":
                table.add([] if number % 2 else rows[number : number + 2])
            else:
                table.append(row)
            if number in looks:
                table.column("size_bit")
            if number == filed_from:
                table.folder = tmp_path_factory.getbasetemp()
        parts = list(table.frames())

    whole = filled(rows)
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole.frame())
    assert len(rows) <= sizes[2] or max(map(len, parts)) < sizes[2] + max(sizes[0], sizes[2]) + (way == "add")
    assert len(table) == len(rows) == len(whole)
    for index, (name, column) in enumerate(COLUMNS.items()):
        assert table.column(name).tolist() == [row[index] for row in rows] == whole.column(name).tolist()
        assert table.column(name).dtype == column.dtype
    assert table.digest() == whole.digest()


def test_a_frame_has_seconds_and_words():
    """Nanoseconds become seconds, never becomes NaN, codes become words, and other columns stay as they are."""
    frame = filled([(1_500_000_000, 1, 7, 0.5), (-1, 0, 8, 0.25)]).frame()

    assert list(frame) == ["ended_s", "kind", "size_bit", "energy_j"]
    assert frame["ended_s"].tolist() == pytest.approx([1.5, np.nan], nan_ok=True)
    assert frame["kind"].tolist() == ["downlink", "uplink"]
    assert frame["size_bit"].tolist() == [7, 8]
    assert frame["energy_j"].tolist() == [0.5, 0.25]


def test_an_empty_table_is_a_table():
    """Nothing happened: the columns are there, with their types."""
    frame = Table(COLUMNS).frame()

    assert list(frame) == ["ended_s", "kind", "size_bit", "energy_j"]
    assert len(frame) == 0
    assert frame["size_bit"].dtype == np.int64
    assert list(frame["kind"].cat.categories) == ["uplink", "downlink"]


def test_the_digest_sees_what_it_should():
    """Any digested value and the order of rows change it; a measure does not."""
    rows = [(5, 0, 7, 0.5), (6, 1, 8, 0.5)]
    reference = filled(rows).digest()
    others = [
        [(4, 0, 7, 0.5), rows[1]],
        [(5, 1, 7, 0.5), rows[1]],
        [(5, 0, 9, 0.5), rows[1]],
        rows[::-1],
        rows[:1],
    ]

    assert all(filled(other).digest() != reference for other in others)
    assert filled([(5, 0, 7, 0.9), rows[1]]).digest() == reference


def test_rows_must_fit_the_columns():
    """A row of the wrong length or a code out of range is a bug that shows at once when packed."""
    with pytest.raises(struct.error, match="4 items"):
        filled([(1, 0, 7)]).column("kind")
    with pytest.raises(struct.error, match="127"):
        filled([(1, 300, 7, 0.5)]).column("kind")


@pytest.mark.parametrize(
    "columns",
    [
        {"ended_ns": [1], "kind": [0], "size_bit": [5]},
        {"ended_ns": [1, 2], "kind": [0], "size_bit": [5], "energy_j": [0.0]},
    ],
    ids=["missing", "ragged"],
)
def test_many_rows_must_fit_the_columns(columns):
    """A missing column or another length is refused before anything is added."""
    table = filled([(5, 0, 7, 0.5)])

    with pytest.raises(ValueError, match="arrays of equal length for ended_ns, kind, size_bit, energy_j are right"):
        table.extend(**{name: np.array(values) for name, values in columns.items()})
    assert len(table) == 1
    assert table.column("ended_ns").tolist() == [5]

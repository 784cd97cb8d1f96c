"""Append-only tables with typed columns. New rows are plain tuples, which are packed into records in chunks.

If a table has a folder, about `HELD_ROWS` rows are kept in memory. Earlier rows are moved to an unnamed file in this
folder, which is deleted at the end of the process.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import starmap
from pathlib import Path
from struct import Struct
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fednet_emu.files.writing import file_errors
from fednet_emu.units import linear_to_db

if TYPE_CHECKING:
    import pandas as pd

CHUNK_ROWS = 1 << 10
HELD_ROWS = 1 << 20
BLOCK_ROWS = 1 << 20
"""Approximate number of rows in a block. Tables are written and checked block by block."""

Rows = NDArray[np.void]
"""Structured array [rows] with a field for each column of a table."""

_FORMATS = {np.int8: "b", np.int32: "i", np.int64: "q", np.float32: "f", np.float64: "d"}
"""Format character of each column type in Python's `struct`, which packs rows three times as fast as NumPy."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its type, whether the event digest covers it, and its conversion for data frames.

    If `words` is not empty, integer codes are converted to these words. If `seconds` is True, ns are converted to s;
    negative values mean never and become NaN. If `decibels` is True, ratios are converted to dB; 0 means unknown and
    becomes NaN. `hashed` is the column's name in the event digest, which a renamed column keeps.
    """

    dtype: type[np.generic]
    digest: bool = True
    words: Sequence[str] = ()
    seconds: bool = False
    decibels: bool = False
    hashed: str = ""

    def heading(self, name: str) -> str:
        if self.seconds:
            return f"{name.removesuffix('_ns')}_s"
        return f"{name}_db" if self.decibels else name

    def shown(self, values: NDArray[Any]) -> Any:
        import pandas as pd

        if self.seconds:
            return np.where(values < 0, np.nan, values / 1e9)
        if self.decibels:
            return linear_to_db(np.where(values > 0, values, np.nan)).astype(values.dtype)
        return pd.Categorical.from_codes(values.astype(np.int64), pd.Index(self.words)) if self.words else values


MEASURE = Column(np.float64, digest=False)
"""Column of real numbers, such as energies or losses, which the event digest does not cover."""


@cache
def columns_of(row: type[tuple[Any, ...]]) -> dict[str, Column]:
    """Return the columns of a row class by name. A row class is a named tuple with fields annotated by `Column`."""
    hints = get_type_hints(row, include_extras=True)
    return {name: next(its for its in hints[name].__metadata__ if isinstance(its, Column)) for name in hints}


Row = TypeVar("Row", bound=tuple[Any, ...])


class Table(Generic[Row]):
    """A table to which rows are appended. A row is a tuple of values in the order of the columns."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)
        self._rows: list[Row] = []
        self._record = np.dtype([(name, column.dtype) for name, column in columns.items()])
        self._format = Struct("=" + "".join(_FORMATS[column.dtype] for column in columns.values()))
        self._packed: list[Rows] = []
        self._packed_rows = 0
        self._filed_rows = 0
        self._file: IO[bytes] | None = None
        self.folder: Path | None = None  # folder of the file for earlier rows; None keeps all rows in memory

    def __len__(self) -> int:
        return self._filed_rows + self._packed_rows + len(self._rows)

    def append(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= CHUNK_ROWS:
            self._pack()

    def add(self, rows: Iterable[Row]) -> None:
        self._rows += rows
        if len(self._rows) >= CHUNK_ROWS:
            self._pack()

    def extend(self, **columns: NDArray[Any]) -> None:
        """Add many rows, given as one array [rows] for each column."""
        lengths = {name: len(values) for name, values in columns.items()}
        if lengths.keys() != self.columns.keys() or len(set(lengths.values())) != 1:
            raise ValueError(f"columns: got {lengths}; arrays of equal length for {', '.join(self.columns)} are right")
        self._pack()
        records = np.empty(lengths.popitem()[1], self._record)
        for name, values in columns.items():
            records[name] = values
        self._keep(records)

    def _pack(self) -> None:
        if self._rows:
            self._keep(np.frombuffer(b"".join(starmap(self._format.pack, self._rows)), self._record))
            self._rows.clear()

    def _keep(self, records: Rows) -> None:
        self._packed.append(records)
        self._packed_rows += len(records)
        if self.folder is not None and self._packed_rows >= HELD_ROWS:
            self._file_away(self.folder)

    def _file_away(self, folder: Path) -> None:
        with file_errors(folder, "written to"):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (open for the life of the table)
                weakref.finalize(self, self._file.close)
            self._file.seek(self._filed_rows * self._record.itemsize)
            for records in self._packed:
                self._file.write(records.tobytes())
            self._file.flush()
        self._filed_rows += self._packed_rows
        self._packed_rows = 0
        self._packed.clear()

    def _chunks(self) -> Iterator[Rows]:
        self._pack()
        if self._file is not None:
            for start in range(0, self._filed_rows, BLOCK_ROWS):
                size = min(BLOCK_ROWS, self._filed_rows - start) * self._record.itemsize
                self._file.seek(start * self._record.itemsize)
                yield np.frombuffer(self._file.read(size), self._record)
        if len(self._packed) > 1 and self._packed_rows <= BLOCK_ROWS:
            self._packed = [self._joined(self._packed)]  # joined once, because checks read a finished table many times
        yield from self._packed

    def blocks(self) -> Iterator[Rows]:
        """Yield all rows in order, in blocks of about `BLOCK_ROWS` rows. An empty table yields one empty block."""
        block, rows = [self.none], 0
        for records in self._chunks():
            if rows >= BLOCK_ROWS:
                yield self._joined(block)
                block, rows = [], 0
            block.append(records)
            rows += len(records)
        yield self._joined(block)

    def _joined(self, parts: Sequence[Rows]) -> Rows:
        """Concatenate arrays of rows as bytes, which is fast because NumPy does not compare their column names."""
        bare = np.dtype((np.void, self._record.itemsize))
        return np.concatenate([np.ascontiguousarray(part).view(bare) for part in parts]).view(self._record)

    @property
    def none(self) -> Rows:
        return np.empty(0, self._record)

    def since(self, row: int) -> Rows:
        """Return the rows with an index of at least `row`, except rows that have been moved to a file."""
        self._pack()
        parts, first = [], len(self)
        for records in reversed(self._packed):
            if first <= row:
                break
            first -= len(records)
            parts.append(records[max(0, row - first) :])
        if len(parts) < 2:
            return parts[0] if parts else self.none
        return self._joined(parts[::-1])

    def column(self, name: str) -> NDArray[Any]:
        empty = np.empty(0, self.columns[name].dtype)
        return np.concatenate([empty, *[np.ascontiguousarray(records[name]) for records in self._chunks()]])

    def frame(self) -> pd.DataFrame:
        """Return the table as a data frame with words for codes, times in s (`..._s`) and ratios in dB (`..._db`)."""
        return self.shown(np.concatenate([self.none, *self._chunks()]))

    def frames(self) -> Iterator[pd.DataFrame]:
        return map(self.shown, self.blocks())

    def shown(self, records: Rows) -> pd.DataFrame:
        import pandas as pd

        values = {name: np.ascontiguousarray(records[name]) for name in self.columns}
        return pd.DataFrame({column.heading(name): column.shown(values[name]) for name, column in self.columns.items()})

    def digest(self) -> bytes:
        """Return a hash of all columns that the event digest covers. It is independent of the division into chunks."""
        whole = blake2b(digest_size=16)
        for name, column in self.columns.items():
            if column.digest:
                whole.update((column.hashed or name).encode())
                for records in self._chunks():
                    whole.update(records[name].tobytes())
        return whole.digest()

"""Append-only tables with typed columns: new rows are plain tuples, which are packed into records in chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import starmap
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

CHUNK_ROWS = 1 << 10

_FORMATS = {np.int8: "b", np.int32: "i", np.int64: "q", np.float64: "d"}
"""The `struct` format of each column type; `struct` packs rows in a third of NumPy's time."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, whether the event digest covers it, and how it is shown.

    `words` turns small integer codes into text; `seconds` turns nanoseconds into seconds (negative: never, NaN).
    """

    dtype: type[np.generic]
    digest: bool = True
    words: Sequence[str] = ()
    seconds: bool = False

    def shown(self, values: NDArray[Any]) -> Any:
        """The column as it appears in a data frame."""
        import pandas as pd

        if self.seconds:
            return np.where(values < 0, np.nan, values / 1e9)
        return pd.Categorical.from_codes(values.astype(np.int64), pd.Index(self.words)) if self.words else values


class Table:
    """A growing table. `append` takes one row, a tuple in the order of the columns."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)
        self._rows: list[tuple[Any, ...]] = []
        self._record = np.dtype([(name, column.dtype) for name, column in columns.items()])
        self._format = Struct("=" + "".join(_FORMATS[column.dtype] for column in columns.values()))
        self._packed: list[NDArray[np.void]] = []
        self._packed_rows = 0

    def __len__(self) -> int:
        return self._packed_rows + len(self._rows)

    def append(self, row: tuple[Any, ...]) -> None:
        """Add one row."""
        self._rows.append(row)
        if len(self._rows) >= CHUNK_ROWS:
            self._pack()

    def extend(self, **columns: NDArray[Any]) -> None:
        """Add many rows at once, given as arrays of equal length.

        Raises:
            ValueError: a column is missing or unknown, or the lengths differ.
        """
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

    def _keep(self, records: NDArray[np.void]) -> None:
        self._packed.append(records)
        self._packed_rows += len(records)

    def column(self, name: str) -> NDArray[Any]:
        """All values of one column as they were appended."""
        self._pack()
        return np.concatenate([np.empty(0, self.columns[name].dtype), *[records[name] for records in self._packed]])

    def frame(self) -> pd.DataFrame:
        """The table with codes as words and nanoseconds as seconds; such columns are named `..._s` for `..._ns`."""
        import pandas as pd

        return pd.DataFrame(
            {name.removesuffix("_ns") + "_s" if column.seconds else name: column.shown(self.column(name))
             for name, column in self.columns.items()}
        )  # fmt: skip

    def digest(self) -> bytes:
        """Hash of every digested column, independent of how the rows were packed."""
        whole = blake2b(digest_size=16)
        for name, column in self.columns.items():
            if column.digest:
                whole.update(name.encode())
                whole.update(self.column(name).tobytes())
        return whole.digest()

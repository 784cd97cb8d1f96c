"""Append-only tables with typed columns: rows are plain tuples while hot, packed into arrays chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

CHUNK_ROWS = 1 << 10


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
        self._packed: dict[str, list[NDArray[Any]]] = {name: [] for name in columns}
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
        for name, column in self.columns.items():
            self._packed[name].append(columns[name].astype(column.dtype))
        self._packed_rows += lengths.popitem()[1]

    def _pack(self) -> None:
        if self._rows:
            for (name, column), values in zip(self.columns.items(), zip(*self._rows, strict=True), strict=True):
                self._packed[name].append(np.array(values, dtype=column.dtype))
            self._packed_rows += len(self._rows)
            self._rows.clear()

    def column(self, name: str) -> NDArray[Any]:
        """All values of one column as they were appended."""
        self._pack()
        chunks = self._packed[name]
        whole = np.concatenate(chunks) if chunks else np.empty(0, self.columns[name].dtype)
        self._packed[name] = [whole]
        return whole

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

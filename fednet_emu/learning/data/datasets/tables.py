"""Samples from the rows of CSV or Parquet files, with columns for the inputs, the target, and the owner of a row."""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_text
from fednet_emu.learning.data.datasets.base import Dataset, Samples, held_out
from fednet_emu.learning.data.datasets.npz import checked_samples, named_parts

if TYPE_CHECKING:
    import pandas as pd

_AS_MANY = "name the columns in the first line, and give each line as many fields"
_REMEDY = "correct or drop such rows, or name other columns"


class RowTable(Dataset):
    """Base class of data sets whose samples are the rows of a table in a file."""

    path: str
    """The file with the rows. A relative path is looked up in the data folder first, then in the current folder."""
    test: str | None = None
    """The file with the test rows. If null, a share of the rows in `path` is held out for testing."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of the rows that is held out at random for testing, from each group or, if there are no groups, from each
    class."""
    input: tuple[str, ...] | None = Field(None, min_length=1)
    """Input columns, which must contain numbers. Null uses all columns except those of the target and the group."""
    target: str
    """Column of the targets. Whole numbers and strings are classes; strings are numbered in alphabetical order. Numbers
    with a decimal point make the problem a regression. The setting `task` overrides these rules."""
    group: str | None = None
    """Column with the owner of each row, for the partition `group`. Owners are numbered in the order of the rows."""
    task: Literal["classification", "regression"] | None = None
    """Type of the learning problem. Null infers the type from the values of the target."""
    classes: int | None = Field(None, ge=2)
    """Number of classes. Null counts the classes."""
    normalise: bool = True
    """Whether each input column is scaled to mean 0 and standard deviation 1 over the training rows, in double
    precision."""

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        where = [str(locate(path, data_dir)) for path in (self.path, self.test) if path is not None]
        tables = [self._checked(path, self.rows(Path(path))) for path in where]
        inputs = self.input or tuple(its for its in tables[0].columns if its not in (self.target, self.group))
        x = [_numbers(path, table, inputs) for path, table in zip(where, tables, strict=True)]
        y = self._targets(where, tables)
        groups = None if self.group is None else _owners(where, tables, self.group)
        arrays = named_parts(x, y, groups, lambda kinds: self._held_out(where[0], kinds, rng))
        if self.normalise:
            mean, deviation = arrays["train_x"].mean(0), arrays["train_x"].std(0)
            for name in ("train_x", "test_x"):
                arrays[name] = (arrays[name] - mean) / np.where(deviation > 0, deviation, 1.0)
        if self.classes is not None and y[0].dtype.kind == "f":
            what = f"`classes` is not for the regression on {self.target}, got {self.classes}"
            raise DataError(where[0], what, "leave it out, or set `task: classification`")
        return checked_samples(arrays, self.classes, where[0])

    @abstractmethod
    def rows(self, path: Path) -> pd.DataFrame:
        """Return the rows of a file, with target and group as strings, and with line or row numbers as the index."""

    def _checked(self, where: str, table: pd.DataFrame) -> pd.DataFrame:
        names = [str(name) for name in table.columns]
        for name in [self.target, *([self.group] if self.group else []), *(self.input or ())]:
            if names.count(name) != 1:
                what = f"has the column '{name}' {names.count(name)} times, got {', '.join(names)[:200]}"
                raise DataError(where, what, "name columns that are there once")
        if not len(table):
            raise DataError(where, "has no rows, got an empty table", "give one with rows")
        return table

    def _targets(self, where: list[str], tables: list[pd.DataFrame]) -> list[NDArray[Any]]:
        texts = [_texts(path, table, self.target) for path, table in zip(where, tables, strict=True)]
        try:
            values = [its.astype(np.float64) for its in texts]
        except ValueError as error:
            if self.task == "regression":
                raise DataError(where[0], f"{self.target} must hold numbers, got texts ({error})", _REMEDY) from error
            return _classes(where, texts, self.target)
        whole = all(np.char.isdigit(np.char.lstrip(its, "+-")).all() for its in texts)
        if self.task == "regression" or (self.task is None and not whole):
            return list(values)
        if not all((its == np.rint(its)).all() for its in values):
            raise DataError(where[0], f"{self.target} must hold whole numbers for classes, got fractions", _REMEDY)
        return [its.astype(np.int64) for its in values]

    def _held_out(self, where: str, kinds: IntArray, rng: np.random.Generator) -> Mask:
        remedy = "give another share, or a file for testing"
        return held_out(where, kinds, rng.permutation(len(kinds)), self.test_share, remedy, "rows")


class Csv(RowTable):
    """Samples from the rows of a CSV file with a header line.

    Columns are separated by commas, semicolons or tabs. The file may be gzipped.
    """

    kind = "csv"

    def rows(self, path: Path) -> pd.DataFrame:
        import pandas as pd

        text = read_text(path).rstrip("\n")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        header, first = [*csv.reader(text.split("\n")[:2], delimiter=separator), [], []][:2]
        names = [its.strip() for its in header]
        if len(first) > len(names):  # pandas would read the first column as row names
            what = f"line 2 has {len(first)} fields for {len(names)} columns, got {first}"
            raise DataError(str(path), what, _AS_MANY)
        try:
            table = pd.read_csv(
                io.StringIO(text),
                sep=separator,
                dtype=dict.fromkeys([name for name in (self.target, self.group) if name], str),
                keep_default_na=False,
                skipinitialspace=True,
                skip_blank_lines=False,
                low_memory=False,
            )
            table = table.set_axis(names, axis=1)
        except ValueError as error:
            said = " ".join(str(error).split())
            raise DataError(str(path), f"cannot be read as CSV ({said})", _AS_MANY) from error
        return table.set_axis(pd.RangeIndex(2, len(table) + 2, name="line"))


class Parquet(RowTable):
    """Samples from the rows of a Parquet file; needs no optional dependency."""

    kind = "parquet"

    def rows(self, path: Path) -> pd.DataFrame:
        from pyarrow import ArrowException, parquet

        try:
            table: pd.DataFrame = parquet.read_table(path).to_pandas()
        except (ArrowException, OSError) as error:
            raise DataError(str(path), f"cannot be read as Parquet ({error})", "give a Parquet file") from error
        return table.reset_index(drop=True).rename_axis("row")


def _at(table: pd.DataFrame, wrong: NDArray[np.bool_]) -> str:
    return f"{table.index.name} {table.index[int(np.argmax(wrong))]}"


def _numbers(where: str, table: pd.DataFrame, columns: tuple[str, ...]) -> Array:
    """Return columns of finite numbers as an array [rows, columns] in double precision, or raise a `DataError`."""
    import pandas as pd

    if not columns:
        raise DataError(where, "has no columns of inputs, got only target and group", "name them in `input`")
    found = []
    for name in columns:
        try:
            values = pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
        except TypeError:
            values = np.full(len(table), np.nan)  # for example lists
        if (wrong := ~np.isfinite(values)).any():
            got = table[name].iloc[int(np.argmax(wrong))]
            raise DataError(where, f"{_at(table, wrong)} has no number for {name}, got {got!r}", _REMEDY)
        found.append(values)
    return np.stack(found, axis=1)


def _texts(where: str, table: pd.DataFrame, column: str) -> NDArray[np.str_]:
    missing = (table[column].isna() | (table[column].astype(str).str.strip() == "")).to_numpy(np.bool_)
    if missing.any():
        raise DataError(where, f"{_at(table, missing)} has no {column}, got nothing", _REMEDY)
    return np.array([str(its).strip() for its in table[column].tolist()])


def _classes(where: list[str], texts: list[NDArray[np.str_]], column: str) -> list[NDArray[Any]]:
    names = np.unique(texts[0])
    for path, its in zip(where, texts, strict=True):
        if len(unknown := np.setdiff1d(its, names)):
            raise DataError(path, f"has a {column} that no training row has, got '{unknown[0]}'", _REMEDY)
    return [np.searchsorted(names, its).astype(np.int64) for its in texts]


def _owners(where: list[str], tables: list[pd.DataFrame], column: str) -> list[IntArray]:
    number: dict[str, int] = {}
    return [
        np.array([number.setdefault(its, len(number)) for its in _texts(path, table, column).tolist()], np.int64)
        for path, table in zip(where, tables, strict=True)
    ]

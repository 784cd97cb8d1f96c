"""Functions that write files atomically, and detect changes of files by checksums."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

PART = ".fednet-part"
"""Suffix of files while they are being written. Files with this suffix that a killed run has left may be deleted."""
FORMULA = ("=", "+", "-", "@", "'", "\t", "\r")
"""Characters with which a text in a CSV file must not begin, because a spreadsheet would alter the text."""
RETRY = "make room, or make the folder writable, and give the same command again"
Result = TypeVar("Result")


def write_text(path: Path, text: str) -> None:
    """Write a text to a file atomically, so that a crash never leaves an incomplete file."""
    write_atomically(path, lambda file: file.write(text.encode("utf-8")))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a mapping to a JSON file atomically. NaN and infinite numbers become null."""
    write_text(path, json.dumps(_finite(content), indent=2, allow_nan=False) + "\n")


def write_table(path: Path, parts: Iterable[pd.DataFrame]) -> None:
    """Write a table to a Parquet file atomically. The table is given as data frames, which have the same columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(file: IO[bytes]) -> None:
        rows = (pa.Table.from_pandas(part, preserve_index=False) for part in parts)
        first = next(rows)
        with pq.ParquetWriter(file, first.schema, compression="zstd") as writer:
            for part in chain([first], rows):
                writer.write_table(part)

    write_atomically(path, write)


def csv_text(table: pd.DataFrame, digits: int) -> str:
    """Return a table as CSV text with `digits` significant digits, which `read_csv` can read.

    If a text begins with a character in `FORMULA` and is not a number, an apostrophe is inserted before it.
    """
    safe = _mapped(table, _shown)
    return str(safe.to_csv(index=False, float_format=f"%.{digits}g", lineterminator="\n"))


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Return the table in a CSV file whose text `csv_text` has created. `options` are passed to `pandas.read_csv`."""
    import pandas as pd

    found = pd.read_csv(path, **options)
    return _mapped(found, lambda text: text[1:] if isinstance(text, str) and text.startswith("'") else text)


def _mapped(table: pd.DataFrame, change: Callable[[Any], Any]) -> pd.DataFrame:
    texts = {
        str(name): table[name].astype(object).map(change).astype(object)
        for name in table
        if table[name].dtype.kind not in "biuf"
    }
    return table.assign(**texts).rename(columns=change)


def _shown(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_atomically(path: Path, write: Callable[[IO[bytes]], Result], remedy: str = RETRY) -> Result:
    """Write a file atomically by calling `write`, and return its result.

    After a crash, `path` has either the old or the complete new content. `remedy` is the advice in error messages.

    Raises:
        DataError: the file cannot be written, for example because the disk is full.
    """
    part = path.with_name(f".{path.name}{PART}")
    with file_errors(path, "written", remedy):
        try:
            with part.open("wb") as file:
                result = write(file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    return result


@contextmanager
def file_errors(path: Path, what: str, remedy: str = RETRY) -> Iterator[None]:
    """Context manager that converts an error of the operating system to a `DataError` about the file `path`.

    `what` is the participle in the message, such as `written` for `cannot be written`. `remedy` follows it.
    """
    try:
        yield
    except OSError as error:
        raise DataError(str(path), f"cannot be {what} ({error.strerror or error})", remedy) from error


def flaw(path: Path, expected: str | None) -> str:
    """Return a text about the problem of a file that is missing or changed; empty if there is no problem.

    `expected` is the checksum of the unchanged file. If it is None, any existing file is accepted.
    """
    if not path.is_file():
        return "no such file"
    if expected is None:
        return ""
    try:
        return "" if checksum(path) == expected else "damaged, its content has changed since it was written"
    except OSError as error:
        return f"unreadable ({error.strerror})"


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content

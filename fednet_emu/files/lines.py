"""Strict parsing of numbers, rows and tables in text files with recorded data.

Blank lines and lines that begin with `#` are comments. Any other text that does not match the grammar of a format
raises an error that names file, line, value and remedy.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.errors import DataError

LONGEST_S = 1e10
"""Maximum absolute time in s (317 years). Unix times in seconds are accepted, but not Unix times in milliseconds."""
MOST_BPS = 1e15
LEAST_BPS = 1e-9
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d\d):(\d\d(?:\.\d+)?)", re.ASCII)

Grammar = Callable[[str], Any]
"""Function that converts the text of a field to a value. For invalid text, it raises a `ValueError` that states the
problem, such as "is no number"."""


def number(text: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Parse a finite decimal number from `low` to `high`. `nan`, decimal commas and underscores are not allowed.

    Raises:
        ValueError: The text is not a number in this range. The message states the problem.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError("is no number")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("is not finite")
    if not low <= value <= high:
        raise ValueError(f"is not within {low:g} and {high:g}")
    return value


def whole(text: str, low: int = 0, high: int = 2**31 - 1) -> int:
    """Parse an integer from `low` to `high`; raise a `ValueError` that states the problem if the text is none."""
    if not _WHOLE.fullmatch(text):
        raise ValueError("is no whole number")
    if len(text) > 20 or not low <= int(text) <= high:
        raise ValueError(f"is not within {low} and {high}")
    return int(text)


def seconds(text: str) -> float:
    """Parse a time in s with an absolute value of at most `LONGEST_S`; raise a `ValueError` for other text."""
    return number(text, -LONGEST_S, LONGEST_S)


def clock_s(text: str) -> float:
    """Parse a time and return it in s. It is a number of s, or [days:]hours:minutes:seconds (SUMO's option `-H`)."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return seconds(text)
    return 86_400.0 * int(found[1] or 0) + 3_600.0 * int(found[2]) + 60.0 * int(found[3]) + float(found[4])


def rate(unit_bps: float) -> Grammar:
    """Return a function that parses a rate in units of `unit_bps` (bit/s) and returns the rate in bit/s.

    Allowed rates are 0 and rates from `LEAST_BPS` to `MOST_BPS`.
    """

    def value_bps(text: str) -> float:
        value = number(text) * unit_bps
        if value < 0:
            raise ValueError("is negative")
        if value and not LEAST_BPS <= value <= MOST_BPS:
            raise ValueError(f"is not 0 or within {LEAST_BPS:g} and {MOST_BPS:g} bit/s")
        return value

    return value_bps


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number (from 1) and the stripped text of each line that is neither blank nor a comment."""
    for count, line in enumerate(text.split("\n"), 1):
        if (stripped := line.strip()) and not stripped.startswith("#"):
            yield count, stripped


def refused(where: str, count: int, problem: str, got: str, how: str) -> DataError:
    """Return an error about line `count` of the file `where`, with the text `where:count: problem, got ...; how`."""
    return DataError(f"{where}:{count}", f"{problem}, got {got[:80]!r}", how)


def parsed(where: str, count: int, fields: Mapping[str, Grammar], cells: Sequence[str], how: str) -> list[Any]:
    """Parse the cells of line `count` by the grammars in `fields`, which are in the same order, and return the values.

    Raises:
        DataError: A cell does not match the grammar of its field. The error names the field.
    """
    values = []
    for (name, field), cell in zip(fields.items(), cells, strict=True):
        try:
            values.append(field(cell))
        except ValueError as error:
            raise refused(where, count, f"{name} {error}", cell, how) from error
    return values


def rows(
    where: str, text: str, fields: Mapping[str, Grammar], how: str, *, more: bool = False
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the field values of each line in `text`; fields are separated by blanks or tabs.

    Args:
        where: The name of the text in error messages.
        text: The text, without a header.
        fields: The grammar of each field, by name, in the order of the line.
        how: The remedy in error messages.
        more: True to allow further fields in a line, which are ignored.

    Raises:
        DataError: A line does not match the grammar of the fields.
    """
    for count, line in lines(text):
        cells = line.split()
        if len(cells) < len(fields) or (len(cells) > len(fields) and not more):
            raise refused(where, count, f"has {len(cells)} fields instead of {len(fields)}", line, how)
        yield count, parsed(where, count, fields, cells[: len(fields)], how)


def records(where: str, text: str, needed: Iterable[str], how: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line number and the cells, by column name, of each row of a table.

    The first line contains the column names. Cells are separated by commas, semicolons or tabs.

    Raises:
        DataError: A column in `needed` is missing or duplicated, or a line has a different number of cells.
    """
    found = lines(text)
    first, header = next(found, (1, ""))
    separator = max(",;\t", key=header.count)
    names = _cells(header, separator)
    if missing := [name for name in needed if name not in names]:
        got = ", ".join(names) if header else "nothing"
        raise DataError(where, f"lacks the column {', '.join(missing)}, got {got}", how)
    if twice := [name for name in needed if names.count(name) > 1]:
        raise refused(where, first, f"has the column {twice[0]} twice", header, how)
    for count, line in found:
        cells = _cells(line, separator)
        if len(cells) != len(names):
            raise refused(where, count, f"has {len(cells)} fields for {len(names)} columns", line, how)
        yield count, dict(zip(names, cells, strict=True))


def header_rows(where: str, text: str, fields: Mapping[str, Grammar], how: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the line number of each row of a table (see `records`), and parsed values of the columns in `fields`."""
    for count, cells in records(where, text, fields, how):
        yield count, parsed(where, count, fields, [cells[name] for name in fields], how)


def _cells(line: str, separator: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]


def in_time(where: str, found: Iterator[tuple[int, list[Any]]], how: str) -> Array:
    """Return an array [columns, rows] with the values of all rows. The first column is a time.

    Raises:
        DataError: There are no rows, or the time decreases. If the time decreases, the error names the line.
    """
    table: list[list[Any]] = []
    for count, values in found:
        if table and values[0] < table[-1][0]:
            raise refused(
                where, count, f"time goes back to {values[0]:.15g} after {table[-1][0]:.15g}", str(values), how
            )
        table.append(values)
    if not table:
        raise DataError(where, "has no rows, got an empty table", how)
    return np.ascontiguousarray(np.array(table, np.float64).T)

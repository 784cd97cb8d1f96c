"""Convert columns of a table to arrays of images, numbers, labels, strings or owners.

The tables are those of the library `datasets`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError

_GREY = {"1", "L", "LA"}
"""Modes of greyscale images in the library Pillow."""


class Table(NamedTuple):
    """A table of the library `datasets`, and its name in error messages."""

    rows: Any  # a `datasets.Dataset`
    where: str  # file, folder or name of the table, and its split

    def feature(self, column: str) -> Any:
        """Return the library's description of a column. Raise a `DataError` if the table has no such column."""
        if column not in self.rows.column_names:
            known = ", ".join(self.rows.column_names) or "none"
            raise DataError(self.where, f"has no column '{column}', got {known}", "name one of its columns")
        return self.rows.features[column]

    def is_image(self, column: str) -> bool:
        return type(self.feature(column)).__name__ == "Image"

    def is_text(self, column: str) -> bool:
        return getattr(self.feature(column), "dtype", None) in {"string", "large_string"}

    def class_names(self, column: str) -> list[str] | None:
        """Return the class names of a column of class indices; None for any other column."""
        feature = self.feature(column)
        return list(feature.names) if type(feature).__name__ == "ClassLabel" else None

    def values(self, column: str) -> list[Any]:
        """Return the values of a column as Python objects. Raise a `DataError` if a value is missing."""
        self.feature(column)
        found: list[Any] = self.rows.select_columns([column])[:][column]
        for row, value in enumerate(found):
            if value is None or (isinstance(value, float) and math.isnan(value)):
                raise DataError(self.where, f"row {row} has no {column}, got {value}", "drop or complete such rows")
        return found


def numbers(table: Table, columns: Sequence[str], *, single: bool) -> tuple[NDArray[Any], list[str]]:
    """Return columns of numbers or of equally long lists as one array, and the names of the features.

    The array has the shape [n, ...] or [n, features]. If `single` is True, numbers must fit into float32.
    """
    parts = [_numbers(table, column, single=single) for column in columns]
    widths = [1 if part.ndim == 1 else part.shape[1] if len(parts) == 1 else part[0].size for part in parts]
    names = [
        column if width == 1 else f"{column}[{place}]"
        for column, width in zip(columns, widths, strict=True)
        for place in range(width)
    ]
    if len(parts) == 1:
        return (parts[0] if parts[0].ndim > 1 else parts[0][:, None]), names
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1), names


def _numbers(table: Table, column: str, *, single: bool = True) -> NDArray[Any]:
    feature = table.feature(column)
    remedy = "name columns of numbers or of lists of one length, one column of images, or give `text`"
    kind = table.rows.features.arrow_schema.field(column).type
    if not _is_numeric(kind):
        raise DataError(table.where, f"{column} must hold numbers, got {feature}", remedy)
    try:
        exact = {"dtype": np.float64} if "double" in str(kind) else {}  # without this, the library converts to float32
        array = np.asarray(table.rows.select_columns([column]).with_format("numpy", **exact)[:][column])
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind not in "buif":
        raise DataError(table.where, f"{column} must hold lists of one length, got several", remedy)
    _check_finite(table, column, array, single=single)
    return array


def _check_finite(table: Table, column: str, array: NDArray[Any], *, single: bool) -> None:
    """Raise a `DataError` for missing or infinite values and, if `single` is set, for values too large for float32."""
    with np.errstate(over="ignore"):
        wrong = np.argwhere(~np.isfinite(array.astype(np.float32) if single and array.dtype.kind == "f" else array))
    if len(wrong):
        row, value = int(wrong[0][0]), array[tuple(wrong[0])]
        what = f"has no {column}" if np.isnan(value) else f"has no finite float32 as {column}"
        raise DataError(table.where, f"row {row} {what}, got {value}", f"drop or complete the {len(wrong)} such values")


def _is_numeric(kind: Any) -> bool:
    """Return True if an Arrow type is a number or a list of numbers."""
    import pyarrow as pa

    if isinstance(kind, pa.ExtensionType):
        return _is_numeric(kind.storage_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_numeric(kind.value_type)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def images(table: Table, column: str, side: int | None, mode: str | None) -> tuple[NDArray[np.uint8], str]:
    """Return the images [n, channels, height, width] of a column, and their mode, `L` (greyscale) or `RGB`.

    The column contains the bytes or the paths of image files. Images are resized to `side` by `side` pixels, or keep
    their size if `side` is None. They are converted to `mode`, or to the mode of the first image if `mode` is None.
    """
    found: list[NDArray[np.uint8]] = []
    for row, image in enumerate(_decoded(table, column)):
        mode = mode or ("L" if image.mode in _GREY else "RGB")
        image = image.convert(mode)  # noqa: PLW2901  (the same image)
        pixels = np.asarray(image if side is None else image.resize((side, side)))
        if found and pixels.shape != found[0].shape:
            sizes = " and ".join("x".join(map(str, its.shape[:2])) for its in (found[0], pixels))
            raise DataError(
                table.where, f"{column} has images of several sizes, got {sizes} in row {row}", "give `size`"
            )
        found.append(pixels)
    if not found or mode is None:
        raise DataError(table.where, "has no rows, got an empty table", "give one with images")
    stacked = np.stack(found)
    return (stacked[:, None] if mode == "L" else stacked.transpose(0, 3, 1, 2)), mode


def _decoded(table: Table, column: str) -> Iterator[Any]:
    """Open images with Pillow, from bytes or local files, and yield them. Nothing is downloaded."""
    from PIL import Image

    kind = type(table.feature(column))
    for row, entry in enumerate(table.rows.select_columns([column]).cast_column(column, kind(decode=False))):
        stored = entry[column] or {}
        content, path = stored.get("bytes"), stored.get("path")
        try:
            with Image.open(io.BytesIO(content) if content is not None else Path(path or "")) as image:
                image.load()
                yield image
        except Exception as error:
            said = " ".join(str(error).split())
            problem = f"the {column} of row {row} cannot be read as an image ({type(error).__name__}: {said})"
            raise DataError(table.where, problem, "repair the file, or drop the row") from error


def labels(tables: Sequence[Table], column: str) -> tuple[list[NDArray[Any]], int | None]:
    """Return the targets [n] of each table, as class indices or real numbers, and the number of classes, if known.

    Strings become classes in the alphabetical order of those in the first table, booleans the classes 0 and 1.
    """
    names = tables[0].class_names(column)
    if names is not None or not tables[0].is_text(column):
        found = [_numbers(table, column) for table in tables]
        whole = [array.astype(np.int64) if array.dtype.kind == "b" else array for array in found]
        return whole, None if names is None else len(names)
    texts = [table.values(column) for table in tables]
    number = {text: place for place, text in enumerate(sorted(set(texts[0])))}
    for table, column_texts in zip(tables, texts, strict=True):
        for row, text in enumerate(column_texts):
            if text not in number:
                problem = f"row {row} has a {column} that no training sample has, got '{text}'"
                raise DataError(table.where, problem, "drop such rows")
    return [np.array([number[text] for text in its], dtype=np.int64) for its in texts], len(number)


def owners(tables: Sequence[Table], column: str) -> list[IntArray]:
    """Return the owner indices [n] of each table from a column of owners, numbered by first appearance."""
    number: dict[Any, int] = {}
    found = []
    for table in tables:
        values = table.values(column)
        try:
            found.append(np.array([number.setdefault(value, len(number)) for value in values], dtype=np.int64))
        except TypeError as error:
            problem = f"{column} must hold texts or numbers, got {table.feature(column)}"
            raise DataError(table.where, problem, "name a column with the owner of each row") from error
    return found


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """Return 8-bit images [n, channels, height, width] as float32 from 0 to 1."""
    return torch.from_numpy(images.astype(np.float32)).div_(255)


def standardise(train: Tensor, test: Tensor) -> None:
    """Standardise each channel of the training and the test set [n, channels, ...], in place.

    Over the training samples, a channel then has mean 0 and deviation 1, or 0 if the channel is constant.
    """
    axes = (0, *range(2, train.ndim))
    deviation, mean = torch.std_mean(train, axes, correction=0, keepdim=True)
    deviation[deviation == 0] = 1
    for values in (train, test):
        values.sub_(mean).div_(deviation)

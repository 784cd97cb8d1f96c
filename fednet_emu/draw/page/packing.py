"""Pack the number arrays of a page into few bytes, which a browser can unpack without a library.

All arrays of a page form one block of bytes, which is compressed with zlib and encoded in base64. The script
`browser/core.js` reads the block.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ARRAY = "$array"
"""Key of the object that replaces an array in the document. Its value is [type, offset in bytes, length, flag]. The
flag is 1 if the array holds the differences of successive numbers, and otherwise 0."""
_INTEGERS = (np.uint8, np.int16, np.int32, np.int64)
_SAFE = 2**53
"""Integers up to this magnitude are exact in a browser."""


class Packer:
    """Collects arrays in a block of bytes, and replaces each array by a small object with its position in the block."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size_byte = 0

    def plain(self, content: Any) -> Any:
        """Return the content in a form that JSON can represent. Arrays are packed, and non-finite numbers become null.

        Args:
            content: mappings, sequences, strings, numbers, None, and one-dimensional NumPy arrays and series of
                numbers, truth values or strings.

        Raises:
            TypeError: the content has another type.
        """
        if isinstance(content, pd.Series):
            content = content.to_numpy()
        if isinstance(content, np.ndarray):
            return [self.plain(item) for item in content.tolist()] if content.dtype == object else self._packed(content)
        if isinstance(content, Mapping):
            return {str(key): self.plain(value) for key, value in content.items()}
        if isinstance(content, Sequence) and not isinstance(content, str | bytes):
            return [self.plain(item) for item in content]
        if isinstance(content, np.generic):
            content = content.item()
        if isinstance(content, float):
            return content if math.isfinite(content) else None
        if content is None or isinstance(content, str | int):
            return content
        raise TypeError(f"page: cannot hold {type(content).__name__}, got {content!r}; give numbers, texts or arrays")

    def block(self) -> str:
        """Return all arrays as compressed bytes in base64."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), 6)).decode("ascii")

    def _packed(self, numbers: NDArray[Any]) -> Mapping[str, list[Any]]:
        if numbers.ndim != 1:
            raise TypeError(f"page: arrays have one dimension, got {numbers.ndim}; ravel it")
        differences = 0
        if numbers.dtype == bool or np.issubdtype(numbers.dtype, np.integer):
            numbers, differences = _narrow(numbers.astype(np.int64))
        elif numbers.dtype not in (np.float32, np.float64):
            raise TypeError(f"page: cannot hold an array of {numbers.dtype}; give numbers, or a list of texts")
        kind = f"{numbers.dtype.kind}{numbers.dtype.itemsize}"
        place = {ARRAY: [kind, self._size_byte, len(numbers), differences]}
        little = numbers.astype(numbers.dtype.newbyteorder("<"))
        # order: first bytes of all numbers, second bytes of all numbers, ...; similar neighbouring bytes compress well
        planes = little.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T.tobytes()
        self._parts.append(planes)
        self._size_byte += len(planes)
        return place


def _narrow(numbers: NDArray[np.int64]) -> tuple[NDArray[Any], int]:
    """Return integers in the smallest type that can hold them, and 0.

    If the differences of successive integers need much less space, return these differences and 1.

    Raises:
        ValueError: a browser cannot represent the numbers exactly.
    """
    if not len(numbers):
        return numbers.astype(np.uint8), 0
    if max(abs(int(numbers.min())), abs(int(numbers.max()))) > _SAFE:
        raise ValueError(f"page: integers are exact up to 2^53, got {numbers.min()} to {numbers.max()}; give floats")
    steps = np.diff(numbers, prepend=np.int64(0))
    differences = int(np.abs(steps[1:]).max(initial=0) < np.abs(numbers).max() // 8)
    kept = steps if differences else numbers
    low, high = int(kept.min()), int(kept.max())
    kind = next(each for each in _INTEGERS if np.iinfo(each).min <= low and high <= np.iinfo(each).max)
    return kept.astype(kind), differences

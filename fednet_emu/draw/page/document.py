"""Assemble a page: one HTML file with styles, scripts, Plotly and data, without network access.

1. Python collects the content of the page as a document. It consists of mappings and lists of strings, numbers and
   one-dimensional NumPy arrays. A `Packer` packs all arrays into one block of bytes, which is compressed with zlib and
   encoded in base64, so columns with a million numbers are possible.
2. `page(title, document, scripts)` inserts the document into `browser/frame.html`, with the colours and names of
   `palette.py`, with `browser/style.css`, the scripts of `CORE`, and the page's own scripts from `browser/`.
3. A script of the page calls `fednet.page((document) => {...})`. The function receives the document with unpacked typed
   arrays, and builds the page with the functions of `browser/core.js`, `figure.js` and `table.js`: `fednet.section`,
   `fednet.figure`, `fednet.table`, `fednet.select`, ... Each function is documented at its definition.

The script of Plotly comes from the package `plotly`. It is compressed to a third of its size, and the browser unpacks
it. The content security policy in `frame.html` forbids the page to load anything.
"""

from __future__ import annotations

import base64
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from fednet_emu.analysis.scales import CARBON, COSTS, METRICS, RECORDED, TRADED
from fednet_emu.draw.palette import ACTIVITIES, DARK_LINE_COLOURS, LINE_COLOURS
from fednet_emu.files.writing import file_errors, write_text
from fednet_emu.records.folder import PACKAGES, versions
from fednet_emu.records.rows import KINDS

ARRAY = "$array"
"""Key of the JSON object that replaces an array in the document. Its value is [type, offset in bytes, length, flag].
The flag is 1 if the differences of successive numbers are stored in place of the numbers, and otherwise 0."""
_INTEGERS = (np.uint8, np.int16, np.int32, np.int64)
_SAFE = 2**53
"""Maximum absolute value of integers that JavaScript represents exactly."""


class Packer:
    """Encoder that stores arrays in a block of bytes, and replaces each array by an object with its position there."""

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
        """Return all stored arrays as one block of bytes, compressed with zlib and encoded in base64."""
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
    """Return integers [n] in the smallest integer type that can represent them, and the flag 0.

    If the differences of successive integers need less space, the differences [n] and the flag 1 are returned.

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


CORE = ("units.js", "core.js", "figure.js", "table.js")
"""Scripts that every page loads before its own scripts, in order."""
TITLES = {
    "rounds": ("Rounds", "count"),
    **{f"{kind}_bit": (kind.capitalize(), "bits") for kind in KINDS},
    **{cost.column: (cost.title, cost.kind) for cost in TRADED.values()},
    **{name: (title, "score") for name, title in METRICS.items()},
    **{cost.to_target: (f"{cost.title} to target", cost.kind) for cost in RECORDED.values()},
    COSTS[CARBON].column: (COSTS[CARBON].title, COSTS[CARBON].kind),
    "data_set": ("Data set", "text"),
    "device_count": ("Devices", "count"),
    "groups_formed": ("Groups formed", "score"),
    "cycle_s": ("Cycle", "time"),
}
"""Title and kind of values of table columns, by the name of the column. The kind determines the format of the values in
the browser. The title of any other column is its name."""


def page(title: str, document: Mapping[str, Any], scripts: Sequence[str]) -> str:
    """Return a page as HTML.

    Args:
        title: the title of the page and its first heading.
        document: the content that the scripts receive; see `Packer.plain` for allowed types.
        scripts: file names of the page's own scripts in `browser/`, in order.
    """
    packer = Packer()
    content = json.dumps(packer.plain(document), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    parts = {
        "title": html.escape(title),
        "version": html.escape(versions()[PACKAGES[0]]),
        "style": f"{palette()}\n{browser_file('style.css')}",
        "plotly": _plotly(),
        "arrays": packer.block(),
        "document": content.replace("<", "\\u003c"),
        "scripts": "\n".join([vocabulary(), *(browser_file(name) for name in (*CORE, *scripts))]),
    }
    before, *pieces = browser_file("frame.html").split("{{")
    filled = [parts[name] + text for name, text in (piece.split("}}", 1) for piece in pieces)]
    return "".join([before, *filled])


def write_page(path: Path, title: str, document: Mapping[str, Any], scripts: Sequence[str]) -> Path:
    """Write a page to a file atomically, and return the path of the file. See `page` for the other arguments.

    Parent folders are created if they do not exist.

    Raises:
        DataError: the file cannot be written.
    """
    with file_errors(path.parent, "made"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page(title, document, scripts))
    return path


def columns_of(table: pd.DataFrame, titles: Mapping[str, tuple[str, str]] = TITLES) -> list[dict[str, Any]]:
    """Return the columns of a table, each as a mapping with name, title, kind and values (numbers or strings)."""
    found: list[dict[str, Any]] = []
    for name, values in table.items():
        title, kind = titles.get(str(name), (str(name), "number"))
        told: Any = values.to_numpy(np.float64) if is_numeric_dtype(values) and not is_bool_dtype(values) else None
        if told is None:
            kind, told = "text", [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
        found.append({"name": str(name), "title": title, "kind": kind, "values": told})
    return found


def palette() -> str:
    """Return CSS variables with the colours of activities and lines, for the light and the dark theme."""
    light = {name: its.colour for name, its in ACTIVITIES.items()}
    dark = {name: its.dark for name, its in ACTIVITIES.items()}
    light |= {f"line-{place}": colour for place, colour in enumerate(LINE_COLOURS)}
    dark |= {f"line-{place}": colour for place, colour in enumerate(DARK_LINE_COLOURS)}
    themes = ((":root", light), (':root[data-theme="dark"]', dark))
    return "\n".join(
        f"{where} {{ {' '.join(f'--{name}: {colour};' for name, colour in known.items())} }}" for where, known in themes
    )


def vocabulary() -> str:
    """Return a JavaScript statement with the names of activities, costs and scores, and the number of line colours."""
    known = {
        "activities": {name: its.title for name, its in ACTIVITIES.items()},
        "costs": {name: {"title": its.title, "column": its.column} for name, its in RECORDED.items()},
        "metrics": METRICS,
        "lines": len(LINE_COLOURS),
    }
    return f'"use strict";\nconst vocabulary = {json.dumps(known)};'


def browser_file(name: str) -> str:
    """Return the text of the file `name` in the folder `browser`, which contains the scripts and styles of pages."""
    return (files("fednet_emu.draw.page") / "browser" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return base64.b64encode(zlib.compress(get_plotlyjs().encode(), 9)).decode("ascii")

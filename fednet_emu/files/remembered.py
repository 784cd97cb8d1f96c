"""Cache for files that are read both before and during a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeVar

from fednet_emu.files.data_folder import is_file

Content = TypeVar("Content")


def remembered(read: Callable[[Path], Content]) -> Callable[[Path], Content]:
    """Cache the result of `read` for the last file that was read, until this file changes.

    Callers must not modify the result.
    """

    @lru_cache(maxsize=1)
    def kept(path: Path, _size_byte: int, _changed_ns: int) -> Content:
        return read(path)

    @wraps(read)
    def reading(path: Path) -> Content:
        if not is_file(path):  # the time stamp of a folder does not change with the files inside
            return read(path)
        state = path.stat()
        return kept(path, state.st_size, state.st_mtime_ns)

    return reading

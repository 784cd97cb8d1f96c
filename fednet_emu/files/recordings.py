"""Finding and reading files of recorded data: single files, folders and archives alike."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.errors import DataError
from fednet_emu.limits import MAX_RECORDING_BYTE

_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
_AGAIN = "fetch the file again"
_UNPACKS: Mapping[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {".gz": gzip.open, ".xz": lzma.open}


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked when its name ends in .gz or .xz.

    Raises:
        DataError: It cannot be read or unpacked, or is too large.
    """
    try:
        with path.open("rb") as stream:
            return _Reader(path).read(path.name, stream)
    except _BROKEN as error:
        raise DataError(str(path), f"cannot be read ({error})", _AGAIN) from error


def read_texts(path: Path, select: str = "*") -> Iterator[tuple[str, str]]:
    """Names and texts of the selected files of a folder or archive (.zip, .tar, .tar.gz, .tar.xz), by name.

    A single file, plain, .gz or .xz, is one text, whatever `select` says; in that pattern of the names inside, with /
    between folders, `*` matches any characters, / too.

    Raises:
        DataError: Something cannot be read, is no text in UTF-8 or too large, or nothing is selected.
    """
    found = False
    for name, content in _contents(path, select):
        found = True
        try:
            yield name, content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{name}", f"is not text ({error})", "select the text files only") from error
    if not found:
        raise DataError(str(path), f"holds no file that is called {select!r}", "correct `select` or `path`")


def read_columns(where: str, text: str, columns: int) -> Array:
    """Numbers [columns, rows] of a text with one row per line, separated by blanks or tabs.

    Raises:
        DataError: It is empty, has another number of columns, or holds something that is not a finite number.
    """
    how = f"{columns} numbers in each line, separated by blanks, are right"
    if not text.strip():
        raise DataError(where, "is empty", how)
    try:
        table = np.loadtxt(io.StringIO(text), ndmin=2)
    except ValueError as error:
        raise DataError(where, f"cannot be read as numbers ({error})", how) from error
    if table.shape[1] != columns:
        raise DataError(where, f"has {table.shape[1]} columns", how)
    if not np.isfinite(table).all():
        row = int(np.argmin(np.isfinite(table).all(axis=1)))
        raise DataError(where, f"row {row + 1} is not finite, got {table[row].tolist()}", "drop such rows")
    return np.ascontiguousarray(table.T)


def check_size(path: Path, size_byte: int) -> None:
    """Check what a file or archive holds against the limit: a few kilobytes may unpack to any size.

    Raises:
        DataError: It is too much.
    """
    if size_byte > MAX_RECORDING_BYTE:
        problem = f"holds more than {MAX_RECORDING_BYTE / 2**30:g} GiB when unpacked"
        raise DataError(str(path), problem, "keep only the recordings that the scenario uses")


class _Reader:
    """Reads what one file or archive holds, up to the limit for all of it."""

    def __init__(self, path: Path) -> None:
        self._path, self._read_byte = path, 0

    def read(self, name: str, stream: IO[bytes]) -> bytes:
        """Read a stream to its end, unpacked when its name ends in .gz or .xz."""
        unpacks = _UNPACKS.get(name[-3:], nullcontext)
        with unpacks(stream) as unpacked:
            content: bytes = unpacked.read(MAX_RECORDING_BYTE - self._read_byte + 1)
        self._read_byte += len(content)
        check_size(self._path, self._read_byte)
        return content


def _contents(path: Path, select: str) -> Iterator[tuple[str, bytes]]:
    reader = _Reader(path)
    try:
        if path.is_dir():
            names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
            for name in _selected(names, select):
                with (path / name).open("rb") as stream:
                    yield name, reader.read(name, stream)
        elif path.name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                for name in _selected(sorted(archive.namelist()), select):
                    with archive.open(name) as stream:
                        yield name, reader.read(name, stream)
        elif path.name.endswith((".tar", ".tar.gz", ".tgz", ".tar.xz")):
            yield from _tar_contents(path, select, reader)
        else:
            with path.open("rb") as stream:
                yield path.name, reader.read(path.name, stream)
    except _BROKEN as error:
        raise DataError(str(path), f"cannot be read ({error})", _AGAIN) from error


def _tar_contents(path: Path, select: str, reader: _Reader) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        members, whole_byte = {}, 0
        for member in archive:
            whole_byte += member.size
            check_size(path, whole_byte)  # before the next member is looked for, which unpacks this one
            if member.isfile():
                members[member.name] = member
        wanted = set(_selected(list(members), select))
        # in the order of the archive: a compressed one cannot be read out of order without starting again
        contents = {}
        for name, member in members.items():
            if name in wanted and (stream := archive.extractfile(member)) is not None:
                contents[name] = reader.read(name, stream)
    yield from sorted(contents.items())


def _selected(names: list[str], select: str) -> list[str]:
    """The names that match, without folders and what macOS adds to archives."""
    return [
        name
        for name in names
        if fnmatchcase(name, select)
        and not name.endswith("/")
        and not name.startswith("__MACOSX/")
        and not name.rpartition("/")[2].startswith(".")
    ]

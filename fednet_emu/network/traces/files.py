"""Finding and reading files of recorded data: single files, folders and archives alike."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.errors import DataError

_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
_AGAIN = "fetch the file again"


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked when its name ends in .gz or .xz.

    Raises:
        DataError: It cannot be read or unpacked.
    """
    try:
        return _unpacked(path.name, path.read_bytes())
    except _BROKEN as error:
        raise DataError(str(path), f"cannot be read ({error})", _AGAIN) from error


def read_texts(path: Path, select: str = "*") -> Iterator[tuple[str, str]]:
    """Names and texts of the selected files of a folder or archive (.zip, .tar, .tar.gz, .tar.xz), by name.

    A single file, plain, .gz or .xz, is one text, whatever `select` says.

    Args:
        path: The folder, archive or file.
        select: Pattern of the names inside, with / between folders; `*` matches any characters, / too.

    Raises:
        DataError: Something cannot be read, is no text in UTF-8, or nothing is selected.
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


def _contents(path: Path, select: str) -> Iterator[tuple[str, bytes]]:
    try:
        if path.is_dir():
            names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
            for name in _selected(names, select):
                yield name, _unpacked(name, (path / name).read_bytes())
        elif path.name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                for name in _selected(sorted(archive.namelist()), select):
                    yield name, _unpacked(name, archive.read(name))
        elif path.name.endswith((".tar", ".tar.gz", ".tgz", ".tar.xz")):
            yield from _tar_contents(path, select)
        else:
            yield path.name, _unpacked(path.name, path.read_bytes())
    except _BROKEN as error:
        raise DataError(str(path), f"cannot be read ({error})", _AGAIN) from error


def _tar_contents(path: Path, select: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        members = {member.name: member for member in archive if member.isfile()}
        wanted = set(_selected(list(members), select))
        # in the order of the archive: a compressed one cannot be read out of order without starting again
        contents = {}
        for name, member in members.items():
            if name in wanted and (stream := archive.extractfile(member)) is not None:
                contents[name] = _unpacked(name, stream.read())
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


def _unpacked(name: str, content: bytes) -> bytes:
    if name.endswith(".gz"):
        return gzip.decompress(content)
    if name.endswith(".xz"):
        return lzma.decompress(content)
    return content

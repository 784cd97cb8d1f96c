"""Read files of recorded data, which are a single file, or selected files of a folder or archive."""

from __future__ import annotations

import codecs
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from fednet_emu.errors import DataError
from fednet_emu.limits import MAX_RECORDING_BYTE

_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
_AGAIN = "fetch the file again"
_GZIP = b"\x1f\x8b"
_UNPACKS: Mapping[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {".gz": gzip.open, ".xz": lzma.open}


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. The content is unpacked if it is gzip data or if the name ends with .gz or .xz.

    Raises:
        DataError: The file cannot be read or unpacked, or is too large.
    """
    try:
        with path.open("rb") as stream:
            return _Reader(path).read(path.name, stream)
    except _BROKEN as error:
        raise DataError(str(path), f"cannot be read ({error})", _AGAIN) from error


def read_texts(path: Path, select: str = "*") -> Iterator[tuple[str, str]]:
    """Yield the name and text of each selected file in a folder or archive, sorted by name.

    An archive is a .zip, .tar, .tar.gz or .tar.xz file. `select` is a pattern for the names inside the folder or
    archive, with / between folders; `*` matches any characters, including /. If `path` is a single file (plain, gzip or
    .xz), this file is read, and `select` is ignored.

    Raises:
        DataError: A file cannot be read, is not text or is too large, or no file is selected.
    """
    found = False
    for name, content in _contents(path, select):
        found = True
        yield name, decoded(str(path) if path.is_file() and name == path.name else f"{path}:{name}", content)
    if not found:
        raise DataError(str(path), f"holds no file that is called {select!r}", "correct `select` or `path`")


def read_text(path: Path) -> str:
    """Return the text of a file (plain, gzip or .xz); see `decoded`.

    Raises:
        DataError: The file cannot be read, is not text, or is too large.
    """
    return decoded(str(path), read_bytes(path))


def decoded(where: str, content: bytes) -> str:
    r"""Return the text of `content`, which is encoded in UTF-8, or in UTF-16 with a byte order mark.

    The byte order mark is removed, and the ends of lines become `\n`. `where` is the name of the text in errors.

    Raises:
        DataError: The content is not text in these encodings.
    """
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(where, f"is not text ({error})", "give or select text files in UTF-8") from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def check_size(path: Path, size_byte: int) -> None:
    """Raise a `DataError` if the unpacked size of a file or archive, `size_byte`, exceeds the limit.

    The limit is necessary because a few kilobytes can unpack to a huge size.
    """
    if size_byte > MAX_RECORDING_BYTE:
        problem = f"holds more than {MAX_RECORDING_BYTE / 2**30:g} GiB when unpacked"
        raise DataError(str(path), problem, "keep only the recordings that the scenario uses")


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path, self._read_byte = path, 0

    def read(self, name: str, stream: Any) -> bytes:
        packed = stream.peek(2).startswith(_GZIP)
        unpacks = gzip.open if packed else _UNPACKS.get(name[-3:], nullcontext)
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
            check_size(path, whole_byte)  # the next iteration unpacks this member
            if member.isfile():
                members[member.name] = member
        wanted = set(_selected(list(members), select))
        # in the order of the archive, because each step back in a compressed archive unpacks from the start
        contents = {}
        for name, member in members.items():
            if name in wanted and (stream := archive.extractfile(member)) is not None:
                contents[name] = reader.read(name, stream)
    yield from sorted(contents.items())


def _selected(names: list[str], select: str) -> list[str]:
    return [
        name
        for name in names
        if fnmatchcase(name, select)
        and not name.endswith("/")
        and not name.startswith("__MACOSX/")
        and not name.rpartition("/")[2].startswith(".")
    ]

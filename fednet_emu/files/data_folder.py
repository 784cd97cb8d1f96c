"""Check and resolve paths that users specify, and locate files in the folder of recorded data and data sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from fednet_emu.errors import DataError, FednetError
from fednet_emu.limits import is_unicode


def is_file(path: Path) -> bool:
    """Return True if a file exists at `path`; False for a path that is too long or contains a null byte."""
    return os.path.isfile(path)


def exists(path: Path) -> bool:
    """Return True if a regular file or folder exists at `path`; return False for device files and pipes."""
    return os.path.isfile(path) or os.path.isdir(path)


def expanded(path: Path) -> Path | None:
    """Return `path` with a leading `~` or `~user` expanded to the home directory; None if the user is unknown."""
    try:
        return path.expanduser()
    except RuntimeError:
        return None


def folder_to_write(path: Path | str, option: str) -> Path:
    """Return the path of a folder for results, in which `~` is replaced by the home folder. The folder may not exist.

    Raises:
        FednetError: no folder can have this name. The message begins with `option`, the name of the option.
    """
    found = expanded(Path(path))
    if found is None:
        raise FednetError(f"{option}: no such user, got '{path}'; write the path of the folder")
    if not is_unicode(str(found)) or "\0" in str(found):
        raise FednetError(f"{option}: must be text, got {str(path)!r}; choose another name")
    try:
        found.exists()
    except OSError as error:
        raise FednetError(
            f"{option}: cannot be a folder ({error.strerror}), got '{path}'; choose another name"
        ) from error
    return found


DATA_VARIABLE = "FEDNET_DATA"


Read = dict[str, Path]
"""Paths of the data files and folders that were read, by the names with which they were requested."""

_noted: ContextVar[Read | None] = ContextVar("noted", default=None)
_LIBRARY = "channels"
_PACKAGE = Path(__file__).resolve().parents[1]


def data_folder(data_dir: Path | str | None) -> Path | None:
    """Return the folder of data files, which is `data_dir` or else the value of the environment variable FEDNET_DATA.

    The result is None if neither is given.

    Raises:
        DataError: the folder begins with `~user`, and the user is unknown.
    """
    named = data_dir or os.environ.get(DATA_VARIABLE)
    if not named:
        return None
    folder = expanded(Path(named))
    if folder is None:
        raise DataError(str(named), "no such user", f"write the path of the folder for --data-dir or {DATA_VARIABLE}")
    return folder


def locate(name: str, data_dir: Path | None) -> Path:
    """Return the path of the file or folder `name`, which is looked up in the data folder and then the current folder.

    Names that begin with `channels/` are also looked up in the library of the package and in the source checkout.

    Raises:
        DataError: the file or folder exists in none of these folders.
    """
    folder = data_folder(data_dir)
    wanted = expanded(Path(name)) or Path(name)
    candidates = [wanted] if folder is None else [folder / wanted, wanted]
    if Path(name).parts[:1] == (_LIBRARY,):
        candidates += [_PACKAGE / "library" / name, _PACKAGE.parent / name]
    for path in candidates:
        if exists(path):
            return note(name, path)
    remedy = f"give it in full, or relative to the current folder or to that of --data-dir or {DATA_VARIABLE}"
    raise DataError(str(candidates[0]), "not found", remedy)


@contextmanager
def noting() -> Iterator[Read]:
    """Context manager that collects the names and paths of the data files and folders that this thread reads."""
    read: Read = {}
    before = _noted.set(read)
    try:
        yield read
    finally:
        _noted.reset(before)


def note(name: str, path: Path) -> Path:
    """Record the name and path of a file or folder that will be read (see `noting`), and return the path."""
    read = _noted.get()
    if read is not None:
        read[name] = path
    return path


def checksum(path: Path) -> str:
    """Return the BLAKE2b checksum of a file, or of the names and contents of all files in a folder."""
    digest = blake2b(digest_size=16)
    for file in [path] if path.is_file() else sorted(its for its in path.rglob("*") if its.is_file()):
        if file != path:
            digest.update(file.relative_to(path).as_posix().encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


Content = TypeVar("Content")


def remembered(read: Callable[[Path], Content]) -> Callable[[Path], Content]:
    """Decorate the function `read` with a cache for the last file that was read. It is valid until this file changes.

    Callers must not modify the result, because later callers receive the same object.
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

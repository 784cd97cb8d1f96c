"""The data folder: where recorded data and data sets are, which are never part of the package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path

from fednet_emu.errors import DataError

DATA_VARIABLE = "FEDNET_DATA"
"""The environment variable that names the data folder when the command does not."""


Read = dict[str, Path]
"""Files and folders of data that were read, by the names that they were asked for by."""

_noted: ContextVar[Read | None] = ContextVar("noted", default=None)
_LIBRARY = "channels"
_PACKAGE = Path(__file__).resolve().parent


def data_folder(data_dir: Path | str | None) -> Path | None:
    """The folder of data files: the one given, else the one named by FEDNET_DATA, else none."""
    named = data_dir or os.environ.get(DATA_VARIABLE)
    return Path(named) if named else None


def locate(name: str, data_dir: Path | None) -> Path:
    """The file or folder of this name: in the data folder first, then where the program was started.

    Names that begin with `channels/` are also sought in the library of the package, and in the checkout around it.

    Raises:
        DataError: It is in none of these places.
    """
    folder = data_folder(data_dir)
    candidates = [Path(name)] if folder is None else [folder / name, Path(name)]
    if Path(name).parts[:1] == (_LIBRARY,):
        candidates += [_PACKAGE / "library" / name, _PACKAGE.parent / name]
    for path in candidates:
        if path.exists():
            return note(name, path)
    remedy = f"give it in full, or relative to the current folder or to that of --data-dir or {DATA_VARIABLE}"
    raise DataError(str(candidates[0]), "not found", remedy)


@contextmanager
def noting() -> Iterator[Read]:
    """What is read inside, in this thread."""
    read: Read = {}
    before = _noted.set(read)
    try:
        yield read
    finally:
        _noted.reset(before)


def note(name: str, path: Path) -> Path:
    """Say that a file or folder is about to be read; gives it back."""
    read = _noted.get()
    if read is not None:
        read[name] = path
    return path


def checksum(path: Path) -> str:
    """BLAKE2b of a file, or of the names and contents of all files in a folder."""
    digest = blake2b(digest_size=16)
    for file in [path] if path.is_file() else sorted(its for its in path.rglob("*") if its.is_file()):
        if file != path:
            digest.update(file.relative_to(path).as_posix().encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()

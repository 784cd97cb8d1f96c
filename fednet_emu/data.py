"""The data folder: where recorded data and data sets are, which are never part of the package."""

from __future__ import annotations

import os
from pathlib import Path

from fednet_emu.errors import DataError

DATA_VARIABLE = "FEDNET_DATA"
"""The environment variable that names the data folder when the command does not."""


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
            return path
    remedy = f"give it in full, or relative to the current folder or to that of --data-dir or {DATA_VARIABLE}"
    raise DataError(str(candidates[0]), "not found", remedy)

"""The data folder: where recorded data and data sets are, which are never part of the package."""

from __future__ import annotations

import os
from pathlib import Path

from fednet_emu.errors import DataError

DATA_VARIABLE = "FEDNET_DATA"
"""The environment variable that names the data folder when the command does not."""


def data_folder(data_dir: Path | None) -> Path | None:
    """The folder of data files: the one given, else the one named by FEDNET_DATA, else none."""
    if data_dir is not None:
        return data_dir
    named = os.environ.get(DATA_VARIABLE)
    return Path(named) if named else None


def locate(name: str, data_dir: Path | None) -> Path:
    """The file or folder of this name: in the data folder first, then where the program was started.

    Raises:
        DataError: It is in neither place.
    """
    folder = data_folder(data_dir)
    candidates = [Path(name)] if folder is None else [folder / name, Path(name)]
    for path in candidates:
        if path.exists():
            return path
    remedy = f"give it in full, or relative to the current folder or to that of --data-dir or {DATA_VARIABLE}"
    raise DataError(str(candidates[0]), "not found", remedy)

"""The library `datasets` of Hugging Face: tables from local files, or from its hub if that is asked for."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.data_folder import note

CACHE = "hugging_face"
"""Folder inside the data folder in which the library keeps what it downloads."""

_READERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv", ".arrow": "arrow"}
_SAVED = ("dataset_dict.json", "state.json")
"""Files of which a folder written by `save_to_disk` has one."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_ALONE = threading.RLock()
"""Lock of the libraries' settings, which all threads of the process share."""

Splits = dict[str, Any]
"""Tables (`datasets.Dataset`) by the name of the split."""


def library() -> Any:
    """Import `datasets`, which is told to send no reports of its use.

    Raises:
        ScenarioError: it is not installed, or incomplete.
    """
    for variable, value in (("HF_HUB_DISABLE_TELEMETRY", "1"), ("HF_UPDATE_DOWNLOAD_COUNTS", "0")):
        os.environ.setdefault(variable, value)  # before it is imported, or it is too late
    try:
        return import_module("datasets")
    except ImportError as error:
        problem = f"datasets is not installed or incomplete ({' '.join(str(error).split())}), got kind 'hugging-face'"
        raise ScenarioError(f"data: {problem}; pip install 'fednet-emu[hugging-face]'") from error


@contextmanager
def local_splits(path: Path, config: str | None, only: str) -> Iterator[Splits]:
    """Context manager: the tables of a file or folder, which are valid inside the block. Nothing is downloaded.

    A folder is what `save_to_disk` wrote, or has data files with their splits in their names or in a README.md, as in a
    repository of the hub. Parquet, JSON and CSV files are converted in a temporary folder.

    Args:
        path: the file or folder, which exists.
        config: name of the configuration; None takes the only one.
        only: the split that a table is which has no splits.

    Raises:
        DataError: the library cannot read it.
    """
    datasets, saved = library(), any((path / name).is_file() for name in _SAVED)
    reader = _reader(path) if path.is_file() else None
    if config is not None and (saved or reader):
        what = "only data files in a folder have configurations"
        raise DataError(str(path), f"{what}, got config '{config}'", "leave `config` out")
    with TemporaryDirectory(prefix="fednet-data-", ignore_cleanup_errors=True) as cache, _set_up(None):
        try:
            if reader:
                found = datasets.load_dataset(reader, data_files={only: str(path)}, cache_dir=cache)
            elif saved:
                found = datasets.load_from_disk(str(path))
            else:
                found = datasets.load_dataset(str(path), config, cache_dir=cache)
        except Exception as error:
            remedy = "give Parquet, JSON, CSV or Arrow files, or a folder that `save_to_disk` wrote"
            raise DataError(str(path), f"cannot be read by the library datasets ({_text(error)})", remedy) from error
        yield {only: found} if isinstance(found, datasets.Dataset) else dict(found)


@contextmanager
def hub_splits(
    name: str, config: str | None, revision: str | None, folder: Path | None, *, download: bool
) -> Iterator[Splits]:
    """Context manager: the tables of the data set `owner/name` of the hub, which are kept in the data folder.

    Args:
        config: name of the configuration; None takes the only one.
        revision: commit, branch or tag on the hub; None takes the newest.
        download: whether what is not in the data folder is downloaded; otherwise no connection is made.

    Raises:
        DataError: it is not there, cannot be downloaded, or cannot be read.
    """
    datasets = library()
    if not _HUB_NAME.fullmatch(name):
        remedy = "write the path of a file or folder, or the owner/name of a data set on the hub"
        raise DataError(name, "not found, and no name on the hub of Hugging Face", remedy)
    if folder is None:
        raise DataError(name, "no data folder is given", "pass --data-dir, or let FEDNET_DATA name it")
    cache = folder / CACHE
    with _set_up(cache if download else None, download=download):
        try:
            found = datasets.load_dataset(name, config, revision=revision, cache_dir=str(cache))
        except Exception as error:
            if download:
                problem, remedy = "cannot be fetched from the hub of Hugging Face", "check the name and the network"
            else:
                problem = f"neither a file or folder nor in {cache}, where data sets of the hub are kept"
                remedy = "correct the path, or fetch it with `--set data.download=true`"
            raise DataError(name, f"{problem} ({_text(error)})", remedy) from error
        for file in [Path(part["filename"]) for table in found.values() for part in table.cache_files]:
            note(file.relative_to(folder).as_posix(), file)
        yield dict(found)


def _reader(path: Path) -> str:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise DataError(str(path), f"no table that is known by its ending, got '{path.suffix}'", f"use one of {known}")
    return reader


@contextmanager
def _set_up(hub_cache: Path | None, *, download: bool = False) -> Iterator[None]:
    """Inside the block the libraries make no connection unless they may download, and draw no bars for local files.

    Other threads that read tables wait meanwhile.
    """
    with _ALONE:
        yield from _settings(hub_cache, download=download)


def _settings(hub_cache: Path | None, *, download: bool) -> Iterator[None]:
    datasets, constants = import_module("datasets"), import_module("huggingface_hub.constants")
    settings: list[tuple[Any, str, Any]] = [
        (constants, "HF_HUB_OFFLINE", not download),
        (datasets.config, "HF_HUB_OFFLINE", not download),
    ]
    if hub_cache is not None:
        settings.append((constants, "HF_HUB_CACHE", str(hub_cache / "hub")))
    before = [(module, name, getattr(module, name)) for module, name, _ in settings]
    bars, level = not datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    if not download:
        datasets.disable_progress_bars()
        datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what is wrong is said by the error
    try:
        for module, name, value in settings:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        datasets.logging.set_verbosity(level)
        if bars:
            datasets.enable_progress_bars()


def _text(error: Exception) -> str:
    """What the libraries say, with the cause where they only say that something failed."""
    said = " ".join(str(error.__cause__ or error).split())
    return f"{type(error).__name__}: {said[:300]}"

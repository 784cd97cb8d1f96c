"""The run folder: written atomically, never overwritten by mistake; an interrupted run is recognised by its status."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fednet_emu.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "manifest.json"
SCENARIO = "scenario.yaml"
LOCK = ".lock"
STATUSES = ("running", "done", "diverged", "interrupted", "failed")
FINISHED = ("done", "diverged")
"""Statuses of finished runs, which are not resumed."""
PACKAGES = ("fednet-emu", "torch", "numpy", "scipy", "simpy", "pandas", "pyarrow")


class RunFolder:
    """The folder of one run; `manifest.json` holds its status: running, done, diverged, interrupted or failed."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self._lock = lock

    @staticmethod
    def check(path: Path, scenario_text: str, *, timing_only: bool = False, force: bool = False) -> None:
        """Check that a run of this scenario may be written to this folder.

        Raises:
            DataError: the folder holds something other than a run, or, without `force`, a finished run or an unfinished
                run of another scenario.
        """
        manifest = _manifest(path / MANIFEST)
        if manifest is None:
            if path.exists() and (not path.is_dir() or any(child.name != LOCK for child in path.iterdir())):
                raise DataError(str(path), "exists and is not a run folder", "choose another --out")
            return
        remedy = "pass --force to overwrite it, or choose another --out"
        if manifest["status"] in FINISHED and not force:
            raise DataError(str(path), "holds a finished run", remedy)
        same = bool(manifest.get("timing_only")) == timing_only and _text(path / SCENARIO) == scenario_text
        if not same and not force:
            raise DataError(str(path), "holds an unfinished run of another scenario", remedy)

    @classmethod
    def create(cls, path: Path, scenario_text: str, *, force: bool = False, **facts: Any) -> RunFolder:
        """Create and lock the folder of a new run; the files of an unfinished run are replaced.

        Args:
            path: the folder.
            scenario_text: the resolved scenario.
            force: whether to overwrite runs that `check` would otherwise refuse.
            facts: entries of the manifest: name, seed, timing_only.

        Raises:
            DataError: as for `check`, or another process writes to the folder, or it cannot be created.
        """
        path, timing_only = path.resolve(), bool(facts.get("timing_only"))
        cls.check(path, scenario_text, timing_only=timing_only, force=force)
        lock = FileLock(path / LOCK)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise DataError(str(path), "is being written by another run", "choose another --out") from None
        except OSError as error:
            raise DataError(str(path), f"cannot be made ({error.strerror})", "choose another --out") from None
        folder = cls(path, lock)
        try:
            cls.check(path, scenario_text, timing_only=timing_only, force=force)  # again, now that the folder is locked
        except DataError:
            folder.release()
            raise
        folder._clear()
        folder.write_manifest("running", **facts)
        folder.write_text(SCENARIO, scenario_text)
        return folder

    @staticmethod
    def status(path: Path) -> str | None:
        """Status of the run in a folder, one of STATUSES; None if there is no run."""
        manifest = _manifest(path / MANIFEST)
        return None if manifest is None else str(manifest["status"])

    def _clear(self) -> None:
        for child in self.path.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            elif child.name != LOCK:
                child.unlink()

    def release(self) -> None:
        """Unlock the folder for other processes; this also happens when the process ends."""
        self._lock.release()
        (self.path / LOCK).unlink(missing_ok=True)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file at once or not at all."""
        write_text(self.path / name, text)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file at once or not at all; what is not a number is null."""
        write_json(self.path / name, content)

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a Parquet table at once or not at all."""
        write_table(self.path / f"{name}.parquet", table)

    def write_bytes(self, name: str, write: Callable[[Path], Any]) -> None:
        """Write a file atomically; `write` is called with the path to write to."""
        _atomically(self.path / name, write)

    def write_manifest(self, status: str, **facts: Any) -> None:
        """Write `manifest.json` with the status of the run, package versions, the host and further facts."""
        host = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
        versions = {package: version(package) for package in PACKAGES}
        written = datetime.now(UTC).isoformat(timespec="seconds")
        self.write_json(MANIFEST, {"status": status, **facts, "written": written, "versions": versions, "host": host})


def write_text(path: Path, text: str) -> None:
    """Write a text file at once or not at all."""
    _atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file at once or not at all; what is not a number is null."""
    write_text(path, json.dumps(_finite(content), indent=2, allow_nan=False) + "\n")


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a Parquet table at once or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = pa.Table.from_pandas(table, preserve_index=False)
    _atomically(path, lambda part: pq.write_table(arrow, part, compression="zstd"))


def _manifest(path: Path) -> dict[str, Any] | None:
    """Read the manifest of a run; None if it is not one of this package, which must not be overwritten."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        ours = PACKAGES[0] in content["versions"] and content["status"] in STATUSES
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return content if ours else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _atomically(path: Path, write: Callable[[Path], Any]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)

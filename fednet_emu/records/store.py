"""The run folder: written atomically, recognisable when a run died, never overwritten by accident."""

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
"""How runs end that are not gone on with."""
PACKAGES = ("fednet-emu", "torch", "numpy", "scipy", "simpy", "pandas", "pyarrow")


class RunFolder:
    """One run's folder. `manifest.json` says how far it came: running, done, diverged, interrupted or failed."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self._lock = lock

    @staticmethod
    def check(path: Path, scenario_text: str, *, timing_only: bool = False, force: bool = False) -> None:
        """Make sure that a run of this scenario may be written here.

        Raises:
            DataError: the folder holds something that is no run, or, without `force`, a finished run or an unfinished
                one of another scenario.
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
        """A fresh folder for a run, which no other process may write to; what an unfinished run left is replaced.

        Args:
            path: the folder.
            scenario_text: the resolved scenario.
            force: whether to overwrite what `check` would keep.
            facts: for the manifest: name, seed, timing_only.

        Raises:
            DataError: as `check`, or the folder is being written, or cannot be made.
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
            cls.check(path, scenario_text, timing_only=timing_only, force=force)  # now that nobody else can finish one
        except DataError:
            folder.release()
            raise
        folder._clear()
        folder.write_manifest("running", **facts)
        folder.write_text(SCENARIO, scenario_text)
        return folder

    @staticmethod
    def status(path: Path) -> str | None:
        """How far the run in a folder came, one of STATUSES; None where there is no run."""
        manifest = _manifest(path / MANIFEST)
        return None if manifest is None else str(manifest["status"])

    def _clear(self) -> None:
        for child in self.path.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            elif child.name != LOCK:
                child.unlink()

    def release(self) -> None:
        """Let other processes write to the folder again; the end of the process does so, too."""
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
        """Let `write` make a file, at once or not at all."""
        _atomically(self.path / name, write)

    def write_manifest(self, status: str, **facts: Any) -> None:
        """Say how far the run came, with what versions, on what host."""
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
    """The manifest of a run; None when it is not one of ours, which nobody may overwrite."""
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

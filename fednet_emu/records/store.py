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
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fednet_emu.errors import DataError

MANIFEST = "manifest.json"
STATUSES = ("running", "done", "interrupted", "failed")
PACKAGES = ("fednet-emu", "torch", "numpy", "scipy", "simpy", "pandas", "pyarrow")


class RunFolder:
    """One run's folder. `manifest.json` says how far it came: running, done, interrupted or failed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def check(path: Path, *, force: bool = False) -> None:
        """Make sure that a run may be written here.

        Raises:
            DataError: the folder holds a finished run and `force` is not given, or something that is no run at all.
        """
        status = _status(path / MANIFEST)
        if status == "done" and not force:
            raise DataError(str(path), "holds a finished run", "pass --force to overwrite it, or choose another --out")
        if status is None and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DataError(str(path), "exists and is not a run folder", "choose another --out")

    @classmethod
    def create(cls, path: Path, *, force: bool = False) -> RunFolder:
        """A fresh folder for a run; what an unfinished run left there is replaced.

        Raises:
            DataError: as `check`, or the folder cannot be made.
        """
        cls.check(path, force=force)
        try:
            if path.exists():
                shutil.rmtree(path)
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(str(path), f"cannot be made ({error.strerror})", "choose another --out") from None
        return cls(path)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file at once or not at all."""
        _atomically(self.path / name, lambda part: part.write_text(text, encoding="utf-8"))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file at once or not at all; what is not a number is null."""
        self.write_text(name, json.dumps(_finite(content), indent=2, allow_nan=False) + "\n")

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a Parquet table at once or not at all."""
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        _atomically(self.path / f"{name}.parquet", lambda part: pq.write_table(arrow, part, compression="zstd"))

    def write_bytes(self, name: str, write: Callable[[Path], Any]) -> None:
        """Let `write` make a file, at once or not at all."""
        _atomically(self.path / name, write)

    def write_manifest(self, status: str, **facts: Any) -> None:
        """Say how far the run came, with what versions, on what host."""
        host = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
        versions = {package: version(package) for package in PACKAGES}
        written = datetime.now(UTC).isoformat(timespec="seconds")
        self.write_json(MANIFEST, {"status": status, **facts, "written": written, "versions": versions, "host": host})


def _status(manifest: Path) -> str | None:
    """How far the run of a manifest came; None when it is not the manifest of a run, which nobody may overwrite."""
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        ours = PACKAGES[0] in content["versions"] and content["status"] in STATUSES
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return str(content["status"]) if ours else None


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

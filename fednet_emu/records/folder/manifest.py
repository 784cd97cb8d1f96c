"""The manifest of a run folder: facts about the run, the run's status, and the files that the run has written."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fednet_emu.errors import DataError
from fednet_emu.files.writing import flaw

MANIFEST = "manifest.json"
STATUSES = ("running", "done", "diverged", "interrupted", "failed")
FINISHED = ("done", "diverged")
"""Statuses of finished runs, which are not resumed."""
PACKAGES = ("fednet-emu", "torch", "numpy", "scipy", "simpy", "pandas", "pyarrow")

AGAIN = "restore it from a copy, or run it again with --force"


def new_manifest(status: str, files: dict[str, str | None], **facts: Any) -> dict[str, Any]:
    """Return the content of a manifest; `files` maps names to checksums, or to None before the file is written."""
    host = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    written = datetime.now(UTC).isoformat(timespec="seconds")
    return {"status": status, **facts, "files": files, "written": written, "versions": versions(), "host": host}


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that compute and write the records of a run."""
    return {package: version(package) for package in PACKAGES}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a run, without files outside the run folder; None if there is no valid manifest."""
    try:
        content: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        ours = PACKAGES[0] in content["versions"] and content["status"] in STATUSES
        files = {name: its for name, its in content.get("files", {}).items() if Path(name).name == name}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return {**content, "files": files} if ours else None


def fingerprint(scenario_text: str) -> str:
    """Return a hash of the text of a resolved scenario, including its seed."""
    return blake2b(scenario_text.encode(), digest_size=16).hexdigest()


def require_sound(folder: Path, names: Iterable[str], remedy: str = AGAIN) -> None:
    """Raise a `DataError` if a file of a run folder is missing or does not match its checksum in the manifest."""
    known = (read_manifest(folder) or {"files": {}})["files"]
    for name in names:
        problem = flaw(folder / name, known.get(name))
        if problem:
            raise DataError(str(folder / name), problem, remedy)

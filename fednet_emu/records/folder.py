"""The run folder and its manifest; the files are consistent even if the writing process is killed at any time.

The manifest lists the files of the run and has its status. A first version is written before any other file and marks
the folder as used; the final version is written last. A run that replaces another run (`--force`) is written into the
sub-folder `unfinished` and moved when it is finished; the next run completes an interrupted move.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import checksum
from fednet_emu.files.writing import PART, file_errors, flaw, write_atomically, write_json, write_table, write_text

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "manifest.json"
STATUSES = ("running", "done", "diverged", "interrupted", "failed")
FINISHED = ("done", "diverged")
"""Statuses of finished runs, which are not resumed."""
PACKAGES = ("fednet-emu", "torch", "numpy", "scipy", "simpy", "pandas", "pyarrow")

AGAIN = "restore it from a copy, or run it again with --force"


def new_manifest(status: str, files: dict[str, str | None], **facts: Any) -> dict[str, Any]:
    """Return the content of the manifest of a run: status, files, versions of packages, the host, and further facts.

    `files` maps each file name to the checksum of the file, or to None if the file has not been written yet.
    """
    host = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    written = datetime.now(UTC).isoformat(timespec="seconds")
    return {"status": status, **facts, "files": files, "written": written, "versions": versions(), "host": host}


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that compute and write the records of a run."""
    return {package: version(package) for package in PACKAGES}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder's run, without files outside the folder, or None if none is valid."""
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


SCENARIO, SUMMARY = "scenario.yaml", "summary.json"
LOG_FILE = "log.txt"
LEARNING = "learning"
"""Name of the sub-folder with the learned values of an unfinished run."""
LOCK = ".lock"
STAGED = "unfinished"
"""Name of the sub-folder of a run that will replace an earlier run."""


class RunFolder:
    """The folder of a run. Its manifest contains the status: running, done, diverged, interrupted or failed.

    The run writes its files to `path`. If this differs from `home`, the files are moved to `home` at the end.
    """

    def __init__(self, home: Path, path: Path, lock: FileLock, facts: Mapping[str, Any]) -> None:
        self.path, self.home, self._lock, self._facts = path, home, lock, dict(facts)
        self._files: dict[str, str | None] = dict((read_manifest(path) or {"files": {}})["files"])
        self._written: set[str] = set()

    @staticmethod
    def check(path: Path, scenario_text: str, *, timing_only: bool = False, force: bool = False) -> None:
        """Raise a `DataError` if a run of a scenario must not be written to the folder `path`.

        The folder must be free, or contain an unfinished run of the same scenario. `force` also allows any other run.
        """
        manifest = read_manifest(path)
        if manifest is None:
            require_free(path, "a run folder")
            return
        remedy = "pass --force to replace it, or choose another --out"
        if force:
            if read_manifest(path / STAGED) is None:
                require_free(path / STAGED, "a run folder")
        elif manifest["status"] in FINISHED:
            ours = {"timing_only": timing_only}
            differ = _changes({name: manifest.get(name) for name in ours}, ours)
            if manifest.get("scenario") != fingerprint(scenario_text):
                differ = [*_changed_settings(path / SCENARIO, scenario_text), *differ]
            named = "; ".join(differ[:MOST_CHANGED]) + ("; ..." if len(differ) > MOST_CHANGED else "")
            how = f"with other settings ({named})" if differ else "with the same settings"
            raise DataError(str(path), f"holds a finished run, {how}", remedy)
        elif manifest.get("timing_only") != timing_only or manifest.get("scenario") != fingerprint(scenario_text):
            raise DataError(str(path), "holds an unfinished run of another scenario", remedy)

    @classmethod
    def create(cls, path: Path, scenario_text: str, *, force: bool = False, **facts: Any) -> RunFolder:
        """Create and lock the folder of a run, or take over the folder of an unfinished run of the same scenario.

        If `force` is True, the new run may replace any other run. The earlier run is kept until the new run is
        finished. `facts` are entries of the manifest: name, seed, timing_only, and the dependencies of the run.
        """
        path, timing_only = path.resolve(), bool(facts.get("timing_only"))
        cls.check(path, scenario_text, timing_only=timing_only, force=force)
        lock = locked(path, "run")
        try:
            _move_up(path)
            cls.check(path, scenario_text, timing_only=timing_only, force=force)  # again, now locked
            where = path / STAGED if force and read_manifest(path) is not None else path
            with file_errors(where, "made"):
                where.mkdir(exist_ok=True)
            facts = {**facts, "timing_only": timing_only, "scenario": fingerprint(scenario_text)}
            folder = cls(path, where, lock, facts)
            folder.write_manifest("running")
            folder.write_text(SCENARIO, scenario_text)
        except BaseException:
            unlock(path, lock)
            raise
        return folder

    @staticmethod
    def status(path: Path) -> str | None:
        manifest = read_manifest(path)
        return None if manifest is None else str(manifest["status"])

    @staticmethod
    def latest(path: Path) -> Path:
        """Return the folder of the latest run: `path`, or its sub-folder if a run that will replace it is there."""
        return path / STAGED if read_manifest(path / STAGED) is not None else path

    def release(self) -> None:
        unlock(self.home, self._lock)

    def announce(self, names: Iterable[str]) -> None:
        """Add the names of files that the run will write to the manifest, so that they count as files of the run."""
        self._files.update(dict.fromkeys(names))
        self.write_manifest("running")

    def write_text(self, name: str, text: str) -> None:
        write_text(self.path / name, text)
        self._note(name)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file atomically; numbers that are not finite become null."""
        write_json(self.path / name, content)
        self._note(name)

    def write_table(self, name: str, parts: Iterable[pd.DataFrame]) -> None:
        write_table(self.path / f"{name}.parquet", parts)
        self._note(f"{name}.parquet")

    def write_bytes(self, name: str, content: bytes) -> None:
        write_atomically(self.path / name, lambda file: file.write(content))
        self._note(name)

    def _note(self, name: str) -> None:
        with file_errors(self.path / name, "read"):
            self._files[name] = checksum(self.path / name)
        self._written.add(name)

    def write_manifest(self, status: str, **facts: Any) -> None:
        """Write `manifest.json` with the status and files of the run, package versions, the host, and further facts."""
        write_json(self.path / MANIFEST, new_manifest(status, self._files, **self._facts, **facts))

    def end(self, status: str, **facts: Any) -> None:
        """Write the final status of the run.

        If the run is finished, files of earlier attempts that it has not written again are deleted. Files that are not
        listed in the manifest, such as files of the user, are kept.
        """
        if status in FINISHED:
            with file_errors(self.path, "tidied"):
                for name in self._files.keys() - self._written:
                    _remove_own(self.path / name, self._files.pop(name))
        try:
            self.write_manifest(status, **facts)
        except DataError:
            with suppress(OSError):
                _mark_failed(self.path / MANIFEST)
            raise

    def settle(self) -> None:
        """Delete temporary files of a finished run, and replace the earlier run in the folder, if any, by this run."""
        tidy(self.path)
        if self.path != self.home:
            _move_up(self.home)
            self.path = self.home


MOST_CHANGED = 3
"""Maximum number of differing settings of two scenarios that an error message lists."""


def _changes(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> list[str]:
    differ = (key for key in {**now, **before} if repr(before.get(key)) != repr(now.get(key)))
    return [f"{key} {before.get(key)}, now {now.get(key)}" for key in differ]


def _changed_settings(path: Path, text: str) -> list[str]:
    import pandas as pd
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    read = YAML(typ="safe", pure=True).load
    try:
        both = [pd.json_normalize(read(its)).iloc[0].to_dict() for its in (path.read_text(encoding="utf-8"), text)]
    except (OSError, ValueError, NotImplementedError, YAMLError):
        return ["the notes of the run cannot be read"]
    return _changes(*both)


def _mark_failed(manifest: Path) -> None:
    """Overwrite the status in a manifest with `failed`. The file keeps its length, so this works on a full disk."""
    before, after = b'"status": "running",', b'"status": "failed", '
    place = manifest.read_bytes().find(before)
    if place >= 0:
        with manifest.open("r+b") as file:
            file.seek(place)
            file.write(after)


def tidy(path: Path) -> None:
    """Delete temporary files of a finished run."""
    with file_errors(path, "tidied"):
        if (path / LEARNING).is_dir() and not (path / LEARNING).is_symlink():
            shutil.rmtree(path / LEARNING)
        for part in path.glob(f".*{PART}"):
            part.unlink(missing_ok=True)


def locked(path: Path, what: str) -> FileLock:
    """Create a folder and return its lock; raise a `DataError` if another process has locked it, or if this fails."""
    lock = FileLock(path / LOCK)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise DataError(
            str(path), f"is being written by another {what}", "wait for it, or choose another --out"
        ) from None
    except OSError as error:
        raise DataError(str(path), f"cannot be made ({error.strerror})", "choose another --out") from None
    return lock


def unlock(path: Path, lock: FileLock) -> None:
    """Delete the lock file of a folder while this process still has the lock, then release the lock."""
    if lock.is_locked:
        with suppress(OSError):
            (path / LOCK).unlink(missing_ok=True)
        lock.release()


def require_free(path: Path, kind: str) -> None:
    """Raise a `DataError` if a path exists, unless it is a folder that contains only remains of a killed process."""
    if path.exists() and not (
        path.is_dir() and all(child.name == LOCK or child.name.endswith(PART) for child in path.iterdir())
    ):
        raise DataError(str(path), f"exists and is not {kind}", "choose another --out")


def _move_up(home: Path) -> None:
    """Replace the run in `home` by the finished run in its sub-folder, or complete an interrupted replacement."""
    staged = home / STAGED
    new, old = read_manifest(staged), read_manifest(home)
    if new is None or new["status"] not in FINISHED:
        return
    with file_errors(home, "replaced"):
        tidy(staged)
        for name in (*new["files"], LOG_FILE):
            if (staged / name).is_file():
                (staged / name).replace(home / name)
        for name, content in (old or {"files": {}})["files"].items():
            if name not in new["files"]:
                _remove_own(home / name, content)
        tidy(home)
        (staged / MANIFEST).replace(home / MANIFEST)
        with suppress(OSError):  # the folder may contain files of the user
            staged.rmdir()


def _remove_own(path: Path, content: str | None) -> None:
    if path.is_file() and (content is None or checksum(path) == content):
        path.unlink()

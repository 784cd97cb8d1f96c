"""Dependencies of a run besides its scenario: commit of this package, versions of plug-ins, checksums of data files."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path
from typing import Any

from fednet_emu import __version__
from fednet_emu.algorithms.base import Algorithm
from fednet_emu.component.component import Component, is_ours
from fednet_emu.files.data_folder import Read, checksum
from fednet_emu.flower.algorithm import Flower
from fednet_emu.learning.models.user_module import UserModule
from fednet_emu.records.folder.manifest import fingerprint, versions
from fednet_emu.scenario.model import Scenario

_PACKAGE = Path(__file__).resolve().parents[1]
_GIT_S = 5.0


def provenance(scenario: Scenario, read: Read) -> dict[str, Any]:
    """Return the manifest entries about the code and the data of a run, given the files that it has read."""
    names = sorted(set(_outside(scenario)))
    packages = packages_distributions() if names else {}  # reads the metadata of all that is installed
    return {
        "fednet_emu": {"version": __version__, "commit": commit()},
        "plugins": {name: _origin(name, packages) for name in names} | _app(scenario.algorithm),
        "data": {name: checksum(path) for name, path in sorted(read.items())},
    }


def dependencies(scenario_text: str, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dependencies of the learnt numbers: two runs with equal dependencies compute equal numbers.

    `scenario_text` is the resolved scenario with its seed, and `origin` the result of `provenance`.
    """
    return {
        "scenario": fingerprint(scenario_text),
        "version of fednet_emu": f"{__version__}, {source_hash()}",
        "version of a package": versions(),
        "plug-in": origin["plugins"],
        "data file": origin["data"],
    }


@cache
def source_hash() -> str:
    """Return a hash of the source files of this package, which is also known without a commit."""
    whole = blake2b(digest_size=16)
    for path in sorted(_PACKAGE.rglob("*.py")):
        whole.update(f"{path.relative_to(_PACKAGE).as_posix()} {checksum(path)}\n".encode())
    return whole.hexdigest()


@cache
def commit() -> str | None:
    """Return the commit of the source, with `+changes` appended if files differ from it; None if unknown."""
    if (_PACKAGE.parent / ".git").exists():
        head, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no", "fednet_emu")
        return None if head is None else head + ("+changes" if changes else "")
    try:
        told = distribution("fednet-emu").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    found = json.loads(told).get("vcs_info", {}).get("commit_id") if told else None
    return None if found is None else str(found)


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(_PACKAGE.parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _outside(part: Any) -> Iterator[str]:
    """Yield the import paths of classes in a scenario from outside this package."""
    if isinstance(part, Component):
        if not is_ours(type(part)):
            yield f"{type(part).__module__}:{type(part).__qualname__}"
        if isinstance(part, UserModule):
            yield part.path
        for name in type(part).model_fields:
            yield from _outside(getattr(part, name))
    elif isinstance(part, list | tuple):
        for its in part:
            yield from _outside(its)


def _app(algorithm: Algorithm) -> dict[str, str]:
    """Return the version of Flower and a hash of the app's code, if the algorithm is a Flower app."""
    if not isinstance(algorithm, Flower):
        return {}
    whole = blake2b(digest_size=16)
    for path in algorithm.files():
        whole.update(f"{path.name} {checksum(path)}\n".encode())
    return {f"flower app {algorithm.app}": f"flwr {version('flwr')}, files {whole.hexdigest()}"}


def _origin(path: str, packages: Mapping[str, Sequence[str]]) -> str:
    """Return packages and versions of a class, or the checksum of its file; `packages` is by top-level module."""
    module = path.partition(":")[0]
    if found := packages.get(module.partition(".")[0]):
        return ", ".join(f"{package} {version(package)}" for package in dict.fromkeys(found))
    try:
        source = inspect.getsourcefile(sys.modules[module])
        return f"file {checksum(Path(str(source)))}"
    except (KeyError, TypeError, OSError):
        return "no file"

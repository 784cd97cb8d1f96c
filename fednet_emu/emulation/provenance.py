"""Dependencies of a run besides its scenario: commit of this package, versions of plug-ins, checksums of data files."""

from __future__ import annotations

import inspect
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from fednet_emu import __version__
from fednet_emu.algorithms.base import Algorithm
from fednet_emu.component.component import Component, is_ours
from fednet_emu.emulation.store import cache_folder, is_own, usable
from fednet_emu.errors import DataError
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.files.data_folder import Read, checksum
from fednet_emu.files.writing import write_text
from fednet_emu.flower.algorithm import Flower
from fednet_emu.learning.graph.spelling import Speller, digest_of
from fednet_emu.learning.models.user_module import UserModule
from fednet_emu.records.folder import fingerprint, versions
from fednet_emu.scenario.model import Scenario

_PACKAGE = Path(__file__).resolve().parents[1]
_GIT_S = 5.0


def provenance(scenario: Scenario, read: Read) -> dict[str, Any]:
    """Return the manifest entries about the code and the data of a run; `read` are the files that the run has read."""
    return {
        "fednet_emu": {"version": __version__, "commit": commit()},
        "plugins": plugins(scenario),
        "data": {name: checksum(path) for name, path in sorted(read.items())},
    }


def plugins(scenario: Scenario) -> dict[str, str]:
    """Return the package version or file checksum of each external class in a scenario, and of a Flower app."""
    names = sorted(set(_outside(scenario)))
    packages = _packages(tuple(sys.path)) if names else {}
    return {name: _origin(name, packages) for name in names} | _app(scenario.algorithm)


@cache
def _packages(_path: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """Return the packages that provide each module. The result is cached, because reading the metadata is slow."""
    return packages_distributions()


def dependencies(scenario_text: str, origin: Mapping[str, Any]) -> dict[str, str]:
    """Return the dependencies of the learned values, as texts; runs with equal dependencies compute the same values.

    `scenario_text` is the resolved scenario with its seed, and `origin` is the result of `provenance`.
    """
    found = {
        "scenario": fingerprint(scenario_text),
        "version of fednet_emu": f"{__version__}, {source_hash()}",
        "version of a package": versions(),
        "plug-in": origin["plugins"],
        "data file": origin["data"],
    }
    return {name: json.dumps(its, default=str) for name, its in found.items()}


def learning_head(scenario: Scenario, task: LearningTask, speller: Speller) -> dict[str, str]:
    """Return all inputs on which the learning of a run depends, by name, each as a hash or a version.

    `Unwritable` is raised if the model, or the source of the data, is defined in a script or a notebook.
    """
    device = task.model.device
    speller.keep(task.model, b"K" + (model := speller.spelled(task.model)))
    made = scenario.partition, scenario.groups, scenario.feature_noise, scenario.attack, scenario.server
    split = speller.spelled((made, scenario.devices.count, task.offsets))
    data = digest_of(speller.spelled(scenario.data), json.dumps(_checksums(task.files)).encode())
    if any(True for part in (scenario.data, *made) for _ in _outside(part)):  # plug-ins may read files themselves
        data = digest_of(data, speller.spelled(task.tensors()))
    speller.keep(task, b"K the task")
    for name, its in {"both": task.data, "x": task.data.x, "y": task.data.y}.items():
        speller.keep(its, b"K the data: " + name.encode())
    loaded = {name: version(name) for name in ("torchvision", "transformers") if name in sys.modules}
    return {
        "seed": f"{scenario.seed}, scene {scenario.streams.scene_seed}",
        "model": model.hex(),
        "data": data.hex(),
        "split": split.hex(),
        "engine": scenario.training.engine,
        "processor": processor(device),
        "version of a package": json.dumps(versions() | loaded),
        "plug-in": json.dumps(plugins(scenario)),
        "version of fednet_emu": f"{__version__}, {source_hash()}",
    }


def _checksums(files: Read) -> dict[str, str]:
    """Return the checksums of data files by name, cached until size or modification time of a file change."""
    found, folder = {}, usable(cache_folder())
    notes = None if folder is None else folder / "checksums.json"
    known: dict[str, tuple[list[Any], str]] = {}
    with suppress(OSError, ValueError):
        if notes is not None and is_own(notes):
            known = _CHECKSUMS.validate_json(notes.read_bytes())
    before = dict(known)
    for name, path in sorted(files.items()):
        each = [path] if path.is_file() else sorted(its for its in path.rglob("*") if its.is_file())
        state = [[str(its), its.stat().st_size, its.stat().st_mtime_ns] for its in each]
        if str(path) not in known or known[str(path)][0] != state:
            known[str(path)] = state, checksum(path)
        found[name] = known[str(path)][1]
    if known != before and notes is not None:
        with suppress(OSError, DataError):
            notes.parent.mkdir(parents=True, exist_ok=True)
            write_text(notes, json.dumps(known))
    return found


_CHECKSUMS = TypeAdapter(dict[str, tuple[list[Any], str]])  # of each path: state of its files, checksum

_STEERING = ("MKL", "ONEDNN", "DNNL", "ATEN", "KMP", "CUBLAS", "NVIDIA_TF32")
"""Prefixes of environment variables that change PyTorch's rounding."""


def processor(device: torch.device) -> str:
    """Return a text about everything in the host that affects rounding: processor, threads, PyTorch's settings."""
    threads = torch.get_num_threads()
    steering = {name: its for name, its in sorted(os.environ.items()) if name.startswith(_STEERING)}
    found = [_cpu(), torch.backends.cpu.get_cpu_capability(), f"{threads} threads", *map(str, steering.items())]
    found += [str(torch.get_default_dtype()), torch.get_float32_matmul_precision()]
    found.append(f"oneDNN {torch.backends.mkldnn.enabled}, {torch.are_deterministic_algorithms_enabled()}")
    if device.type == "cuda":
        tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        found += [torch.cuda.get_device_name(device), f"CUDA {torch.version.cuda}, tf32 {tf32}"]
        found.append(f"cuDNN {torch.backends.cudnn.version()}")  # type: ignore[no-untyped-call]
    return ", ".join(found)


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    named = dict(line.partition(":")[::2] for line in lines[:30] if ":" in line)
    return " ".join(its.strip() for name, its in named.items() if name.strip() in ("vendor_id", "model name"))


@cache
def source_hash() -> str:
    """Return a hash of the source files of this package, which needs no git repository."""
    whole = blake2b(digest_size=16)
    for path in sorted(_PACKAGE.rglob("*.py")):
        whole.update(f"{path.relative_to(_PACKAGE).as_posix()} {checksum(path)}\n".encode())
    return whole.hexdigest()


@cache
def commit() -> str | None:
    """Return the git commit of the source, with `+changes` appended if files differ from it; None if unknown."""
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
    if not isinstance(algorithm, Flower):
        return {}
    whole = blake2b(digest_size=16)
    for path in algorithm.files():
        whole.update(f"{path.name} {checksum(path)}\n".encode())
    return {f"flower app {algorithm.app}": f"flwr {version('flwr')}, files {whole.hexdigest()}"}


def _origin(path: str, packages: Mapping[str, Sequence[str]]) -> str:
    module = path.partition(":")[0]
    if found := packages.get(module.partition(".")[0]):
        return ", ".join(f"{package} {version(package)}" for package in dict.fromkeys(found))
    try:
        source = inspect.getsourcefile(sys.modules[module])
        return f"file {checksum(Path(str(source)))}"
    except (KeyError, TypeError, OSError):
        return "no file"

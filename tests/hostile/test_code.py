"""Hostile files: code in them, and mutations of good ones."""

from __future__ import annotations

import ast
import copy
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import fednet_emu
from fednet_emu.devices.mobility.walks import load_walks
from fednet_emu.emulation.final_model import load_model
from fednet_emu.emulation.load import checked
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.recordings import read_texts
from fednet_emu.learning.data.datasets.npz import Npz
from fednet_emu.scenario.document import apply_overrides, from_mapping, from_text, load
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.testing import SMALL, run_small
from tests.commands import LIMIT_S, OTHER_SEED
from tests.federation.test_cohort import VARIED
from tests.quick import examples

PACKAGE = Path(fednet_emu.__file__).parent
FORBIDDEN_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "os.system", "os.popen", "pd.read_pickle", "pandas.read_pickle"}
FORBIDDEN_METHODS = {"extractall", "extract", "unpack_archive"}
ALLOWED = {f"learning/engines/{name}.py": ["pickle"] for name in ("parcels", "workers/pool", "workers/workers_engine")}
"""What processes that train send one another; never a file."""
NEEDED = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}


def dotted(node: ast.expr) -> str:
    """The name of what is called, such as `torch.load`; of a method of anything else only the method's, after a dot."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(tree: ast.AST) -> Iterator[str]:
    """The names of everything in a syntax tree that could run code from a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in FORBIDDEN_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            given = {word.arg: getattr(word.value, "value", ...) for word in node.keywords}
            key, value = NEEDED.get(name, ("", None))
            if name in FORBIDDEN_CALLS or name.rpartition(".")[2] in FORBIDDEN_METHODS or given.get("shell"):
                yield name
            elif key and given.get(key, ...) is not value:
                yield f"{name} without {key}={value}"


def test_no_module_loads_code() -> None:
    """`torch.load` takes weights only, `np.load` no objects; there is no pickle, no eval, no shell, no unpacking."""
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    found = {file: list(unsafe(ast.parse(text))) for file, text in files.items()}

    assert {file: names for file, names in found.items() if names} == ALLOWED


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from dill import loads", ["dill"]),
        ("torch.load(path)", ["torch.load without weights_only=True"]),
        ("torch.load(path, weights_only=False)", ["torch.load without weights_only=True"]),
        ("np.load(path, allow_pickle=True)", ["np.load without allow_pickle=False"]),
        ("archive.extractall(path)", ["archive.extractall"]),
        ("subprocess.run(text, shell=True)", ["subprocess.run"]),
        ("torch.load(path, weights_only=True); np.load(path, allow_pickle=False); archive.extractfile(x)", []),
    ],
)
def test_the_search_finds_what_it_is_for(code: str, found: list[str]) -> None:
    """The rule above is not empty."""
    assert list(unsafe(ast.parse(code))) == found


class Trap:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


def armed(path: Path, sprung: Path) -> None:
    """Write a file that every loader of ours might be given, with a pickle where there should be numbers."""
    trap = np.empty(1, dtype=object)
    trap[0] = Trap(sprung)
    if path.suffix == ".npz":
        np.savez(path, train_x=trap, train_y=trap, test_x=trap, test_y=trap, xy_m=trap, time_s=trap, allow_pickle=True)
    elif path.suffix == ".npy":
        np.save(path, trap, allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(Trap(sprung)))


@pytest.mark.parametrize("name", ["model.pt", "x.npz", "x.npy"])
def test_an_armed_file_does_not_go_off(name: str, tmp_path: Path) -> None:
    """Data, walks and models that hold a pickle are refused with a sentence, and its code has not run."""
    armed(tmp_path / name, tmp_path / "sprung")
    loads: dict[str, Callable[[], object]] = {
        "model.pt": lambda: load_model(tmp_path),
        "x.npz": lambda: Npz(path=str(tmp_path / name)).load(None, np.random.default_rng(0)),
        "x.npy": lambda: load_walks(tmp_path / name),
    }

    with pytest.raises(DataError, match="cannot be read"):
        loads[name]()

    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("ending", [".tar", ".zip"])
def test_an_archive_leaves_nothing_outside(ending: str, tmp_path: Path) -> None:
    """Members called `../x` or `/x`, and links, are read in memory or not at all; no file appears."""
    path, outside = tmp_path / "in" / f"a{ending}", tmp_path / "outside"
    path.parent.mkdir()
    names = ["../outside", str(outside), "inside"]
    if ending == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "1 2\n")
    else:
        with tarfile.open(path, "w") as archive:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = 4
                archive.addfile(member, io.BytesIO(b"1 2\n"))
            link = tarfile.TarInfo("passwd")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)

    read = dict(read_texts(path))

    assert set(read.values()) == {"1 2\n"}
    assert not outside.exists()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


SHADOWED = ("typer", "torch", "numpy", "rich", "random", "json", "email", "pandas", "pydantic", "ruamel", "logging")
STUDY = "base: quickstart\nseeds: 1\nset: {stop.rounds: 1}\n"


@pytest.mark.parametrize(
    "command",
    [
        ("run", "small.yaml", "--quiet", "--no-plots", *(word for its in VARIED for word in ("--set", its))),
        pytest.param(("sweep", "study.yaml", "--quiet", "--timing-only"), marks=pytest.mark.slow),
    ],
    ids=lambda command: command[0],
)
def test_neither_the_current_folder_nor_the_hash_seed_matters(command: tuple[str, ...], tmp_path: Path) -> None:
    """A folder of scenarios may hold a `torch.py`: it stays a file, for the command and for its processes.

    A run in a process with another PYTHONHASHSEED has the events that it has in this process.
    """
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('code of {name} ran')\n", encoding="utf-8")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    environment = {**os.environ, "PYTHONHASHSEED": OTHER_SEED, "PYTHONPATH": str(PACKAGE.parent)}

    ended = subprocess.run(
        [sys.executable, "-m", "fednet_emu", *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )

    assert ended.returncode == 0, ended.stderr
    assert "ran" not in ended.stdout.split() + ended.stderr.split()
    if command[0] == "run":
        (summary,) = tmp_path.glob("results/**/summary.json")
        told = json.loads(summary.read_text(encoding="utf-8"))
        assert told["event_digest"] == run_small(*VARIED).ledger.event_digest()


FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted((*FOLDER.glob("*.yaml"), *FOLDER.glob("papers/*.yaml")))


@cache
def library() -> dict[str, Any]:
    return {path.stem: load(path).data for path in FILES}


@cache
def known_keys() -> list[str]:
    paths = (path for data in library().values() for path in from_mapping(data, "x").places)
    return sorted({str(key) for path in paths for key in path if key != "kind"})


NUMBERS = [0, -1, 1, 2, 3, 7, 0.5, 1e-9, 1e9, 1e39, -1e39, 1e41, 2**63, 10**400, float("nan"), float("inf"), 1e-320]
TEXTS = [
    "",
    " ",
    "none",
    "x",
    "\x1b[31m",
    ":x:",
    "[bold]",
    "a:b",
    "os:system",
    "urban-micro",
    "tdma",
    "rayleigh",
    "é\u202e",
]
scalars = (
    st.sampled_from(NUMBERS)
    | st.sampled_from(TEXTS)
    | st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
)
keys = (
    st.deferred(lambda: st.sampled_from(known_keys())) | st.sampled_from(["kind", "include", ""]) | st.text(max_size=8)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=8
)


def places_in(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, part in parts for found in [(*path, key), *places_in(part, (*path, key))]]


def parent_of(data: Any, path: tuple[Any, ...]) -> Any:
    """The mapping or list that holds the last key of a path."""
    for key in path[:-1]:
        data = data[key]
    return data


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario of the library in which one to three things were replaced, removed, renamed, added or swapped."""
    data = copy.deepcopy(library()[draw(st.sampled_from(sorted(library())))])
    for _ in range(draw(st.integers(1, 3))):
        paths = places_in(data)
        path = draw(st.sampled_from(paths))
        parent, key = parent_of(data, path), path[-1]
        change = draw(st.sampled_from(["replace", "replace", "remove", "rename", "add", "swap"]))
        if change == "replace":
            parent[key] = draw(values)
        elif change == "remove":
            del parent[key]
        elif change == "swap":
            other = draw(st.sampled_from(paths))
            parent[key] = copy.deepcopy(parent_of(data, other)[other[-1]])
        elif isinstance(parent, dict):
            parent[draw(keys)] = parent.pop(key) if change == "rename" else draw(values)
        if not data:
            return data
    return data


def problems_of(read: Callable[[], object]) -> tuple[str, ...]:
    """The problems with which reading ends, each one line of printable text; any other exception is a bug."""
    try:
        read()
    except ScenarioError as error:
        problems = error.problems
    else:
        return ()
    assert problems
    assert all(problem and problem.isprintable() and len(problem) < 5000 for problem in problems)
    return problems


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_a_changed_scenario_is_valid_or_told_what_is_wrong(data: dict[str, Any]) -> None:
    """A valid scenario has a cost, and reads back as itself."""
    if not problems_of(lambda: checked(from_mapping(data, "mutant"))):
        scenario = checked(from_mapping(data, "mutant"))
        assert Outlook(scenario).cost.min_byte > 0
        assert checked(from_text(dump(scenario))) == scenario


PIECES = ["a", ": ", "\n", "  ", "- ", "[", "]", "{", "}", "&a ", "*a", "!!int "]


@examples(200)
@given(st.lists(st.text(max_size=30) | st.sampled_from(PIECES)).map("".join))
def test_any_text_is_a_scenario_or_has_problems(text: str) -> None:
    """Whatever characters a file holds, reading it ends with a tree or with problems that name the file."""
    assert all(problem.startswith("text") for problem in problems_of(lambda: from_text(text, "text")))


@examples(200)
@given(st.lists(keys, min_size=1, max_size=4), st.text(max_size=20))
def test_any_override_is_applied_or_has_problems(path: list[str], value: str) -> None:
    """The same for `--set`."""
    document = from_mapping(library()["quickstart"], "quickstart")
    problems_of(lambda: checked(apply_overrides(document, [f"{'.'.join(path)}={value}"])))

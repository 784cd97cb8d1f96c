"""Scenarios of the library with random changes: each is valid, or it has problems, all told; none is a bug."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from fednet_emu.emulation.load import checked
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import apply_overrides, from_mapping, from_text, load
from fednet_emu.scenario.yaml_text import dump
from tests.quick import examples

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))


@cache
def library() -> dict[str, Any]:
    """The scenarios of the library by name."""
    return {path.stem: load(path).data for path in FILES}


@cache
def known_keys() -> list[str]:
    """All keys in them."""
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
    """The key paths of everything in a scenario."""
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
        assert Outlook(scenario).cost.least_byte > 0
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


def test_every_scenario_of_the_library_is_there() -> None:
    """What is mutated is what is shipped."""
    assert len(library()) >= 20
    assert "quickstart" in library()


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_the_unchanged_scenario_is_valid(name: str) -> None:
    """A mutation that is refused is refused for the mutation."""
    assert not problems_of(lambda: checked(from_mapping(library()[name], name)))

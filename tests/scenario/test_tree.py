"""Trees: merging, key paths and values as errors show them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.scenario.tree import Node, Place, file_text, merge, path_text, show
from tests.quick import examples

PLACE = Place("a.yaml", 1)

keys = st.sampled_from(["a", "b", "kind", "d"])
values = st.recursive(
    st.none() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(keys, values, max_size=4)


def tree(value: Any, place: Place = PLACE) -> Node:
    """The tree of plain values, all written in one place."""
    if isinstance(value, dict):
        return Node({key: tree(part, place) for key, part in value.items()}, place)
    if isinstance(value, list):
        return Node([tree(part, place) for part in value], place)
    return Node(value, place)


@examples(60)
@given(mappings)
def test_merge_with_nothing_changes_nothing(value: dict[str, Any]) -> None:
    """An empty mapping, underneath or on top, leaves a tree as it is."""
    assert merge(tree({}), tree(value)).plain() == value
    assert merge(tree(value), tree({})).plain() == value


@examples(60)
@given(mappings)
def test_merge_with_itself_changes_nothing(value: dict[str, Any]) -> None:
    """A tree on top of itself is itself."""
    assert merge(tree(value), tree(value)).plain() == value


@examples(60)
@given(mappings, mappings)
def test_own_values_win(base: dict[str, Any], own: dict[str, Any]) -> None:
    """Every scalar and list of the upper tree is in the merged one, at its path and with its place."""
    upper = tree(own, Place("own.yaml", 2))
    merged = merge(tree(base), upper)

    places = dict(merged.walk())
    for path, place in upper.walk():
        assert places[path] == place
    assert set(merged.plain()) >= set(own)


@examples(60)
@given(mappings, mappings)
def test_merge_leaves_its_inputs_alone(base: dict[str, Any], own: dict[str, Any]) -> None:
    """Merging gives a new tree and changes neither of the two."""
    lower, upper = tree(base), tree(own)

    merge(lower, upper)

    assert (lower.plain(), upper.plain()) == (base, own)


@pytest.mark.parametrize(
    ("base", "own", "merged"),
    [
        ({"x": {"p": 1, "q": 1}}, {"x": {"q": 2}}, {"x": {"p": 1, "q": 2}}),
        ({"x": [1, 2, 3]}, {"x": [4]}, {"x": [4]}),
        ({"f": {"kind": "rician", "k_db": 3}}, {"f": {"kind": "rayleigh"}}, {"f": {"kind": "rayleigh"}}),
        ({"f": {"kind": "rician", "k_db": 3}}, {"f": {"k_db": 5}}, {"f": {"kind": "rician", "k_db": 5}}),
        ({"f": {"kind": "rician", "k_db": 3}}, {"f": "none"}, {"f": "none"}),
        ({"f": "rician"}, {"f": {"k_db": 5}}, {"f": {"kind": "rician", "k_db": 5}}),
        ({"f": "rician"}, {"f": {"kind": "none"}}, {"f": {"kind": "none"}}),
        ({"x": {"p": 1}}, {"x": None}, {"x": None}),
    ],
)
def test_merge_by_example(base: Any, own: Any, merged: Any) -> None:
    """Mappings merge, lists and scalars replace, and another kind replaces the whole component."""
    assert merge(tree(base), tree(own)).plain() == merged


def test_path_text_counts_list_entries_in_brackets() -> None:
    """Key paths are spelt `a.b[2].c`."""
    assert path_text(("a", "b", 2, "c")) == "a.b[2].c"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        ("loud", "'loud'"),
        (1.2, "1.2"),
        ([1, None], "[1, nothing]"),
        ({"kind": "x"}, "{kind: 'x'}"),
    ],
)
def test_values_are_shown_as_in_yaml(value: Any, text: str) -> None:
    """Errors show values in the user's notation, not in Python's."""
    assert show(value) == text


def test_long_values_are_cut() -> None:
    """No error line is flooded by a value."""
    assert len(show(list(range(1000)))) == 60


def test_files_in_the_working_folder_are_named_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file reads as the user would type it; one outside reads as its full path."""
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")

    assert file_text(tmp_path / "inner" / "s" / "a.yaml") == "s/a.yaml"
    assert file_text(tmp_path / "b.yaml") == (tmp_path / "b.yaml").as_posix()

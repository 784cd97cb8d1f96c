"""Overrides of settings from the command line, merged trees and key paths."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.errors import ScenarioError
from fednet_emu.limits import MAX_INTEGER
from fednet_emu.scenario.document import apply_overrides, from_text
from fednet_emu.scenario.tree import Node, Place, file_text, merge, show
from tests.quick import examples

TEXT = """
seed: 1
algorithm: {kind: fedavg, lr: 0.1, steps: 5}
groups: [{size: 1}, {size: 2}]
fading: rician
"""


def changed(*overrides: str, text: str = TEXT) -> Any:
    return apply_overrides(from_text(text), overrides).data


def problems(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        changed(*overrides)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.05", 0.05),
        ("1e6", 1e6),
        ("on", "on"),
        ("", None),
        ("[1, 2]", [1, 2]),
        ("{a: 1}", {"a": 1}),
        ("a=b", "a=b"),
        ("'3'", "3"),
    ],
)
def test_the_value_is_yaml(text: str, value: Any) -> None:
    """What follows the first `=` reads as in a file."""
    assert changed(f"seed={text}")["seed"] == value


def test_only_the_named_setting_changes() -> None:
    """Siblings keep their values and places, and the original document is left alone."""
    document = from_text(TEXT, "a.yaml")

    after = apply_overrides(document, ["algorithm.lr=0.05"])

    assert after.data == {**document.data, "algorithm": {"kind": "fedavg", "lr": 0.05, "steps": 5}}
    assert document.data["algorithm"]["lr"] == 0.1
    assert str(after.places["algorithm", "lr"]) == "--set algorithm.lr"
    assert str(after.places["algorithm", "steps"]) == "a.yaml:3"


@pytest.mark.parametrize("spelling", ["groups.1.size=9", "groups[1].size=9"])
def test_list_entries_count_from_zero(spelling: str) -> None:
    """An entry of a list is reached by its position, also in the spelling of error messages."""
    assert changed(spelling)["groups"] == [{"size": 1}, {"size": 9}]


def test_missing_mappings_are_created() -> None:
    """A path may go where the file says nothing, or says only a key."""
    assert changed("a.b.c=1", text="x: 1\n") == {"x": 1, "a": {"b": {"c": 1}}}
    assert changed("a.b=1", text="a:\n") == {"a": {"b": 1}}


def test_later_overrides_win() -> None:
    """Options apply from left to right."""
    assert changed("seed=2", "seed=3")["seed"] == 3
    assert changed("algorithm={kind: x}", "algorithm.p=3")["algorithm"] == {"kind": "x", "p": 3}


@pytest.mark.parametrize("key", ["algorithm.kind", "algorithm"])
def test_another_kind_marks_the_settings_of_the_old_one(key: str) -> None:
    """Settings from the file were written for the old kind, options for the new one, whatever their order."""

    def written_for(*overrides: str) -> dict[str, Any]:
        root = apply_overrides(from_text(TEXT), overrides).root
        return {name: child.written_for for name, child in root.value["algorithm"].value.items()}

    assert written_for(f"{key}=fedprox") == {"kind": None, "lr": "fedavg", "steps": "fedavg"}
    assert written_for(f"{key}=fedavg") == {"kind": None, "lr": None, "steps": None}
    assert written_for("algorithm.mu=1", f"{key}=fedprox")["mu"] is None
    assert written_for(f"{key}=fedprox", "algorithm.mu=1")["mu"] is None
    assert written_for(f"{key}=fedprox", "algorithm.mu=1", f"{key}=fedyogi") == {
        "kind": None,
        "lr": "fedavg",
        "steps": "fedavg",
        "mu": "fedprox",
    }


def test_a_mapping_without_a_kind_does_not_replace_a_component() -> None:
    """It would drop all other settings, so the error says how to change one."""
    assert problems("algorithm={lr: 0.2}") == (
        "--set algorithm  algorithm: would be replaced by a mapping without a kind, got {lr: 0.2}; "
        "change single settings by their keys, algorithm.lr, or give all with kind: fedavg",
    )
    assert changed("algorithm={kind: fedprox}")["algorithm"] == {"kind": "fedprox"}


def test_text_is_the_short_form_of_a_component() -> None:
    """A setting can be added to a component that the file names by its kind alone."""
    assert changed("fading.k_db=3")["fading"] == {"kind": "rician", "k_db": 3}
    assert changed("fading.kind=none")["fading"] == {"kind": "none"}


def test_a_short_form_on_the_command_line_is_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`channel=street` reads the file, and later options change single settings of it."""
    monkeypatch.chdir(tmp_path)
    Path("channels").mkdir()
    Path("channels/street.yaml").write_text("p: 1\nq: 1\n", encoding="utf-8")

    assert changed("channel=street", "channel.q=2")["channel"] == {"p": 1, "q": 2}
    assert changed("channel={include: street, r: 3}")["channel"] == {"p": 1, "q": 1, "r": 3}


def test_another_include_keeps_what_the_file_sets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the file before included go, those of the scenario itself stay on top."""
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text("p: 1\nx: {s: 1, t: 1}\n", encoding="utf-8")
    Path("two.yaml").write_text("q: 2\nx: {t: 2, u: 2}\n", encoding="utf-8")

    after = changed("channel.include=two.yaml", text="channel: {include: one.yaml, x: {t: 0}}\n")

    assert after["channel"] == {"q": 2, "x": {"t": 0, "u": 2}}


def test_every_bad_override_is_told_in_one_list() -> None:
    """Malformed text, wrong values and paths that lead nowhere each have their sentence."""
    assert problems("lr", "=3", "a..b=1", "seed.x=1", "groups.2=1", "groups.x=1", "seed=[1", "channel=zzzz") == (
        "--set: expected key.path=value, got 'lr'; for example algorithm.lr=0.05",
        "--set: expected key.path=value, got '=3'; for example algorithm.lr=0.05",
        "--set: expected key.path=value, got 'a..b=1'; for example algorithm.lr=0.05",
        "--set seed.x  seed: has no setting 'x' inside, got 1; it would have to be a mapping",
        "--set groups.2  groups: expected a position in a list of 2, got '2'; positions count from 0",
        "--set groups.x  groups: expected a position in a list of 2, got 'x'; positions count from 0",
        "--set seed  yaml: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence)",
        problems("channel=zzzz")[0],
    )
    assert problems("channel=zzzz")[0].startswith("--set channel  channel: no such channel, got 'zzzz'")


names = st.lists(st.sampled_from(["a", "b", "seed2", "x"]), min_size=1, max_size=4)


@examples(60)
@given(
    names,
    st.integers(-MAX_INTEGER, MAX_INTEGER),
    st.dictionaries(st.sampled_from(["a", "x"]), st.just({"b": {"q": 1}}), max_size=2),
)
def test_an_override_is_read_back_at_its_path(path: list[str], value: int, start: dict[str, Any]) -> None:
    """Whatever the file says, the value stands at the path afterwards, and once more changes nothing."""
    text = "seed: 1\n" + "".join(f"{key}: {{b: {{q: 1}}}}\n" for key in start)
    override = f"{'.'.join(path)}={value}"

    once = apply_overrides(from_text(text), [override])

    found: Any = once.data
    for key in path:
        found = found[key]
    assert found == value
    assert once.data["seed"] == 1
    assert apply_overrides(once, [override]).data == once.data


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
def test_merge_with_nothing_or_itself_changes_nothing(value: dict[str, Any]) -> None:
    """An empty mapping, underneath or on top, leaves a tree as it is; a tree on top of itself is itself."""
    for base, own in (({}, value), (value, {}), (value, value)):
        assert merge(tree(base), tree(own)).plain() == value


@examples(60)
@given(mappings, mappings)
def test_own_values_win(base: dict[str, Any], own: dict[str, Any]) -> None:
    """Every scalar and list of the upper tree is in the merged one, at its path and with its place."""
    upper = tree(own, Place("own.yaml", 2))
    merged = merge(tree(base), upper)

    places = {path: node.place for path, node in merged.walk()}
    for path, node in upper.walk():
        assert places[path] == node.place
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

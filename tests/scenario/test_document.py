"""Documents: the rules of the text, includes, and where files are found by name."""

from pathlib import Path
from typing import Any

import pytest

from fednet_emu.errors import ScenarioError
from fednet_emu.scenario import library as search
from fednet_emu.scenario.document import from_text, load
from fednet_emu.scenario.library import find, names


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(search, "_PACKAGE", tmp_path / "checkout" / "package")
    return tmp_path / "here"


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def problems(text: str) -> list[str]:
    """The problems that a text has before it is validated."""
    with pytest.raises(ScenarioError) as caught:
        from_text(text, "a.yaml")
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1e6),
        ("1.0e6", 1e6),
        ("2.0e+7", 2e7),
        ("on", "on"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("010", 10),
        ("0o10", 8),
        ("2026-01-31", "2026-01-31"),
        ("'7'", "7"),
        ("true", True),
        ("", None),
        ("~", None),
        ("[1, {b: 2}]", [1, {"b": 2}]),
    ],
)
def test_values_read_by_the_rules_of_yaml_1_2(text: str, value: Any) -> None:
    """Numbers with an exponent are numbers; `on`, times and dates are text."""
    read = from_text(f"a: {text}").data["a"]

    assert read == value
    assert type(read) is type(value)


def test_every_value_knows_its_line() -> None:
    """The place of a setting is the line of its key, or of the entry in a list."""
    document = from_text("# comment\na: 1\nb:\n  c:\n    - 5\n    - d: 6\n", "a.yaml")

    lines = {path: place.line for path, place in document.places.items()}
    assert lines == {
        (): 2,
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "c", 0): 5,
        ("b", "c", 1): 6,
        ("b", "c", 1, "d"): 6,
    }
    assert str(document.place(("b", "missing", "deep"))) == "a.yaml:3"


def test_aliases_repeat_a_value() -> None:
    """An anchor saves writing a mapping twice."""
    assert from_text("a: &x {p: 1}\nb: *x\n").data == {"a": {"p": 1}, "b": {"p": 1}}


def test_a_key_given_twice_is_an_error_that_names_both_lines() -> None:
    """The second line is reported, with the first in the text; no value silently wins."""
    assert problems("seed: 1\nradio:\n  p: 1\n  q: 2\n  p: 3\nseed: 2\n") == [
        "a.yaml:5  radio.p: is given twice, first in line 3; keep one of them",
        "a.yaml:6  seed: is given twice, first in line 1; keep one of them",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a.yaml:1  the file is empty; a scenario is a mapping of settings, `key: value`"),
        ("# nothing\n", "a.yaml:1  the file is empty; a scenario is a mapping of settings, `key: value`"),
        ("# x\n- 1\n", "a.yaml:2  the top of the file must be a mapping, got a list; write `key: value`"),
        ("word\n", "a.yaml:1  the top of the file must be a mapping, got 'word'; write `key: value`"),
        ("a: {1.5: 2}", "a.yaml:1  a: a key must be text, got 1.5; write '1.5' in quotes"),
        ("a:\n  true: 2", "a.yaml:2  a: a key must be text, got true; write 'true' in quotes"),
        ("? [b]\n: 2", "a.yaml:1  a key must be text, got a list or mapping; write one word"),
        ("b: {<<: {p: 1}}", "a.yaml:1  b: merge keys are not used here, got '<<'; write `include: NAME`"),
        ("b: !!python/name:x 3", "a.yaml:1  b: yaml tags are not used here, got !!python/name:x; remove the tag"),
        ("b: !own {c: 3}", "a.yaml:1  b: yaml tags are not used here, got !own; remove the tag"),
        ("b: !!int three", "a.yaml:1  b: is no int, got 'three'; remove the tag"),
        ("b: !!int", "a.yaml:1  b: is no int, got ''; remove the tag"),
        ("b: &x\n  c: *x", "a.yaml:2  b.c: contains itself through an alias; write the value out"),
        ("b: 1\nc: [1", "a.yaml:2  yaml: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence)"),
        ("b: 1\n  c: 2", "a.yaml:2  yaml: mapping values are not allowed here"),
        ("b: 1\nc: \x01", "a.yaml:2  yaml: special characters are not allowed"),
        ("b: 1\n---\nc: 1", "a.yaml:2  yaml: but found another document (expected a single document in the stream)"),
        ("%YAML 1.1\n---\na: on", "a.yaml:1  yaml: must be version 1.2, got 1.1; remove the %YAML line"),
    ],
)
def test_text_that_is_no_scenario_is_told_with_its_line(text: str, problem: str) -> None:
    """Each way to break the text has its own sentence."""
    assert problems(text) == [problem]


def test_a_file_that_is_not_utf8_is_an_error() -> None:
    """Text in an old encoding is refused and the byte is shown."""
    Path("a.yaml").write_bytes(b"name: caf\xe9\n")

    with pytest.raises(ScenarioError, match=r"a\.yaml  the file must be UTF-8 text, got byte 0xe9"):
        load("a.yaml")


def test_include_puts_a_file_underneath() -> None:
    """Own keys win, mappings merge, and every value keeps the line of its own file."""
    write("base.yaml", "seed: 1\nradio:\n  p: 1\n  q: 1\n")
    write("a.yaml", "include: base\nradio:\n  q: 2\n")

    document = load("a.yaml")

    assert document.data == {"seed": 1, "radio": {"p": 1, "q": 2}}
    assert str(document.places["radio", "p"]) == "base.yaml:3"
    assert str(document.places["radio", "q"]) == "a.yaml:3"
    assert str(document.places["radio",]) == "a.yaml:2"


def test_include_is_relative_to_the_including_file() -> None:
    """Files that include each other can be moved together."""
    write("deep/down/a.yaml", "x:\n  include: ../b.yaml\n")
    write("deep/b.yaml", "include: down/c\np: 1\n")
    write("deep/down/c.yaml", "q: 2\n")

    assert load("deep/down/a.yaml").data == {"x": {"p": 1, "q": 2}}


def test_include_works_inside_lists() -> None:
    """An entry of a list may be a file and changes of it."""
    write("device.yaml", "flop_per_s: 1\ncount: 1\n")
    write("a.yaml", "devices:\n- include: device\n  count: 5\n- count: 2\n")

    assert load("a").data == {"devices": [{"flop_per_s": 1, "count": 5}, {"count": 2}]}


def test_a_short_form_reads_as_an_include() -> None:
    """`channel: street` is `channel: {include: street}`, found in the folder of channels."""
    write("channels/street.yaml", "carrier_hz: 3.5e9\nfading: rayleigh\n")
    short = from_text("channel: street\n", "a.yaml")
    long = from_text("channel:\n  include: street\n  fading: none\n")

    assert short.data == {"channel": {"carrier_hz": 3.5e9, "fading": "rayleigh"}}
    assert long.data == {"channel": {"carrier_hz": 3.5e9, "fading": "none"}}
    assert str(short.places["channel",]) == "a.yaml:1"


def test_only_keys_of_the_table_have_a_short_form() -> None:
    """The text of other settings stays text."""
    write("channels/street.yaml", "p: 1\n")

    assert from_text("name: street\n").data == {"name": "street"}


def test_a_circle_of_includes_is_an_error_that_shows_the_chain() -> None:
    """Reading stops at the include that closes the circle."""
    write("a.yaml", "include: b\n")
    write("b.yaml", "x: 1\ninclude: c\n")
    write("c.yaml", "\ninclude: a\n")

    with pytest.raises(ScenarioError) as caught:
        load("a")
    assert caught.value.problems == (
        "c.yaml:2  include: must not include itself, got a.yaml -> b.yaml -> c.yaml -> a.yaml; "
        "remove one of these includes",
    )


def test_a_file_may_extend_the_library_file_of_its_own_name() -> None:
    """A file that includes its own name means the next one that is called so."""
    write("../checkout/channels/street.yaml", "p: 1\nq: 1\n")
    write("channels/street.yaml", "include: street\nq: 2\n")

    assert from_text("channel: street\n").data == {"channel": {"p": 1, "q": 2}}


def test_problems_of_includes_are_told_together() -> None:
    """Unknown names, wrong values and problems inside included files come in one list, with near names."""
    write("channels/urban-micro.yaml", "p: 1\n")
    write("bad.yaml", "q: 1\nq: 2\n")
    text = "channel: urban-mirco\nx: {include: [1]}\ny:\n  include: bad.yaml\nz: {include: nowhere}\n"

    assert problems(text) == [
        "a.yaml:1  channel: no such channel, got 'urban-mirco'; did you mean 'urban-micro'?",
        "a.yaml:2  x.include: expected the name of a scenario file, got [1]; include one file",
        "bad.yaml:2  q: is given twice, first in line 1; keep one of them",
        "a.yaml:5  z.include: no such scenario, got 'nowhere'; give a path",
    ]


@pytest.mark.parametrize("name", ["s/mine.yaml", "s/mine", "../here/s/mine"])
def test_find_takes_a_path_with_or_without_its_ending(name: str) -> None:
    """A path is a name too."""
    path = write("s/mine.yaml", "a: 1\n")

    assert find(name).samefile(path)


def test_find_knows_names_from_anywhere() -> None:
    """The working folder comes before the packaged library, which comes before the checkout."""
    checkout = write("../checkout/scenarios/one.yaml", "a: 1\n")
    assert find("one").samefile(checkout)
    assert find("scenarios/one.yaml").samefile(checkout)

    packaged = write("../checkout/package/library/scenarios/one.yaml", "a: 2\n")
    assert find("one").samefile(packaged)

    own = write("scenarios/one.yaml", "a: 3\n")
    assert find("one").samefile(own)


def test_find_does_not_take_a_folder_for_a_file() -> None:
    """A folder with the name of a scenario does not hide it."""
    Path("one").mkdir()
    path = write("scenarios/one.yml", "a: 1\n")

    assert find("one").samefile(path)


def test_names_lists_every_search_folder_once() -> None:
    """Names are sorted, without endings, and other files have none."""
    write("channels/b.yaml", "")
    write("channels/traces/t.csv", "")
    write("../checkout/channels/b.yaml", "")
    write("../checkout/channels/paper/a.yaml", "")

    assert names("channels") == ["b", "paper/a"]
    assert names("scenarios") == []


def test_an_unknown_scenario_is_an_error_with_the_known_names() -> None:
    """A near name is suggested; without one, all are listed."""
    write("scenarios/cyclic.yaml", "a: 1\n")
    write("scenarios/ring.yaml", "a: 1\n")

    with pytest.raises(ScenarioError, match=r"^cyclc: no such scenario, got 'cyclc'; did you mean 'cyclic'\?$"):
        load("cyclc")
    with pytest.raises(ScenarioError, match=r"^zzz: no such scenario, got 'zzz'; known: cyclic, ring$"):
        load("zzz")

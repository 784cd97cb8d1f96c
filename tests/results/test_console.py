"""The console of the command line: text is shown as it is, whatever it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.errors import DataError, FednetError, ScenarioError, visible, visible_lines
from fednet_emu.screen.console import PlainConsole


@pytest.mark.parametrize("method", ["print", "out"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (":x: [bold]a[/bold] [/nope]", ":x: [bold]a[/bold] [/nope]"),
        ("\x1b[31mred\x1b[0m\a\r", "\\x1b[31mred\\x1b[0m\\x07\\r"),
        ("\u202eabc\u2066\u200b", "\\u202eabc\\u2066\\u200b"),
        ("two\nlines", "two\nlines"),
        ("\ud800 \U000e0001", "\\ud800 \\U000e0001"),
        ("größer × 2", "größer × 2"),
    ],
)
def test_text_is_shown_as_it_is(method: str, text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No markup, no emoji, no colour, no control character; only line breaks are what they are."""
    getattr(PlainConsole(), method)(text)

    assert capsys.readouterr().out == shown + "\n"


@given(st.text())
def test_what_is_visible_is_printable_and_stays_as_it_is(text: str) -> None:
    """Escaping twice is escaping once, and printable text is not touched."""
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
    assert visible_lines(text).count("\n") == text.count("\n")
    assert not text.isprintable() or visible(text) == text


@pytest.mark.parametrize(
    "error",
    [
        FednetError("\x1b[31mx"),
        ScenarioError("a\nb: \x1b[31mx"),
        ScenarioError("\x1b[31mx", "y"),
        DataError("\x1b[31mx", "b", "c"),
    ],
)
def test_errors_are_printable_for_callers_from_python_too(error: FednetError) -> None:
    """In a log or a notebook the text of an error is as safe."""
    assert all(line.isprintable() for line in str(error).splitlines())
    assert "\\x1b[31mx" in str(error)


def test_a_line_break_in_a_problem_makes_no_second_problem() -> None:
    """A key with a line break cannot pretend to be another problem."""
    assert str(ScenarioError("a\nb.yaml:1  fake: problem")).splitlines() == ["a\\nb.yaml:1  fake: problem"]


def test_a_hundred_problems_are_shown() -> None:
    """Of more, the number is given; all are in the error."""
    error = ScenarioError(*map(str, range(250)))

    assert str(error).splitlines()[0] == "250 problems in the scenario:"
    assert str(error).splitlines()[-2:] == ["  99", "  and 150 more"]
    assert len(error.problems) == 250

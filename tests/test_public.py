"""The list of public names is that of the code, and the changelog says what former names are called now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from public import LIST, ROOT, gone, today

from fednet_emu.errors import ScenarioError
from fednet_emu.testing import small_scenario

LISTED = LIST.read_text(encoding="utf-8").splitlines()
FORMER = [line for line in LISTED if line.startswith("- ")]
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
TABLE = "".join(re.findall(r"### Upgrade from .+?(?=\n###)", CHANGES, re.DOTALL))
ROWS = re.findall(r"^\| `(.+?)` \| (.+) \|$", TABLE, re.MULTILINE)
"""What was written with an earlier version, and what is written now."""
BEFORE = r'mode="before"\)\n    @classmethod\n    def (.*?)(?=\n    (?:@|def )|\n\n\n|\Z)'
"""A validator that sees what is written before anything else does."""
SETTINGS = [(former, now) for former, now in ROWS if re.match(r"[a-z_]+\.[a-z_.]+: ", former)]


def test_the_list_is_that_of_the_code() -> None:
    """A public name, parameter, default, key, option or column has not changed; else `python tools/public.py`."""
    now = today()

    assert [line for line in now if line not in set(LISTED)] == []
    assert gone(now, LISTED) == [line.removeprefix("- ") for line in FORMER]


def test_a_name_that_is_gone_stays_with_a_minus() -> None:
    """The tool tells a line that was there before from one that is still there."""
    now = ["fe.run()", "fe.run(seed) = 1", "fe.new()"]
    before = ["- fe.old()", "fe.older()", "fe.run()", "fe.run(seed) = 0"]
    assert gone(now, before) == ["fe.old()", "fe.older()"], "another default is no other name"


def test_what_is_gone_has_a_row() -> None:
    """The first column of a row of the upgrade tables has the last two words of each line with a minus."""
    told = [set(re.findall(r"[\w-]+(?:\.json)?", former)) for former, _ in ROWS]
    ends = {line: re.findall(r"[\w-]+(?:\.json)?", line.removeprefix("- "))[-2:] for line in FORMER}

    assert FORMER
    assert [line for line, words in ends.items() if not any(words_of >= set(words) for words_of in told)] == []


@pytest.mark.parametrize(("former", "now"), SETTINGS)
def test_a_former_setting_is_refused_with_its_new_name(former: str, now: str) -> None:
    """Each setting in the first column is refused in a sentence that has the word of the second."""
    with pytest.raises(ScenarioError) as refusal:
        small_scenario(former.replace(": ", "=", 1))

    words = re.findall(r"`(?:\{kind: )?([\w-]+)", now)
    assert words
    assert words[0] in str(refusal.value)


def test_what_the_code_refuses_by_its_former_name_has_a_row() -> None:
    """Validators that know a former word, which they quote, are in the table with it."""
    known = {
        word
        for path in Path(ROOT / "fednet_emu").rglob("*.py")
        for validator in re.findall(BEFORE, path.read_text(encoding="utf-8"), re.DOTALL)
        for word in re.findall(r"got ([a-z][\w-]+)[,:;]", validator)
    }

    assert known >= {"auto", "foschini-miljanic", "l2"}
    assert [word for word in known if not any(re.search(rf"\b{word}\b", former) for former, _ in SETTINGS)] == []

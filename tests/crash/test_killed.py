"""Killed before any of its file operations, a run or a sweep goes on or starts anew, and ends as if undisturbed.

The kills, and what is compared after them, are in `killer.py` beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Forked

STORIES = ["fresh", "beside-others", "resumed", "forced", "sweep", "resumed-sweep"]
KILLER = Path(__file__).with_name("killer.py")


def kills(story: str, room: Path, every: int, seed: int) -> list[dict[str, Any]]:
    told = Forked(KILLER, story, room / story, every, seed).ended()
    assert told.returncode == 0, told.stderr
    *found, last = map(json.loads, told.stdout.splitlines())
    assert last["operations"] >= 30
    return found


@pytest.mark.parametrize(
    ("story", "every"),
    [("fresh", 24), pytest.param("beside-others", 24, marks=pytest.mark.slow), ("resumed", 24), ("sweep", 60)],
)
def test_killed_before_some_operations(story: str, every: int, tmp_path: Path) -> None:
    """The same command goes on or starts anew, ends, leaves equal files to the byte, and keeps the user's."""
    found = kills(story, tmp_path, every, seed=0)

    assert len(found) > 1
    assert [kill for kill in found if kill["wrong"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_killed_before_each_operation(story: str, tmp_path: Path) -> None:
    """The same for each operation in turn; every other time, the second attempt is killed as well."""
    found = kills(story, tmp_path, every=1, seed=1)

    assert len(found) >= 30
    assert [kill for kill in found if kill["wrong"]] == []


HANGS = """
import runpy, sys
from pathlib import Path
from threading import Lock

def waits_for_ever(folder):
    lock = Lock()
    lock.acquire()
    lock.acquire()

killer = runpy.run_path(sys.argv[1])
killer["child"].__globals__["LONGEST_S"] = 0.2
print(killer["child"](waits_for_ever, Path(sys.argv[2])))
"""


def test_a_child_that_hangs_says_where(tmp_path: Path) -> None:
    """It ends by itself, and what it was at is what went wrong."""
    assert "waits_for_ever" in Forked("-c", HANGS, KILLER, tmp_path / "run").ended().stdout

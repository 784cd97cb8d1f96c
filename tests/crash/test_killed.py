"""Killed before any of its file operations, a run or a sweep goes on or starts anew, and ends as if undisturbed.

The kills, and what is compared after them, are in `killer.py` beside this file.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STORIES = ["fresh", "resumed", "forced", "sweep", "resumed-sweep"]
KILLER = Path(__file__).with_name("killer.py")


def kills(story: str, room: Path, every: int, seed: int) -> list[dict[str, Any]]:
    """What is wrong after each kill."""
    command = [sys.executable, str(KILLER), story, str(room / story), str(every), str(seed)]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    *found, last = map(json.loads, told.stdout.splitlines())
    assert last["operations"] >= 30
    return found


def test_every_story_is_told() -> None:
    """No story is left out here."""
    spec = importlib.util.spec_from_file_location("killer", KILLER)
    assert spec is not None
    assert spec.loader is not None
    killer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(killer)

    assert list(killer.STORIES) == STORIES


@pytest.mark.parametrize("story", ["fresh", "resumed", "sweep"])
def test_killed_before_some_operations(story: str, tmp_path: Path) -> None:
    """The same command goes on or starts anew, ends, leaves equal files to the byte, and keeps the user's."""
    found = kills(story, tmp_path, every=24, seed=0)

    assert len(found) > 1
    assert [kill for kill in found if kill["wrong"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_killed_before_each_operation(story: str, tmp_path: Path) -> None:
    """The same for each operation in turn; every other time, the second attempt is killed as well."""
    found = kills(story, tmp_path, every=1, seed=1)

    assert len(found) >= 30
    assert [kill for kill in found if kill["wrong"]] == []

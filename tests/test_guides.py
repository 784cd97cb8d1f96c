"""The guides' examples are whole files: each is written out as it stands, and run by an interpreter of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = ("guides/own-algorithm.md", "guides/plug-ins.md", "methods/selection.md", "guides/trackers.md")
BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILES = {
    name: text for guide in GUIDES for name, text in BLOCK.findall((ROOT / "docs" / guide).read_text(encoding="utf-8"))
}


def test_every_block_of_python_is_a_file():
    """No example hides from these tests by lacking its name."""
    blocks = sum((ROOT / "docs" / guide).read_text(encoding="utf-8").count("```python\n") for guide in GUIDES)

    assert len(FILES) == blocks == 7


@pytest.mark.parametrize("name", FILES)
def test_the_file_runs_as_it_stands(name, tmp_path):
    """With its own imports, in an empty folder, without a warning."""
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}

    done = subprocess.run(
        [sys.executable, name], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert not done.stderr

"""How soon a command is there, in times of what importing PyTorch alone takes; `python -m pytest -s` prints it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

TURNS = 4
COMMAND = [sys.executable, "-m", "fednet_emu"]
STARTS = {
    "import torch": [sys.executable, "-c", "import torch"],
    "fednet --help": [*COMMAND, "--help"],
    "fednet check quickstart": [*COMMAND, "check", "quickstart"],
}


def processor_s(command: Sequence[str]) -> float:
    """Processor time of a process from its start to its end; other programs on the machine change it little."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_commands_against_importing_torch() -> None:
    """Help takes at most a fifth of it; to check a scenario, which counts its model's parameters, at most twice."""
    turns = [{name: processor_s(command) for name, command in STARTS.items()} for _ in range(TURNS)]
    least = {name: min(turn[name] for turn in turns) for name in STARTS}
    print("\n" + ", ".join(f"{name} {taken_s:.2f} s" for name, taken_s in least.items()))

    assert least["fednet --help"] < 0.2 * least["import torch"]
    assert least["fednet check quickstart"] < 2 * least["import torch"]

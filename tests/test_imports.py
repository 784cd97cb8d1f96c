"""What only those import who need it: a fresh interpreter takes one step after another, and lists its modules."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.commands import LIMIT_S

STEPS = {
    "the package": "import fednet_emu as fe; assert 'run' in dir(fe)",
    "the help": "import fednet_emu.cli.app",
    "a scenario": """
from fednet_emu.emulation.load import load_scenario
load_scenario('quickstart', ['data={kind: torchvision, name: CIFAR10}'])
load_scenario('quickstart', ['data={kind: hugging-face, path: x, input: a, target: b}',
                             'model={kind: transformers, config: {model_type: gpt2}}'])
""",
    "a check": "import fednet_emu.emulation.build, fednet_emu.emulation.given",
    "the commands": "import fednet_emu.cli.app, fednet_emu.study.runners",
    "figures": "import fednet_emu.draw.figures.run_figures",
    "operations": """
import torch
from fednet_emu.learning.models.flops import FlopCount
with FlopCount() as count:
    torch.nn.Linear(3, 2)(torch.ones(4, 3)).sum().backward()
assert count.total == 96
""",
    "a trained agent": "import sys; sys.modules['gymnasium'] = None; import fednet_emu.environment.trained",
}
PROGRAM = """
import json, sys
there = {}
for name, step in json.loads(sys.argv[1]).items():
    exec(step)
    there[name] = sorted(sys.modules)
print(json.dumps(there))
"""


@pytest.fixture(scope="module")
def modules() -> dict[str, set[str]]:
    """The modules that are there after each step."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return {name: set(there) for name, there in json.loads(done.stdout).items()}


def test_the_import_is_cheap(modules: dict[str, set[str]]) -> None:
    """Neither torch nor pandas, matplotlib nor the package's own parts come with the name alone."""
    there = modules["the package"]

    assert not there & {"torch", "numpy", "pandas", "matplotlib", "pydantic", "simpy", "rich", "typer"}
    assert {name for name in there if name.startswith("fednet_emu")} == {"fednet_emu"}


def test_the_help_waits_for_no_large_library(modules: dict[str, set[str]]) -> None:
    """The commands are there before PyTorch, pandas, Matplotlib and SciPy are."""
    assert "fednet_emu.cli.app" in modules["the help"]
    assert not modules["the help"] & {"torch", "pandas", "matplotlib", "scipy", "pyarrow"}


def test_no_library_of_an_extra_is_imported_before_it_is_used(modules: dict[str, set[str]]) -> None:
    """Not even by a scenario that names them, as long as it is only read."""
    assert "pydantic" in modules["a scenario"]
    assert not modules["a scenario"] & {"torchvision", "datasets", "huggingface_hub", "PIL", "transformers"}
    assert not modules["operations"] & {"gymnasium", "pettingzoo"}


def test_a_trained_agent_needs_no_library_of_agents(modules: dict[str, set[str]]) -> None:
    """The selection rule that reads it is there where Gymnasium cannot be imported."""
    assert "fednet_emu.environment.trained" in modules["a trained agent"]
    assert not modules["a trained agent"] & {"gymnasium.core", "pettingzoo", "stable_baselines3"}


def test_a_check_waits_for_neither_tables_nor_statistics(modules: dict[str, set[str]]) -> None:
    """What builds a scenario needs no pandas and none of the larger parts of SciPy, which take as long as PyTorch."""
    assert "torch" in modules["a check"]
    assert not modules["a check"] & {"pandas", "matplotlib", "scipy.stats", "scipy.optimize"}


def test_nothing_imports_ray_unasked(modules: dict[str, set[str]]) -> None:
    """Whoever does not say --ray does not wait for it, even where it is installed."""
    assert "fednet_emu.study.runners" in modules["the commands"]
    assert "ray" not in modules["the commands"]


def test_figures_need_no_display(modules: dict[str, set[str]]) -> None:
    """The state machine for screens, pyplot, is never loaded."""
    assert "matplotlib.figure" in modules["figures"]
    assert "matplotlib.pyplot" not in modules["figures"]


def test_counting_does_not_load_the_compiler(modules: dict[str, set[str]]) -> None:
    """In a fresh interpreter a count leaves torch._dynamo, and with it 75 MB, where they are."""
    assert "torch" in modules["operations"]
    assert "torch._dynamo" not in modules["operations"]

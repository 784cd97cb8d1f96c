"""Libraries that few scenarios need are imported by these only: everything starts without them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data import hub
from fednet_emu.learning.models import TorchvisionModel

LIMIT_S = 600.0
"""More than any host needs to import the package."""
HEAVY = {"torchvision", "datasets", "huggingface_hub", "PIL"}


def test_no_library_of_an_extra_is_imported_before_it_is_used():
    """Not even by a scenario that names them, as long as it is only read."""
    code = (
        "import sys; from fednet_emu.emulation.load import load_scenario; "
        "load_scenario('quickstart', ['data={kind: torchvision, name: CIFAR10}']); "
        "load_scenario('quickstart', ['data={kind: hugging-face, path: x, input: a, target: b}']); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT_S)

    assert "pydantic" in done.stdout.split()
    assert not HEAVY & set(done.stdout.split())


@pytest.mark.parametrize("name", ["torchvision", "datasets"])
def test_a_missing_library_is_one_sentence(name, monkeypatch):
    """It names the extra that has it."""
    monkeypatch.setitem(sys.modules, name, None)
    extra = "hugging-face" if name == "datasets" else name

    with pytest.raises(
        ScenarioError, match=rf"{name} is not installed or incomplete .*pip install 'fednet-emu\[{extra}\]'"
    ):
        hub.library() if name == "datasets" else TorchvisionModel(name="resnet18").build((3, 32, 32), 10)

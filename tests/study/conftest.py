"""A study of a federation that runs in milliseconds, and a network that misbehaves when told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fednet_emu.testing import SMALL

MOODY = """
import os, pathlib, signal, time
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, mood="calm", once=None, told=None):
        super().__init__()
        self.linear, self.mood, self.once, self.told = nn.Linear(9, 1), mood, once, told

    def forward(self, x):
        if torch.is_grad_enabled() and self.mood != "calm":
            getattr(self, self.mood)()
        return self.linear(x)

    def raises(self):
        raise ZeroDivisionError("no way")

    def grows(self):
        hoard = [torch.ones(2_000_000) for _ in range(250)]  # 2 GB, and no more: a busy host may look late
        while hoard:
            time.sleep(0.01)

    def hangs(self):
        if self.told:
            pathlib.Path(self.told).touch()
        while True:
            time.sleep(0.01)

    def dawdles(self):
        time.sleep(0.05)

    def dies(self):
        if not pathlib.Path(self.once).exists():
            pathlib.Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def leaves(self):
        if not pathlib.Path(self.once).exists():
            pathlib.Path(self.once).touch()
            raise KeyboardInterrupt  # as a signal does
"""

StudyFile = Callable[[str], Path]


@pytest.fixture
def study_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyFile:
    """Writes a study file beside the scenario `small` and the module `moody`; `base` is set already."""
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "moody.py").write_text(MOODY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> Path:
        path = tmp_path / "study.yaml"
        path.write_text(f"base: small\n{text}", encoding="utf-8")
        return path

    return write


@pytest.fixture
def moods() -> Callable[..., str]:
    """The text of a grid with one axis of networks in different moods."""
    return _moods


def _moods(*names: str, **more: str) -> str:
    args = "".join(f", {name}: {value}" for name, value in more.items())
    lines = [
        f"    {name}: {{model: {{kind: module, path: 'moody:Net', args: {{mood: {name}{args}}}}}}}" for name in names
    ]
    return "\n".join(["set: {training.engine: serial}", "grid:", "  mood:", *lines, ""])

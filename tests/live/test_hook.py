"""What the hook does in a process of Flower; a package of that name stands for the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fednet_emu.realtime

HOOK = Path(fednet_emu.realtime.__file__).parent / "hook"
MODULES = {
    "clientapp/client_app": """
class ClientApp:
    def __call__(self, message, context):
        return message
""",
    "serverapp/server_app": """
class ServerApp:
    def __call__(self, grid, context):
        context(grid)
""",
    "superlink/grid/http_grid": """
class HttpGrid:
    def push_messages(self, messages):
        return [id(message) for message in messages]
    def pull_messages(self, ids):
        return iter(ids)
""",
    "serverapp/strategy/strategy": """
class Strategy:
    def start(self, grid, evaluate_fn=None):
        return self.aggregate_train(1), self.aggregate_evaluate(2), evaluate_fn(3)
""",
}
SAID = """
class Meta:
    def __init__(self, kind):
        self.message_type = kind
class Message:
    def __init__(self, kind, records=None):
        self.metadata, self.records = Meta(kind), records
        self.content = self
        self.metric_records = {"metrics": {"num-examples": 20}}
    def has_content(self):
        return True
"""


@pytest.fixture
def notes(tmp_path: Path) -> Any:
    """Run code in a process with the hook; its notes."""
    for name, text in MODULES.items():
        path = tmp_path / "flwr" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for folder in (path.parent, path.parent.parent, tmp_path / "flwr"):
            (folder / "__init__.py").touch()  # a package, so that it hides one that is installed
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.own = True\n")

    def run(code: str, **work: Any) -> list[dict[str, Any]]:
        file = tmp_path / "notes.jsonl"
        known = {"flop_per_example": {}, "overhead_s": 0.0, "flop_per_s": 1e9, "factors": [1.0], **work}
        more = {
            "PYTHONPATH": os.pathsep.join([str(HOOK), str(tmp_path)]),
            "FEDNET_NOTES": str(file),
            "FEDNET_WORK": json.dumps(known),
        }
        ran = subprocess.run(
            [sys.executable, "-c", SAID + code], env={**os.environ, **more}, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in file.read_text().splitlines()]

    return run


def test_a_client_is_padded_to_its_device(notes: Any) -> None:
    """FLOPs of the examples over speed, and an overhead, times the factor of its message: the second has the second."""
    code = """
from flwr.clientapp.client_app import ClientApp
assert own, "the environment's own file of this name is run, too"
for kind in ("train", "train", "query"):
    ClientApp()(Message(kind), None)
"""
    found = notes(code, flop_per_example={"train": 1e6}, overhead_s=0.01, factors=[1.0, 3.0])
    assert [note["flop"] for note in found] == [20e6, 20e6, 0.0]
    assert [note["wanted_s"] for note in found] == pytest.approx([0.03, 0.09, 0.0])
    took_s = [(note["ns"] - note["began_ns"]) / 1e9 for note in found]
    assert took_s[0] >= 0.03
    assert took_s[1] >= 0.09


def test_the_server_is_watched(notes: Any) -> None:
    """What it sends and collects by type, what its strategy sums up, and how it ends."""
    code = """
from flwr.serverapp.server_app import ServerApp
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.serverapp.strategy.strategy import Strategy

class Own(Strategy):
    def aggregate_train(self, replies):
        return None, {"train_loss": 0.5, "name": "x"}
    def aggregate_evaluate(self, replies):
        return {"eval_acc": 0.75}

def main(grid):
    assert len(grid.push_messages(iter([Message("train"), Message("train.own"), Message("query")]))) == 3
    assert len(grid.pull_messages([Message("train")])) == 1
    assert grid.pull_messages([]) == []
    own = Own()
    assert own.start(grid, evaluate_fn=lambda number: {"accuracy": 0.25})[1] == {"eval_acc": 0.75}
    assert "aggregate_train" not in vars(own)
    raise ValueError("no such luck")

try:
    ServerApp()(HttpGrid(), main)
except ValueError:
    pass
"""
    found = notes(code)
    assert [note["what"] for note in found] == ["begin", "sent", "got", "metrics", "metrics", "metrics", "end"]
    assert found[1]["count"] == {"train": 2, "query": 1}
    assert found[2]["count"] == {"train": 1}
    assert [(note["source"], note["metrics"]) for note in found[3:6]] == [
        ("train", {"train_loss": 0.5}), ("evaluate", {"eval_acc": 0.75}), ("central", {"accuracy": 0.25})
    ]  # fmt: skip
    assert "no such luck" in found[-1]["error"]
    assert [note["ns"] for note in found] == sorted(note["ns"] for note in found)

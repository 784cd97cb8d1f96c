"""Small Flower apps, written into folders, and a network on which all times can be calculated by hand."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

SERVER = """
    import numpy as np
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()

    @app.main()
    def main(grid, context):
        arrays = ArrayRecord({"w": Array(np.zeros(100, np.float32))})
        FedAvg(**STRATEGY).start(grid=grid, initial_arrays=arrays, num_rounds=context.run_config["rounds"])
"""
"""FedAvg of a vector of 100 floats; STRATEGY are its options."""

CLIENT = """
    import numpy as np
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def reply(msg, metrics, **arrays):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 20, **metrics}), **arrays}), reply_to=msg)

    @app.train()
    def train(msg, context):
        w = msg.content["arrays"]["w"].numpy() + 1 + context.node_config["partition-id"]
        return reply(msg, {"train_loss": float(w[0])}, arrays=ArrayRecord({"w": Array(w.astype(np.float32))}))

    @app.evaluate()
    def evaluate(msg, context):
        w = float(msg.content["arrays"]["w"].numpy()[0])
        return reply(msg, {"eval_loss": 100 - w, "eval_acc": w / 100})
"""
"""Device k adds k + 1 to the vector; the accuracy is its first entry in per cent."""

TABLE = '[tool.flwr.app.components]\nserverapp = "toy.server_app:app"\nclientapp = "toy.client_app:app"\n'
CONFIG = "[tool.flwr.app.config]\nrounds = 3\nnested.rate = 0.5\n"

SMALL = {
    "title": "A small federation",
    "devices": {
        "count": 4,
        "placement": {"kind": "disc", "radius_m": 50, "inner_radius_m": 10},
        "speed": {"kind": "fixed", "flop_per_s": 1e6},
    },
    "channel": "ideal",
    "stop": {"simulated_s": 1000.0},
}
"""Every transmission runs at 1 Mbit/s and arrives; uploads take turns; each device does 1 MFLOP/s."""

WriteApp = Callable[..., Path]


@pytest.fixture
def write_app(tmp_path: Path) -> WriteApp:
    """Write an app into a folder: the code of its server and client, its `pyproject.toml`, FedAvg's options."""

    def write(server: str = SERVER, client: str = CLIENT, project: str = TABLE + CONFIG, **strategy: Any) -> Path:
        folder = tmp_path / "app"
        (folder / "toy").mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(project, encoding="utf-8")
        (folder / "toy" / "__init__.py").touch()
        text = dedent(server).replace("STRATEGY", repr(strategy))
        (folder / "toy" / "server_app.py").write_text(text, encoding="utf-8")
        (folder / "toy" / "client_app.py").write_text(dedent(client), encoding="utf-8")
        return folder

    return write


LOSSES = {
    "no loss": {},
    "10 % loss": {way: {"message_loss": {"kind": "random", "probability": 0.1}} for way in ("uplink", "downlink")},
}


def on_small(app: Path, **algorithm: Any) -> dict[str, Any]:
    """The scenario of an app on the small network; 1000 FLOP per example unless said otherwise."""
    settings = {"kind": "flower", "app": str(app), "work": {"flop_per_example": 1000.0}, **algorithm}
    return {**SMALL, "algorithm": settings}

"""A Flower app that nobody wrote for it, as processes in namespaces: rounds, bytes, padding, and who is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent
from typing import Any

import pandas as pd
import pytest

import fednet_emu as fe
from tests.live.conftest import table
from tests.live.test_live import host_facts, marked

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("machine")]
if tuple(map(int, version("flwr").split(".")[:2])) < (1, 41):
    pytest.skip("takes Flower 1.41 or later", allow_module_level=True)

SERVER = """
    import numpy as np
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()

    @app.main()
    def main(grid, context):
        count = int(context.run_config["numbers"])
        arrays = ArrayRecord({"w": Array(np.zeros(count, np.float32))})
        nodes = int(context.run_config["nodes"])
        strategy = FedAvg(min_available_nodes=nodes, fraction_evaluate=float(context.run_config["evaluate"]))
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=int(context.run_config["rounds"]))
"""
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
        return reply(msg, {"eval_acc": float(msg.content["arrays"]["w"].numpy()[0]) / 100})
"""
PROJECT = """
    [project]
    name = "plain"
    version = "1.0.0"
    description = ""
    license = "Apache-2.0"
    dependencies = []

    [tool.flwr.app]
    publisher = "nobody"

    [tool.flwr.app.components]
    serverapp = "plain.server_app:app"
    clientapp = "plain.client_app:app"

    [tool.flwr.app.config]
    rounds = 1
    numbers = 250000
    nodes = 2
    evaluate = 0.0
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """FedAvg of a vector with NumPy; device k adds k + 1 to it, and its first entry is the accuracy in per cent."""
    folder = tmp_path / "plain-app"
    (folder / "plain").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(dedent(PROJECT))
    for name, text in (("__init__", ""), ("server_app", SERVER), ("client_app", CLIENT)):
        (folder / "plain" / f"{name}.py").write_text(dedent(text))
    return folder


def cell(devices: int = 2, *, rate_bps: float = 1e7, **more: Any) -> dict[str, Any]:
    """A cell in which each device does 1 MFLOP/s, and every transmission has this rate."""
    return {
        "devices": {
            "count": devices,
            "placement": {"kind": "disc", "radius_m": 50},
            "speed": {"kind": "fixed", "flop_per_s": 1e6},
        },
        "channel": {"include": "ideal", "rate": {"kind": "fixed", "bit_rate_bps": rate_bps}},
        "network": {"uplink": {"access": "ofdma"}, "downlink": {"access": "ofdma", "mode": "unicast"}},
        "stop": {"simulated_s": 400},
        **more,
    }


def played(app: Path, out: Path, scenario: dict[str, Any] | None = None, **settings: Any) -> fe.Run:
    given = {f"algorithm.run_config.{key}": value for key, value in settings.items()}
    return fe.live(scenario or cell(), flower=str(app), out=out, settings=given, boot_s=120)


def test_rounds_bytes_and_scores_are_recorded(app: Path, tmp_path: Path) -> None:
    """Two rounds of two nodes: each model message with its bytes, what the strategy measures, and a clean host."""
    before = host_facts()
    run = played(app, tmp_path / "run", rounds=2, evaluate=1.0)
    assert (run.summary["status"], run.summary["rounds"], run.summary["verified"]) == ("done", 2, True)
    assert run.rounds[["invited", "arrived"]].to_numpy().tolist() == [[2, 2], [2, 2]]
    assert (run.rounds["started_s"].iloc[1:].to_numpy() == run.rounds["ended_s"].iloc[:-1].to_numpy()).all()
    model_byte = 1_000_000
    messages = run.table("live_messages").join(run.transfers[["direction", "sender"]])
    models = messages[messages["payload_byte"] > model_byte / 2].groupby("direction", observed=True)["payload_byte"]
    assert models.count().to_dict() == {"downlink": 8, "uplink": 4}, "evaluation sends the model, too"
    assert (
        (messages["payload_byte"].where(messages["payload_byte"] > model_byte / 2).dropna() - model_byte)
        .between(0, 0.006 * model_byte)
        .all()
    )
    # device 0 adds 1, device 1 adds 2: after r rounds the mean is 1.5 r
    assert run.evaluations["accuracy"].tolist() == pytest.approx([0.015, 0.03])
    assert sorted(run.computes["device"]) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert run.summary["live"]["start_s"] > 0
    assert not (tmp_path / "run/flower").exists()
    assert host_facts() == before


def test_clients_take_as_long_as_their_devices(app: Path, tmp_path: Path) -> None:
    """Padded to FLOPs over speed, and recorded with them."""
    scenario = cell()
    given = {"algorithm.work.flop_per_example": 100_000.0, "algorithm.run_config.numbers": 1000}
    run = fe.live(scenario, flower=str(app), out=tmp_path / "run", settings=given, boot_s=120)
    assert run.computes["flop"].tolist() == [2e6, 2e6]
    assert ((run.computes["ended_s"] - run.computes["started_s"]) >= 2.0).all()
    own = run.table("live_computes")
    assert own["wanted_s"].tolist() == pytest.approx([2.0, 2.0])


def test_an_app_that_raises_is_told(app: Path, tmp_path: Path) -> None:
    """With its traceback, and status failed."""
    (app / "plain/server_app.py").write_text(
        dedent(SERVER).replace('count = int(context.run_config["numbers"])', 'raise ValueError("no such luck")')
    )
    with pytest.raises(fe.FednetError, match="no such luck"):
        played(app, tmp_path / "run")
    assert json.loads((tmp_path / "run/summary.json").read_text())["status"] == "failed"


@pytest.mark.slow
def test_a_node_that_is_killed_in_mid_upload_is_what_it_was(app: Path, tmp_path: Path) -> None:
    """Its message is lost for "left", its program has died of signal 9, and the app goes on after 180 s."""
    out, scenario = tmp_path / "run", cell(rate_bps=8e5)
    done = threading.Event()

    def kill() -> None:
        while not done.wait(0.2):
            notes = out / "flower/notes-1.jsonl"
            if notes.exists() and "compute" in notes.read_text():
                break
        time.sleep(3.0)  # a reply of 1 MB takes 10 s
        for process in marked("FLWR_HOME=" + str(out / "flower/home-1")):
            if b"flower-supernode" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        run = played(app, out, scenario)
    finally:
        done.set()
        killer.join()
    assert run.rounds[["invited", "arrived"]].to_numpy().tolist() == [[2, 1]]
    assert 180.0 <= float(run.rounds["ended_s"].iloc[0]) <= 260.0
    lost = run.transfers[run.transfers["loss_reason"] != ""]
    assert lost[["direction", "sender"]].to_numpy().tolist() == [["uplink", 1]]
    codes: pd.Series[Any] = table(out, "live_programs").set_index("device")["code"]
    assert codes[1] == -9

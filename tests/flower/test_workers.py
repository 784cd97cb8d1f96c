"""Clients in worker processes: nothing but the host time depends on how many there are."""

import multiprocessing
import os

import pytest

import fednet_emu as fe
from fednet_emu.errors import AppFailed
from tests.flower.conftest import CLIENT, SERVER, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

FAST = {"progress": False}
LEARNING = """
    import logging
    import os
    import random
    import time

    import numpy as np
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def reply(msg, metrics, **arrays):
        metrics = MetricRecord({"num-examples": 20, **metrics})
        return Message(RecordDict({"metrics": metrics, **arrays}), reply_to=msg)

    @app.train()
    def train(msg, context):
        k = context.node_config["partition-id"]
        seen = context.state.setdefault("seen", MetricRecord({"n": 0, "sum": 0.0}))
        seen["n"] += 1
        own = torch.rand(100) + random.random() + np.random.random()
        if "own" in context.state:
            own += context.state["own"].to_torch_state_dict()["w"]
        context.state["own"] = ArrayRecord({"w": own})
        layer = torch.nn.Linear(100, 1 + k)
        layer(own).sum().backward()
        time.sleep(0.001 * k)
        logging.getLogger("flwr").info("client %d has seen %d", k, seen["n"])
        w = msg.content["arrays"].to_torch_state_dict()["w"] + own + layer.weight.grad[0]
        metrics = {"train_loss": float(w[0]), "n": seen["n"], "t": time.time(), "host": os.getpid() if PIDS else 0}
        return reply(msg, metrics, arrays=ArrayRecord({"w": w}))

    @app.evaluate()
    def evaluate(msg, context):
        torch.nn.Linear(10, 4)(torch.ones(20, 10))
        w = float(msg.content["arrays"].to_torch_state_dict()["w"][0])
        seen = context.state.get("seen", {"n": 0})
        return reply(msg, {"eval_loss": w, "eval_acc": seen["n"] / 100})
"""
"""Draws from all generators, remembers numbers and arrays, is counted by PyTorch, sleeps, and logs."""

POLLING = """
    import time

    import numpy as np
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid, context):
        w, came = np.zeros(100, np.float32), 0

        def invite(nodes):
            content = RecordDict({"arrays": ArrayRecord({"w": Array(w)})})
            return set(grid.push_messages([Message(content, node, "train") for node in nodes]))

        waiting = invite([2, 3, 4, 5, 3])
        while came < 15:
            time.sleep(0.001)
            for reply in grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                w = 0.5 * w + 0.5 * reply.content["arrays"]["w"].numpy()
                came += 1
                waiting |= invite([reply.metadata.src_node_id])
"""
"""Asynchronous learning, in which one device gets two messages at first."""

WORLDS = {
    "loss": {"uplink": {"message_loss": {"kind": "random", "probability": 0.3}}},
    "unicast": {"downlink": {"mode": "unicast", "message_loss": {"kind": "random", "probability": 0.2}}},
    "polling": {},
}


def tables(run):
    """All tables of a run, and its digest; its events are among them."""
    return run.digest, {name: run.table(name) for name in run.names()}


@pytest.fixture
def before():
    """Processes that were there before the test, such as workers that earlier runs have kept."""
    return set(multiprocessing.active_children())


@pytest.mark.parametrize("world", WORLDS)
def test_nothing_depends_on_the_number_of_workers(write_app, caplog, world):
    """Digest and tables are equal, with losses, a deadline that a slow device misses, memory, and chance."""
    caplog.set_level("INFO", "fednet_emu")
    server = {"server": POLLING} if world == "polling" else {}
    app = write_app(client=LEARNING.replace("PIDS", "False"), **server)
    scenario = {**on_small(app, work={}), "network": WORLDS[world]}
    if world != "polling":
        scenario["algorithm"]["deadline_s"] = 0.3
    speeds = {"kind": "list", "flop_per_s": [1e6, 5e5, 2e6, 2e3]}
    scenario["devices"] = {**scenario["devices"], "speed": speeds}
    seen = []
    for workers in (1, 2, 3):
        caplog.clear()
        run = fe.run(scenario, settings={"training.workers": workers}, seed=5, **FAST)
        told = sorted(text for text in (record.getMessage() for record in caplog.records) if "has seen" in text)
        seen.append((run, *tables(run), told))
    first, digest, frames, told = seen[0]

    assert len(first.transfers) > 20
    assert told
    if world != "polling":
        assert (first.rounds.arrived > 0).all()  # Flower 1.21 fails where nobody has answered
        assert (first.transfers.loss_reason != "").any()
        assert (first.computes.stopped == "deadline").any()
    for run, its_digest, its_frames, its_told in seen[1:]:
        assert its_digest == digest
        assert run.summary["event_digest"] == first.summary["event_digest"]
        assert its_told == told or world == "polling"  # whose app ends while clients still train
        for name, frame in frames.items():
            assert frame.equals(its_frames[name]), name


def test_clients_run_in_other_processes(write_app, before):
    """As many as asked for take part, none of which is that of the run; with one it is that of the run."""
    app = write_app(client=LEARNING.replace("PIDS", "True"))
    hosts = []
    for workers in (1, 2):
        run = fe.run(on_small(app, work={}), settings={"training.workers": workers}, **FAST)
        metrics = run.series("client_metrics")
        hosts.append(set(metrics[metrics.metric == "host"].value.astype(int)))

    assert hosts[0] == {os.getpid()}
    assert len(hosts[1]) == 2
    assert os.getpid() not in hosts[1]
    assert set(multiprocessing.active_children()) <= before


def test_cells_of_a_sweep_train_in_their_own_processes(write_app):
    """Two cells side by side, one of which asks for two workers: it ends, with the results of the other."""
    app = write_app(client=LEARNING.replace("PIDS", "False"))
    study = fe.sweep(on_small(app, work={}), grid={"training.workers": [1, 2]}, seeds=1, workers=2, progress=False)

    assert study.runs["status"].tolist() == ["done", "done"]
    for column in ("simulated_s", "uplink_bit", "energy_j", "accuracy"):
        assert study.runs[column].nunique() == 1, column


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_raises(write_app, workers, before):
    """The traceback is the client's own, whichever process it runs in."""
    app = write_app(client=CLIENT.replace('w = msg.content["arrays"]["w"].numpy() + 1', "w = 1 / 0"))
    where = "the app failed: the ClientApp of dev-0, message 'train'"
    with pytest.raises(AppFailed, match=f"(?s)^Traceback .*ZeroDivisionError: division by zero\n{where}") as raised:
        fe.run(on_small(app), settings={"training.workers": workers}, **FAST)

    assert "w = 1 / 0" in str(raised.value)
    assert "fednet_emu/flower" not in str(raised.value)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(
    ("end", "how"),
    [("os._exit(7)", "ended with exit code 7"), ("os.kill(os.getpid(), 9)", "was killed by SIGKILL; the host may")],
)
def test_a_worker_that_dies(write_app, end, how, before):
    """One sentence says which client it was and how it ended; nothing waits for it."""
    dying = f"import os\n        if context.node_config['partition-id'] == 2: {end}\n        w = msg.content"
    app = write_app(client=CLIENT.replace("w = msg.content", dying, 1))
    with pytest.raises(
        AppFailed, match=f"^its process {how}.*before it had answered\n.*ClientApp of dev-2, message 't"
    ):
        fe.run(on_small(app), settings={"training.workers": 2}, **FAST)

    assert set(multiprocessing.active_children()) <= before


def test_a_client_that_cannot_be_imported_elsewhere(write_app):
    """A module that only the first process can import is named with its traceback."""
    client = "import multiprocessing\nassert multiprocessing.parent_process() is None\n"
    app = write_app(client=CLIENT)
    path = app / "toy" / "client_app.py"
    path.write_text(client + path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(
        AppFailed, match=r"(?s)parent_process\(\) is None.*the import of its modules in another process"
    ):
        fe.run(on_small(app), settings={"training.workers": 2}, **FAST)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_apps_as_objects_are_copied_with_the_process():
    """They need not be importable: processes are forked, and results are the same."""
    import numpy as np
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    server_app, client_app, pids = ServerApp(), ClientApp(), set()

    @server_app.main()
    def main(grid, context):
        strategy = FedAvg(fraction_evaluate=0.0, min_evaluate_nodes=0)
        strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3))}), num_rounds=2)

    @client_app.train()
    def train(msg, context):
        pids.add(os.getpid())
        w = msg.content["arrays"]["w"].numpy() + np.random.random()
        metrics = MetricRecord({"num-examples": 1, "train_loss": float(w[0])})
        return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "m": metrics}), reply_to=msg)

    algorithm = fe.Flower(server_app, client_app, work={"flop_per_example": 1.0})
    base = {**on_small("."), "algorithm": algorithm}
    one = fe.run(base, **FAST)
    here = set(pids)
    pids.clear()
    two = fe.run(base, settings={"training.workers": 2}, **FAST)

    assert here == {os.getpid()}
    assert not pids
    assert one.digest == two.digest
    assert one.series("client_metrics").equals(two.series("client_metrics"))
    with pytest.raises(fe.ScenarioError, match=r"training.workers: .* several threads, got an app as objects and 2"):
        fe.run(base, settings={"training.workers": 2, "training.threads": 2}, **FAST)


def test_a_run_with_workers_goes_on(write_app, tmp_path):
    """What workers have answered before the run was cut off is not computed again; numbers are those of one process."""
    early = "msg.content['config']['server-round'] < 3"
    once = f"import pathlib\n        assert not pathlib.Path('STOP').exists() or {early}\n"
    client = LEARNING.replace("PIDS", "False").replace("        k = ", f"        {once}        k = ", 1)
    app = write_app(client=client.replace("STOP", str(tmp_path / "stop")), server=SERVER)
    settings, out = {"training.workers": 2}, tmp_path / "out"
    whole = fe.run(on_small(app, work={}), **FAST)
    (tmp_path / "stop").touch()
    with pytest.raises(AppFailed, match="server-round"):
        fe.run(on_small(app, work={}), settings=settings, out=out, **FAST)
    (tmp_path / "stop").unlink()
    resumed = fe.run(on_small(app, work={}), settings=settings, out=out, **FAST)

    assert "going on: 16 replies of clients are known" in (out / "log.txt").read_text(encoding="utf-8")
    assert resumed.digest == whole.digest
    assert resumed.series("client_metrics").equals(whole.series("client_metrics"))

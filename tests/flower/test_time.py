"""Simulated time of Flower apps, and their books in live mode."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fednet_emu as fe
from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.realtime.flower import FlowerPrograms
from fednet_emu.results.live import LivePlan
from tests.flower.conftest import CLIENT, SERVER, WriteApp, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

FAST = {"progress": False}
LINEAR = """
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def reply(msg, **arrays):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 20}), **arrays}), reply_to=msg)

    @app.train()
    def train(msg, context):
        model = torch.nn.Linear(10, 4)
        for _ in range(1 + context.node_config["partition-id"]):
            model(torch.ones(20, 10)).sum().backward()
        return reply(msg, arrays=msg.content["arrays"])

    @app.evaluate()
    def evaluate(msg, context):
        torch.nn.Linear(10, 4)(torch.ones(20, 10))
        return reply(msg)
"""
"""Device k passes 20 samples k + 1 times forward and backward through a matrix of 10 by 4."""

POLLING = """
    import time
    from time import sleep

    import numpy as np
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid, context):
        began, w, log = time.time(), np.zeros(100, np.float32), []

        def invite(nodes):
            content = RecordDict({"arrays": ArrayRecord({"w": Array(w)})})
            return set(grid.push_messages([Message(content, node, "train") for node in nodes]))

        waiting = invite(grid.get_node_ids())
        while len(log) < 12:
            sleep(0.01)
            for reply in grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                w = 0.5 * w + 0.5 * reply.content["arrays"]["w"].numpy()
                log.append((round(time.time() - began, 3), reply.metadata.src_node_id))
                waiting |= invite([reply.metadata.src_node_id])
        assert time.time() == time.monotonic() == time.perf_counter() == time.time_ns() / 1e9
        print(log)
"""
"""Asynchronous learning: each reply is mixed in as it comes, and its device goes on with the result at once."""


def test_operations_are_counted_once_per_device_and_message(write_app):
    """Forward takes 2 * 20 * 10 * 4; backward, for the weights alone, as much; k + 1 times at device k."""
    run = fe.run(on_small(write_app(client=LINEAR), work={}, run_config={"rounds": 2}), **FAST)

    flop = run.computes.groupby("device").flop.apply(sorted)
    assert [flop[k] for k in range(4)] == [[1600.0] * 2 + [3200.0 * (k + 1)] * 2 for k in range(4)]
    assert run.computes.ended_s.max() < 1


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_an_app_without_pytorch_works_six_operations_per_parameter_and_example(write_app, fraction):
    """100 parameters, 20 examples: a fit is 12,000 operations, an evaluation 4,000, and a warning says so once."""
    told = r"no operation in the training of dev-\d.*; give one, as with --set algorithm\.work\.flop_per_example=600$"
    app = write_app(fraction_train=fraction, min_train_nodes=1)
    with pytest.warns(UserWarning, match=told) as warned:
        run = fe.run(on_small(app, work={}), **FAST)

    assert len(warned) == 1
    assert run.computes.flop.value_counts().to_dict() == {12_000.0: 3 * round(4 * fraction), 4_000.0: 12}
    given = {"flop_per_example": 600.0, "evaluate_flop_per_example": 200.0}
    assert run.digest == fe.run(on_small(app, work=given), **FAST).digest


def test_training_without_parameters_has_no_price(write_app):
    """Bytes, as of a forest, are no parameters: such a client would take no time, and nobody would notice."""
    server = SERVER.replace("np.zeros(100, np.float32)", "np.zeros(100, np.uint8)")
    with pytest.raises(ScenarioError, match=r"algorithm.work: PyTorch has counted no operation in the training of dev"):
        fe.run(on_small(write_app(server=server), work={}), **FAST)


def test_an_evaluation_without_products_is_free_where_pytorch_counts_training(write_app):
    """Only an app whose training is not counted either is taken to evaluate its parameters."""
    client = LINEAR.replace("torch.nn.Linear(10, 4)(torch.ones(20, 10))\n", "pass\n")
    run = fe.run(on_small(write_app(client=client), work={}, run_config={"rounds": 2}), **FAST)

    assert sorted(set(run.computes.flop)) == [0.0, 3200.0, 6400.0, 9600.0, 12800.0]


def test_evaluation_may_have_a_price_of_its_own(write_app):
    """Otherwise it is a third of that of training."""
    app = write_app()
    price = {"flop_per_example": 300.0, "evaluate_flop_per_example": 7.0}
    runs = [fe.run(on_small(app, work=work), **FAST) for work in ({"flop_per_example": 300.0}, price)]

    assert [sorted(set(run.computes.flop)) for run in runs] == [[2000.0, 6000.0], [140.0, 6000.0]]


def test_a_client_that_sleeps_takes_longer(write_app):
    """Simulated seconds that a client sleeps pass before it answers, and the host does not wait."""
    client = CLIENT.replace("w = msg.content", "import time; time.sleep(100.0)\n        w = msg.content")
    began_s = time.monotonic()
    run = fe.run(on_small(write_app(client=client, fraction_evaluate=0.0)), **FAST)

    assert 300 < run.summary["simulated_s"] < 301
    assert time.monotonic() - began_s < 60


def test_a_polling_app_lives_in_simulated_time(write_app, capsys):
    """Fast devices come more often than slow ones, each at its own moment, and a second run is equal."""
    scenario = on_small(write_app(server=POLLING))
    speeds = {"kind": "list", "flop_per_s": [1e6, 5e5, 2e5, 1e5]}
    scenario["devices"] = {**scenario["devices"], "speed": speeds}
    first, again = (fe.run(scenario, **FAST) for _ in range(2))
    told, told_again = capsys.readouterr().out.splitlines()
    nodes = [node for _, node in eval(told)]

    assert first.digest == again.digest
    assert told == told_again
    assert nodes[0] == 2
    assert [nodes.count(node) for node in (2, 3, 4, 5)] == sorted(
        (nodes.count(node) for node in (2, 3, 4, 5)), reverse=True
    )
    assert nodes.count(2) > nodes.count(5) >= 1
    assert first.rounds.invited.iloc[0] == 4
    assert first.rounds.arrived.sum() == len(nodes)


def test_pulling_without_a_pause_does_not_stop_time(write_app):
    """An app that only pulls loses a tenth of a second each time, as with Flower's own grid."""
    server = POLLING.replace("sleep(0.01)", "pass").replace("print(log)", "print(time.time())")
    run = fe.run(on_small(write_app(server=server)), **FAST)

    assert run.rounds.arrived.sum() == 12


def test_waiting_for_coroutines_and_processes_takes_the_hosts_time(write_app):
    """A client that awaits something, or waits in vain for a process, goes on; simulated time knows nothing of it."""
    waits = """import asyncio, multiprocessing.connection
        asyncio.run(asyncio.sleep(0.01))
        ends = multiprocessing.Pipe()
        assert not multiprocessing.connection.wait(ends[:1], 0.01)
        w = msg.content"""
    run = fe.run(on_small(write_app(client=CLIENT.replace("w = msg.content", waits)), run_config={"rounds": 1}), **FAST)

    assert run.summary["simulated_s"] < 1


def test_the_hosts_clock_is_left_alone(write_app):
    """During a run other threads see the host's time, and afterwards everybody does."""
    real, seen = time.time, []
    app = write_app(client=CLIENT.replace("w = msg.content", "import seeing; seeing.now()\n        w = msg.content"))
    (app / "seeing.py").write_text(
        "import threading, time\nTIMES = []\ndef now():\n"
        "    thread = threading.Thread(target=lambda: TIMES.append(time.time()))\n"
        "    thread.start(); thread.join(); assert TIMES[-1] > 1e9 > time.time()\n",
        encoding="utf-8",
    )
    fe.run(on_small(app), **FAST)
    seen.append(time.time())

    assert time.time is real
    assert seen[0] > 1e9
    assert threading.active_count() >= 1


def test_messages_are_stamped_with_simulated_time(write_app):
    """`created_at` is when the app makes a message; what is left of a reply's life is what simulated time has left."""
    server = SERVER.replace(
        "FedAvg(**",
        """
        import time
        time.sleep(5)
        (message,) = messages = [Message(RecordDict(), 3, "train", ttl=100.0)]
        assert message.metadata.created_at == time.time() == 5.0
        message.content = RecordDict({"arrays": arrays})
        (reply,) = grid.send_and_receive(messages)
        made = reply.metadata.created_at
        assert 5.0 < made < time.time() < 6.0
        assert abs(reply.metadata.ttl - (105.0 - made)) < 1e-6
        FedAvg(**""",
    ).replace("import Array, ArrayRecord", "import Array, ArrayRecord, Message, RecordDict")
    client = CLIENT.replace(
        "w = msg.content",
        "import time; assert 5.0 <= msg.metadata.created_at < time.time() < 99.0\n        w = msg.content",
    )
    run = fe.run(on_small(write_app(server=server, client=client)), **FAST)

    assert run.summary["status"] == "done"
    assert datetime.now(UTC).timestamp() > 1e9


def test_a_lifespan_is_around_the_app_and_around_each_message(write_app, capsys):
    """That of the server begins and ends once, in simulated time; that of a client has the memory of its device."""
    server = SERVER.replace(
        "app = ServerApp()",
        """app = ServerApp()

    @app.lifespan()
    def lifespan(context):
        import time
        began = time.time()
        time.sleep(2)
        yield
        print("server", began, time.time() > 2, context.run_config["rounds"])
""",
    )
    client = CLIENT.replace(
        "app = ClientApp()",
        """app = ClientApp()

    @app.lifespan()
    def lifespan(context):
        seen = context.state.setdefault("seen", MetricRecord({"n": 0}))
        yield
        seen["n"] += 1
        print("client", context.node_config["partition-id"], seen["n"])
""",
    )
    app = write_app(server=server, client=client, fraction_evaluate=0.0, min_evaluate_nodes=0)
    run = fe.run(on_small(app, run_config={"rounds": 2}), **FAST)
    told = capsys.readouterr().out.splitlines()

    assert run.transfers.requested_s.min() == 2.0
    assert told == [*(f"client {k} {n}" for n in (1, 2) for k in range(4)), "server 0.0 True 2"]


S = 1_000_000_000


def programs(app: Path, folder: Path, **settings: Any) -> FlowerPrograms:
    """The programs of the app on the small network, and their federation."""
    scenario = scenario_of(on_small(app), settings)[1].scenario
    made = FlowerPrograms(build(scenario, learning=False), scenario, folder)
    made.prepare()
    return made


def test_rounds_and_scores_follow_from_notes(write_app: WriteApp, tmp_path: Path) -> None:
    """A round begins with messages for training; scores of the server win over those of the clients."""
    made = programs(write_app(), tmp_path)
    notes = [
        {"what": "begin", "ns": 100 * S},
        {"what": "metrics", "ns": 100 * S, "source": "central", "metrics": {"accuracy": 0.1}},
        {"what": "sent", "ns": 101 * S, "count": {"train": 3}},
        {"what": "got", "ns": 104 * S, "count": {"train": 1}},
        {"what": "got", "ns": 107 * S, "count": {"train": 1}},
        {"what": "sent", "ns": 108 * S, "count": {"evaluate": 2}},
        {"what": "metrics", "ns": 109 * S, "source": "evaluate", "metrics": {"eval_acc": 0.7}},
        {"what": "metrics", "ns": 109 * S, "source": "central", "metrics": {"accuracy": 0.5, "test_loss": 2.0}},
        {"what": "sent", "ns": 110 * S, "count": {"train": 2}},
        {"what": "end", "ns": 120 * S, "error": ""},
    ]
    file = tmp_path / "flower/notes--1.jsonl"
    file.write_text("".join(f"{json.dumps(note)}\n" for note in notes))
    compute = {"what": "compute", "ns": 103 * S, "began_ns": 102 * S, "flop": 5e5, "kind": "train", "own_s": 0.1}
    (tmp_path / "flower/notes-2.jsonl").write_text(json.dumps({**compute, "wanted_s": 0.5}) + "\n")
    made.look()
    assert (made.began_ns, made.error) == (100 * S, "")
    assert made.write(100 * S) is None, "no message has come before the computation"
    frames = made._fed.ledger.frames()
    rounds = frames["rounds"][["round", "started_s", "ended_s", "invited", "arrived"]].to_numpy().tolist()
    assert rounds == [[1, 1, 10, 3, 2], [2, 10, 20, 2, 0]]
    assert frames["evaluations"]["round"].tolist() == [0, 1]
    assert frames["evaluations"]["accuracy"].tolist() == [0.1, 0.5]
    assert frames["evaluations"]["loss"].tolist() == pytest.approx([float("nan"), 2.0], nan_ok=True)
    assert frames["computes"][["device", "started_s", "ended_s", "flop"]].to_numpy().tolist() == [[2, 2, 3, 5e5]]
    assert frames["server_metrics"]["metric"].tolist() == ["accuracy", "eval_acc", "accuracy", "test_loss"]
    made.close()
    assert not (tmp_path / "flower").exists()


def test_notes_are_read_line_by_line(write_app: WriteApp, tmp_path: Path) -> None:
    """A line that is not whole yet waits."""
    made = programs(write_app(), tmp_path)
    file = tmp_path / "flower/notes--1.jsonl"
    line = json.dumps({"what": "begin", "ns": 7})
    file.write_text(line[:9])
    made.look()
    assert made.began_ns is None
    file.write_text(f"{line}\n" + line[:9])
    made.look()
    assert made.began_ns == 7
    assert made.error is None


def test_commands_and_environment_are_those_of_flower(write_app: WriteApp, tmp_path: Path) -> None:
    """Each program has a home of its own, the hook first on its path, and its device's share of the data."""
    app = write_app()
    made = programs(
        app, tmp_path, **{"algorithm.run_config.rounds": 2, "devices.straggler": {"kind": "log-normal", "sigma": 0.5}}
    )
    words, more = made.filled(2, 4)
    assert words[1:] == [
        "--insecure",
        "--superlink",
        "10.77.0.1:8000",
        "--node-config",
        "partition-id=2 num-partitions=4",
    ]
    assert more["FLWR_HOME"] != made.filled(1, 4)[1]["FLWR_HOME"]
    assert more["PYTHONPATH"].split(":")[0].endswith("realtime/hook")
    work = json.loads(more["FEDNET_WORK"])
    assert (work["flop_per_s"], work["flop_per_example"]["train"]) == (1e6, 1000.0)
    assert work["factors"] != json.loads(made.filled(1, 4)[1]["FEDNET_WORK"])["factors"]
    assert made.run()[0][1:] == ["run", str(app), "live", "--stream", "--run-config", "rounds=2"]


def test_factors_are_the_draws_of_the_simulation(write_app: WriteApp, tmp_path: Path) -> None:
    """The computation number n of a device takes as many times longer as in a simulated run."""
    from fednet_emu.devices.processors import Work

    made = programs(write_app(), tmp_path, **{"devices.straggler": {"kind": "log-normal", "sigma": 0.5}})
    work = json.loads(made.filled(3, 4)[1]["FEDNET_WORK"])
    fed = made._fed
    started = [fed.processors.run(3, Work(1e6, None)) for _ in range(3)]
    fed.clock.run()
    assert [one.duration_ns / S for one in started] == pytest.approx(work["factors"][:3])


def test_what_cannot_be_played_live_is_refused(write_app: WriteApp, tmp_path: Path) -> None:
    """A law of slowness that depends on the time, and commands beside the app's own programs."""
    slow = {"kind": "slow-window", "devices": [0], "factor": 2, "from_s": 1, "to_s": 2}
    with pytest.raises(ScenarioError, match=r"devices\.straggler: clients are padded by a factor"):
        programs(write_app(), tmp_path, **{"devices.straggler": slow})
    with pytest.raises(FednetError, match="live: takes the command of the clients"):
        LivePlan.of(on_small(write_app()), None, (), None, None)  # a scenario file does not name programs
    with pytest.raises(FednetError, match="--flower: brings its own programs"):
        LivePlan.of("quickstart", None, ["true"], None, "app")

"""Lost messages, deadlines, devices that are away, stop rules, and apps that go wrong."""

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.errors import AppFailed, Deadlock
from tests.flower.conftest import CLIENT, SERVER, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

FAST = {"progress": False}
NO_EVALUATION = {"fraction_evaluate": 0.0, "min_evaluate_nodes": 0}  # older versions need both
LOSSY = {"network": {"uplink": {"loss": {"kind": "random", "probability": 0.4}}}}


def logged(caplog):
    """What the app's strategy has logged, as texts."""
    return [record.getMessage() for record in caplog.records]


def test_lost_replies_are_errors(write_app, caplog):
    """The strategy counts each as a failure and goes on with the others; the round says who arrived."""
    caplog.set_level("INFO", "fednet_emu")
    run = fe.run({**on_small(write_app(**NO_EVALUATION)), **LOSSY}, seed=1, **FAST)
    lost = run.transfers[run.transfers.lost != ""]

    assert len(lost) > 0
    assert run.rounds.arrived.sum() == 12 - len(lost)
    assert sum("was lost: erased" in text for text in logged(caplog)) == len(lost)


def test_silent_losses_cost_the_timeout(write_app):
    """Without an error the server waits for the lost replies: an hour by default, or the deadline of the scenario."""
    scenario = {**on_small(write_app(**NO_EVALUATION), lost="silence"), **LOSSY, "stop": {"rounds": 3}}
    hours = fe.run(scenario, seed=1, **FAST)
    seconds = fe.run(scenario, seed=1, settings={"algorithm.deadline_s": 2.0}, **FAST)
    lossy = (hours.rounds.arrived < 4).to_numpy()

    assert lossy.any()
    for run, limit_s in ((hours, 3600.0), (seconds, 2.0)):
        took_s = (run.rounds.ended_s - run.rounds.started_s).to_numpy()
        assert took_s[lossy] == pytest.approx(limit_s, abs=1e-6)
        assert (took_s[~lossy] < 1).all()


def test_late_devices_are_left_out(write_app):
    """A device that needs longer than the app's timeout is cancelled, and the round goes on with the others."""
    server = SERVER.replace("grid=grid,", "grid=grid, timeout=1.0,")
    scenario = on_small(write_app(server=server, **NO_EVALUATION))
    scenario["devices"] = {**scenario["devices"], "speed": {"kind": "list", "flop_per_s": [1e6, 1e6, 1e6, 1e3]}}
    run = fe.run(scenario, **FAST)

    assert run.rounds.arrived.tolist() == [3, 3, 3]
    assert (run.rounds.ended_s - run.rounds.started_s).to_numpy() == pytest.approx(1.0)
    assert set(run.computes[run.computes.stopped == "deadline"].device) == {3}


def test_waiting_for_nodes_takes_simulated_time(write_app):
    """Two of four devices come after five seconds; a strategy that wants all four looks once a second."""
    scenario = on_small(write_app(min_available_nodes=4, min_train_nodes=4, **NO_EVALUATION))
    windows = {"kind": "windows", "devices": {"0": [[4.5, 1000]], "1": [[4.5, 1000]]}}
    scenario["devices"] = {**scenario["devices"], "availability": windows}
    run = fe.run(scenario, **FAST)

    assert run.rounds.arrived.tolist() == [4, 4, 4]
    assert run.transfers.requested_s.min() == 5.0


def test_a_message_to_a_device_that_is_away_is_lost(write_app):
    """An app may send to a node that it knows from before: the message is lost, as on any network."""
    server = """
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.serverapp import ServerApp
        app = ServerApp()

        @app.main()
        def main(grid, context):
            (reply,) = grid.send_and_receive([Message(RecordDict({"c": ConfigRecord({"a": 1})}), 2, "query")])
            assert reply.error.code == 3, reply
            assert "message to dev-0 was lost: away" in reply.error.reason
            assert list(grid.get_node_ids()) == [3, 4, 5]
    """
    scenario = on_small(write_app(server=server))
    windows = {"kind": "windows", "devices": {"0": [[100, 1000]]}}
    scenario["devices"] = {**scenario["devices"], "availability": windows}
    run = fe.run(scenario, **FAST)

    assert run.transfers.lost.tolist() == ["away"]
    assert len(run.rounds) == 0


@pytest.mark.parametrize(
    ("stop", "rounds"),
    [({"rounds": 2}, 2), ({"simulated_s": 0.02}, 0), ({"bits": 1.0}, 1), ({"accuracy": 0.05, "rounds": 50}, 2)],
)
def test_stop_rules_end_the_app(write_app, stop, rounds):
    """Whatever ends a run ends an app, too, where it waits; its `finally` blocks run."""
    server = SERVER.replace(
        "FedAvg(**", "try:\n            pass\n        finally:\n            pass\n        FedAvg(**"
    )
    scenario = {**on_small(write_app(server=server), run_config={"rounds": 1000}), "stop": stop}
    run = fe.run(scenario, **FAST)

    assert run.summary["status"] == "done"
    assert len(run.rounds) == rounds


def test_an_app_that_never_ends_is_ended(write_app, tmp_path):
    """An endless loop of waiting ends with the simulated time, and what the app does at the end is done."""
    server = f"""
        import time
        from pathlib import Path
        from flwr.serverapp import ServerApp
        app = ServerApp()

        @app.main()
        def main(grid, context):
            try:
                while True:
                    time.sleep(2.0)
            finally:
                Path({str(tmp_path / "ended")!r}).write_text(str(time.time()))
    """
    scenario = {**on_small(write_app(server=server)), "stop": {"simulated_s": 9.0}}
    run = fe.run(scenario, **FAST)

    assert run.summary["simulated_s"] == 9.0
    assert (tmp_path / "ended").read_text() == "9.0"


def test_an_app_may_change_the_current_folder(write_app, tmp_path, monkeypatch):
    """The server finds itself where it went; paths of the emulator mean what they meant before, and afterwards, too."""
    away, start = tmp_path / "away", tmp_path / "start"
    away.mkdir()
    start.mkdir()
    monkeypatch.chdir(start)
    go = f"import os; os.chdir({str(away)!r})\n        "
    server = SERVER.replace("FedAvg(**", f"{go}FedAvg(**") + f"        assert os.getcwd() == {str(away)!r}\n"
    client = CLIENT.replace("w = msg.content", f"{go}w = msg.content")
    run = fe.run(on_small(write_app(server=server, client=client)), out="out", **FAST)

    assert run.summary["status"] == "done"
    assert Path.cwd() == start
    assert (start / "out" / "summary.json").is_file()
    assert list(away.iterdir()) == []


def test_an_app_that_refuses_to_end_is_left_behind(write_app):
    """A loop around a bare `except` swallows the order to end; the run ends all the same."""
    server = """
        import time
        from flwr.serverapp import ServerApp
        app = ServerApp()

        @app.main()
        def main(grid, context):
            while True:
                try:
                    time.sleep(2.0)
                except:
                    continue
    """
    run = fe.run({**on_small(write_app(server=server)), "stop": {"simulated_s": 9.0}}, **FAST)

    assert (run.summary["status"], run.summary["simulated_s"]) == ("done", 9.0)


def test_looking_for_nodes_without_a_pause_does_not_stop_time(write_app):
    """An app that only looks until all nodes are there sees them come."""
    server = SERVER.replace("FedAvg(**", "while len(grid.get_node_ids()) < 4:\n            pass\n        FedAvg(**")
    scenario = on_small(write_app(server=server, **NO_EVALUATION))
    windows = {"kind": "windows", "devices": {"0": [[4.5, 1000]], "1": [[4.5, 1000]]}}
    scenario["devices"] = {**scenario["devices"], "availability": windows}
    run = fe.run(scenario, **FAST)

    assert run.rounds.arrived.tolist() == [4, 4, 4]
    assert run.transfers.requested_s.min() == pytest.approx(4.5)


def test_more_nodes_than_exist(write_app):
    """Nobody can come any more, so the run ends with an error instead of never."""
    with pytest.raises(Deadlock, match="the app has waited 1000 times, but all 4 nodes are there"):
        fe.run(on_small(write_app(min_available_nodes=5)), **FAST)


def test_a_node_that_does_not_exist(write_app):
    """Its number, and those that exist, are named in the traceback of the app."""
    imports, send = (
        "from flwr.app import Message, RecordDict",
        "grid.push_messages([Message(RecordDict(), 99, 'query')])",
    )
    server = SERVER.replace("FedAvg(**", f"{imports}\n        {send}\n        FedAvg(**")
    with pytest.raises(AppFailed, match="there is no such node, got 99; those are 2 to 5"):
        fe.run(on_small(write_app(server=server)), **FAST)


@pytest.mark.parametrize(
    ("part", "where"),
    [
        ("client", "the app failed: the ClientApp of dev-[0-3], message 'train'"),
        ("server", "the app failed: the ServerApp"),
    ],
)
def test_an_app_that_raises(write_app, tmp_path, part, where):
    """The traceback is the app's own, the run has failed, and after a repair the same folder is used again."""
    broken = {
        "client": {"client": CLIENT.replace('w = msg.content["arrays"]["w"].numpy() + 1', "w = 1 / 0")},
        "server": {"server": SERVER.replace("FedAvg(**", "1 / 0\n        FedAvg(**")},
    }
    scenario, out = on_small(write_app(**broken[part])), tmp_path / "out"
    with pytest.raises(AppFailed, match=f"(?s)Traceback .*ZeroDivisionError: division by zero\n{where}") as raised:
        fe.run(scenario, out=out, **FAST)

    assert "fednet_emu/flower" not in str(raised.value)
    assert fe.open(out).summary["status"] == "failed"
    write_app()
    assert fe.run(scenario, out=out, **FAST).summary["status"] == "done"


def test_modules_of_an_app_do_not_outlive_the_run(write_app, monkeypatch):
    """The next app may have modules of the same names and sizes, written in the same second."""

    def written_at_once(**parts):
        app = write_app(**parts)
        for file in app.rglob("*.py"):
            os.utime(file, (1_700_000_000, 1_700_000_000))
        return app

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = set(sys.modules)
    run = fe.run(on_small(written_at_once()), **FAST)
    changed = CLIENT.replace("+ 1 + context", "+ 2 + context")
    other = fe.run(on_small(written_at_once(client=changed)), **FAST)

    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] == "toy"}
    assert not sys.dont_write_bytecode
    assert other.evaluations.accuracy.to_numpy() - run.evaluations.accuracy.to_numpy() == pytest.approx(
        np.array([0.01, 0.02, 0.03])
    )


def test_a_reply_without_the_number_of_examples(write_app):
    """Flower's own strategies say what is missing; the emulator does where it needs the number itself."""
    client = CLIENT.replace('"num-examples": 20, ', "")
    app = write_app(client=client)
    with pytest.raises(fe.ScenarioError, match=r"the reply of dev-[0-3] to 'train' has no metric 'num-examples'"):
        fe.run(on_small(app), **FAST)
    with pytest.raises(AppFailed, match="num-examples"):
        fe.run(on_small(app, work={"flop_per_example": 0.0}), **FAST)


def test_who_is_sent_the_same_twice_answers_twice(write_app):
    """Two equal messages to one node are two broadcasts, not one; a reply that is none is an error of the app."""
    server = """
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.serverapp import ServerApp
        app = ServerApp()

        @app.main()
        def main(grid, context):
            content = RecordDict({"c": ConfigRecord({"a": 1, "empty": ""})})
            replies = grid.send_and_receive([Message(content, node, "query") for node in (2, 3, 2)])
            assert [reply.metadata.src_node_id for reply in replies] == [2, 3, 2]
    """
    query = "\n\n    @app.query()\n    def query(msg, context):\n        return "
    run = fe.run(on_small(write_app(server=server, client=CLIENT + query + "reply(msg, {})")), **FAST)

    assert run.verdict == "all records consistent"
    assert sorted(run.transfers.kind) == ["downlink"] * 2 + ["uplink"] * 3
    with pytest.raises(AppFailed, match=r"must return a flwr\.app\.Message, got None"):
        fe.run(on_small(write_app(server=server, client=CLIENT + query + "None")), **FAST)


def test_collections_of_garbage_skip_what_was_there_before_the_run(write_app):
    """Flower collects for each array, and would look through all modules; a caller's frozen objects stay frozen."""
    server = SERVER.replace("app = ServerApp()", "import gc\n    app = ServerApp()", 1)
    app = write_app(server=server.replace("FedAvg(", "assert gc.get_freeze_count() > 1000; FedAvg(", 1))
    gc.unfreeze()
    try:
        fe.run(on_small(app, run_config={"rounds": 1}), **FAST)
        assert gc.get_freeze_count() == 0
        gc.freeze()
        fe.run(on_small(app, run_config={"rounds": 1}), **FAST)
        assert gc.get_freeze_count() > 1000
    finally:
        gc.freeze()  # as it was before the first test

"""Troubles of Flower apps, their loading and their messages."""

import gc
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.errors import AppFailed, Deadlock, ScenarioError
from tests.flower.conftest import CLIENT, SERVER, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

FAST = {"progress": False}
NO_EVALUATION = {"fraction_evaluate": 0.0, "min_evaluate_nodes": 0}  # older versions need both
LOSSY = {"network": {"uplink": {"message_loss": {"kind": "random", "probability": 0.4}}}}


def logged(caplog):
    return [record.getMessage() for record in caplog.records]


def test_lost_replies_are_errors(write_app, caplog):
    """The strategy counts each as a failure and goes on with the others; the round says who arrived."""
    caplog.set_level("INFO", "fednet_emu")
    run = fe.run({**on_small(write_app(**NO_EVALUATION)), **LOSSY}, seed=1, **FAST)
    lost = run.transfers[run.transfers.loss_reason != ""]

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

    assert run.transfers.loss_reason.tolist() == ["away"]
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
    assert sorted(run.transfers.direction) == ["downlink"] * 2 + ["uplink"] * 3
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


def test_a_folder_of_data_hides_no_package(tmp_path):
    """Results of `torch` in a folder of this name are no module; the package stays what it is, before and after."""
    import torch

    from fednet_emu.flower.loading import importable

    (tmp_path / "torch").mkdir()
    (tmp_path / "time").mkdir()
    modules = {name: sys.modules[name] for name in ("torch", "torch.nn", "time")}
    with importable(tmp_path):
        assert {name: sys.modules.get(name) for name in modules} == modules
    assert import_module("torch") is torch


def test_a_package_of_the_app_hides_another(tmp_path):
    """An app may have a package of a name that something else has, of the standard library, too."""
    from fednet_emu.flower.loading import importable

    import_module("calendar")
    ours = sys.modules["calendar"]
    (tmp_path / "calendar").mkdir()
    (tmp_path / "calendar" / "__init__.py").write_text("own = True", encoding="utf-8")
    with importable(tmp_path):
        assert import_module("calendar").own
    assert sys.modules["calendar"] is ours


def test_a_package_without_init_is_forgotten(tmp_path):
    """A folder of modules is a package for Python, and nothing of it is left for the next app."""
    from fednet_emu.flower.loading import importable

    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "server_app.py").write_text("", encoding="utf-8")
    with importable(tmp_path):
        import_module("parts.server_app")
    assert not {"parts", "parts.server_app"} & set(sys.modules)


def test_an_environment_inside_the_folder_is_not_part_of_the_app(write_app, monkeypatch):
    """What is installed there stays imported, as NumPy must, and does not count as the app's code."""
    from fednet_emu.flower.folder import AppFolder
    from fednet_emu.flower.loading import importable

    folder = write_app()
    packages = folder / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed_there.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(packages)
    with importable(folder.resolve()):
        installed = import_module("installed_there")
    assert sys.modules.pop("installed_there") is installed
    assert [path.name for path in AppFolder.read(str(folder)).sources()] == [
        "pyproject.toml",
        "__init__.py",
        "client_app.py",
        "server_app.py",
    ]


def test_runs_in_threads_keep_out_of_each_others_modules(write_app):
    """Each has its own, both end as a run alone does, and nothing is left behind."""
    app = write_app()
    alone = fe.run(on_small(app), progress=False).digest
    with ThreadPoolExecutor(3) as threads:
        digests = list(threads.map(lambda _: fe.run(on_small(app), progress=False).digest, range(3)))

    assert digests == [alone] * 3
    assert not [name for name in sys.modules if name.partition(".")[0] == "toy"]


def test_what_the_project_names_must_be_there(write_app):
    """A module that has no such object is a mistake in the project file."""
    app = write_app()
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("server_app:app", "server_app:other"), encoding="utf-8")
    with pytest.raises(fe.ScenarioError, match=r"toy\.server_app:other must be a ServerApp, got None; mend serverapp"):
        fe.run(on_small(app), progress=False)


def test_the_first_round_in_time(write_app):
    """One broadcast, computing, uplinks in turn; then the evaluation, which costs a third: every instant by hand."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

    vector = ArrayRecord({"w": Array(np.zeros(100, np.float32))}).count_bytes()
    down = 8 * (vector + ConfigRecord({"server-round": 1}).count_bytes())
    trained = 8 * (vector + MetricRecord({"num-examples": 20, "train_loss": 1.0}).count_bytes())
    scored = 8 * MetricRecord({"num-examples": 20, "eval_loss": 1.0, "eval_acc": 1.0}).count_bytes()
    run = fe.run(on_small(write_app(), run_config={"rounds": 1}), **FAST)

    sent = run.transfers
    train_s = down * 1e-6 + 0.02 + trained * 1e-6 * np.arange(1, 5)
    eval_s = train_s[-1] + down * 1e-6 + 0.02 / 3 + scored * 1e-6 * np.arange(1, 5)
    up = sent[sent.direction == "uplink"]
    assert sent[sent.direction == "downlink"].ended_s.to_numpy() == pytest.approx(
        [down * 1e-6, train_s[-1] + down * 1e-6]
    )
    assert sent[sent.direction == "downlink"].size_bit.tolist() == [down, down]
    assert up.ended_s.to_numpy() == pytest.approx([*train_s, *eval_s], abs=1e-8)
    assert up.size_bit.tolist() == [trained] * 4 + [scored] * 4
    assert run.verdict == "all records consistent"


def test_empty_values_have_the_size_of_their_name():
    """Flower's own count fails for empty texts, bytes and lists, which its secure aggregation sends."""
    from flwr.app import ConfigRecord, Message, RecordDict

    from fednet_emu.flower.post import size_bit
    from fednet_emu.flower.versions import SERVER_NODE, identity

    full = {"many": [1, 2], "n": 3}
    with identity(SERVER_NODE):
        sizes = [
            size_bit(Message(RecordDict({"c": ConfigRecord(values)}), 2, "query"))
            for values in (full, {**full, "none": []}, {"none": [], "text": "", "raw": b""})
        ]

    assert sizes == [8 * ConfigRecord(full).count_bytes(), sizes[0] + 8 * len("none"), 8 * len("nonetextraw")]


def test_rounds_and_scores_are_those_of_the_app(write_app):
    """The mean of +1 to +4 is +2.5 a round; clients evaluate it, and three rounds are three rows."""
    run = fe.run(on_small(write_app()), **FAST)

    assert run.summary["status"] == "done"
    assert run.rounds[["round", "invited", "arrived"]].to_numpy().tolist() == [[t, 4, 4] for t in (1, 2, 3)]
    assert run.evaluations.accuracy.tolist() == pytest.approx([0.025, 0.05, 0.075])
    assert run.evaluations.loss.tolist() == pytest.approx([97.5, 95.0, 92.5])
    assert run.evaluations["round"].tolist() == [1, 2, 3]
    own = run.device_evaluations
    assert sorted(own.device) == sorted([0, 1, 2, 3] * 3)
    assert set(own.samples) == {20}
    metrics = run.series("server_metrics")
    assert metrics[metrics.metric == "train_loss"].value.tolist() == pytest.approx([2.5, 5.0, 7.5])


def test_a_seed_decides_everything(write_app):
    """Flower draws nodes by Python's global generator: it follows the run's seed, and the host's own stays as it is."""
    import random

    app = write_app(fraction_train=0.5, fraction_evaluate=0.5)
    random.seed(7)
    expected = random.random()
    random.seed(7)
    first, again, other = (fe.run(on_small(app), seed=seed, **FAST) for seed in (0, 0, 1))

    assert random.random() == expected
    assert first.digest == again.digest != other.digest
    assert first.evaluations.equals(again.evaluations)
    assert set(first.transfers.sender) == {-1, 0, 1, 2, 3}


def test_bits_are_those_of_flowers_own_mod(write_app, caplog):
    """`message_size_mod`, put into the app, counts the same bytes."""
    mod = "app = ClientApp(mods=[message_size_mod])"
    client = CLIENT.replace("app = ClientApp()", f"from flwr.clientapp.mod import message_size_mod\n\n    {mod}")
    with caplog.at_level(logging.INFO, "fednet_emu"):
        run = fe.run(on_small(write_app(client=client), run_config={"rounds": 1}), **FAST)
    told = [int(record.args[0]) for record in caplog.records if "message size" in str(record.msg)]

    sent = run.transfers
    (down, _), up = sent[sent.direction == "downlink"].size_bit, sent[sent.direction == "uplink"].size_bit
    assert len(told) == 16
    assert {8 * size for size in told[0:8:2]} == {down}
    assert [8 * size for size in told[1::2]] == up.tolist()


def test_devices_remember(write_app):
    """`Context.state` is each device's own, lasts for the run, and begins anew in the next one."""
    client = CLIENT.replace(
        "w = msg.content", 'context.state.setdefault("seen", MetricRecord({"n": 0}))["n"] += 1\n        w = msg.content'
    ).replace('"train_loss": float(w[0])', '"train_loss": float(context.state["seen"]["n"])')
    app = write_app(client=client)
    for _ in range(2):
        metrics = fe.run(on_small(app), **FAST).series("client_metrics")
        seen = metrics[metrics.metric == "train_loss"]
        assert seen.value.tolist() == [1.0] * 4 + [2.0] * 4 + [3.0] * 4


def test_a_timing_only_run_is_refused(write_app):
    """The sizes of messages are not known without the app."""
    with pytest.raises(ScenarioError, match="timing_only: the sizes and numbers of messages are known only when"):
        fe.run(on_small(write_app()), timing_only=True, **FAST)


def test_a_scenario_of_an_app_reads_back(write_app, tmp_path):
    """What a run folder keeps of its scenario is a scenario again, with the same digest."""
    first = fe.run(on_small(write_app()), out=tmp_path / "out", **FAST)
    again = fe.run(tmp_path / "out" / "scenario.yaml", **FAST)

    assert again.digest == first.digest
    assert fe.open(tmp_path / "out").summary["rounds"] == 3


def test_an_app_as_objects_of_python(write_app, tmp_path):
    """`fe.Flower` takes the two apps; of a scenario, network and devices are used, and its own learning is replaced."""
    import importlib
    import sys

    import flwr.clientapp
    import flwr.serverapp

    folder = write_app()
    sys.path.insert(0, str(folder))
    try:
        parts = [importlib.import_module(f"toy.{part}_app").app for part in ("server", "client")]
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
            del sys.modules[name]
    assert isinstance(parts[0], flwr.serverapp.ServerApp)
    assert isinstance(parts[1], flwr.clientapp.ClientApp)
    options = {"run_config": {"rounds": 2}, "work": {"flop_per_example": 1000.0}}
    run = fe.run("quickstart", algorithm=fe.Flower(*parts, **options), out=tmp_path / "out", **FAST)

    assert run.rounds.arrived.tolist() == [20, 20]
    assert run.summary["accuracy"] == pytest.approx(0.21)
    assert "a ServerApp" in (tmp_path / "out" / "scenario.yaml").read_text()


def test_a_study_has_apps_beside_our_algorithms(write_app, tmp_path):
    """Our FedAvg and an app are two values of one axis."""
    app = {"kind": "flower", "app": str(write_app()), "work": {"flop_per_example": 1000.0}}
    ours = {"algorithm": {"kind": "fedavg", "cohort": 4, "lr": 0.1, "batch_size": 20, "local_steps": 1}}
    theirs = {"algorithm": app, "data": None, "partition": None, "model": None}
    small = {"devices.count": 4, "stop.rounds": 2}
    grid = {"method": {"ours": {**ours, **small}, "theirs": {**theirs, **small}}}
    study = fe.sweep("quickstart", grid=grid, seeds=1, out=tmp_path / "study", workers=1, progress=False)

    assert study.runs.status.tolist() == ["done", "done"]
    assert study.runs.rounds.tolist() == [2, 2]

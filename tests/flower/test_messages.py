"""Flower apps on the emulated network: what they send, when, and what comes out of it."""

import logging

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from tests.flower.conftest import CLIENT, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

FAST = {"progress": False}


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
    up = sent[sent.kind == "uplink"]
    assert sent[sent.kind == "downlink"].ended_s.to_numpy() == pytest.approx([down * 1e-6, train_s[-1] + down * 1e-6])
    assert sent[sent.kind == "downlink"].size_bit.tolist() == [down, down]
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
    (down, _), up = sent[sent.kind == "downlink"].size_bit, sent[sent.kind == "uplink"].size_bit
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

    assert study.cells.status.tolist() == ["done", "done"]
    assert study.cells.rounds.tolist() == [2, 2]

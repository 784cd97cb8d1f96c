"""A run of an app that was cut off goes on: what clients answered before is taken from the checkpoint."""

import pytest

import fednet_emu as fe
from fednet_emu.errors import AppFailed
from tests.flower.conftest import CLIENT, SERVER, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

FAST = {"progress": False}
COUNTING = CLIENT.replace(
    "w = msg.content",
    """from pathlib import Path
        context.state.setdefault("seen", MetricRecord({"n": 0}))["n"] += 1
        calls = Path(__file__).parents[2] / "calls"
        calls.write_text(calls.read_text() + "x" if calls.is_file() else "x")
        if (calls.parent / "broken").exists() and msg.content["config"]["server-round"] == 3:
            raise RuntimeError("broken in round 3")
        w = np.random.normal() + context.state["seen"]["n"] + msg.content""",
)
"""Trains with random numbers and a memory, counts its calls in a file, and fails in round 3 while `broken` exists."""


def test_a_run_goes_on_where_it_was_cut_off(write_app, tmp_path):
    """After a failure in round 3 the first two rounds are not trained again, and all numbers are those of one run."""
    scenario = on_small(write_app(client=COUNTING, fraction_train=0.5), run_config={"rounds": 5})
    calls, broken, out = (tmp_path / name for name in ("calls", "broken", "out"))
    whole = fe.run(scenario, **FAST)
    assert len(calls.read_text()) == 10

    calls.unlink()
    broken.touch()
    with pytest.raises(AppFailed, match="broken in round 3"):
        fe.run(scenario, out=out, **FAST)
    before = len(calls.read_text())
    broken.unlink()
    resumed = fe.run(scenario, out=out, **FAST)

    assert before == 6
    assert len(calls.read_text()) == before + 6
    assert resumed.digest == whole.digest
    assert resumed.evaluations.equals(whole.evaluations)
    assert resumed.series("client_metrics").equals(whole.series("client_metrics"))


def test_a_changed_app_starts_anew(write_app, tmp_path):
    """What another version of the app has answered is of no use."""
    scenario = on_small(write_app(client=COUNTING), run_config={"rounds": 5})
    (tmp_path / "broken").touch()
    with pytest.raises(AppFailed):
        fe.run(scenario, out=tmp_path / "out", **FAST)
    (tmp_path / "broken").unlink()
    (tmp_path / "calls").unlink()
    write_app(server=SERVER + "\n    # a change\n", client=COUNTING)
    fe.run(scenario, out=tmp_path / "out", **FAST)

    assert len((tmp_path / "calls").read_text()) == 20


def test_all_kinds_of_records_are_kept():
    """Arrays, metrics and configurations, with bytes and lists, come back as they were."""
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

    from fednet_emu.emulation.serialise import Reader, Writer
    from fednet_emu.flower.executors import content_of, records

    arrays = ArrayRecord({"a": Array(np.arange(6, dtype=np.int16).reshape(2, 3)), "empty": Array(np.zeros((0, 2)))})
    metrics = MetricRecord({"n": 3, "x": [0.5, 1.5]})
    config = ConfigRecord({"b": b"\x00\xff", "many": [b"1", b""], "t": "text", "yes": True})
    content = RecordDict({"arrays": arrays, "metrics": metrics, "config": config})
    writer = Writer()
    plain = writer.plain(records(content))

    assert content_of(Reader(writer.tensors).value(plain)) == content

"""Rounds, scores and computations of a live run follow from what the hook has noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.results.live import LivePlan
from tests.flower.conftest import WriteApp, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

from fednet_emu.realtime.flower import FlowerPrograms

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

"""The loops of a deployment: every instant of a round by hand, what a loss costs, and Flower's own constants."""

from __future__ import annotations

import inspect
import math
import re
from importlib import import_module
from typing import Any

import pytest

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.flower import control
from fednet_emu.kernel.streams import Streams
from tests.flower.conftest import WriteApp, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

ALONE = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}
LOOPS = {"kind": "flower-1.41", "start_s": 1.25, "rtt_s": 0.01}


def played(app: Any, devices: int = 1, **more: Any) -> fe.Run:
    """A run of the app on the small network, with the loops unless another control is given."""
    scenario = on_small(app, **{"control": LOOPS, **more})
    return fe.run(scenario, settings={"devices.count": devices, "algorithm.run_config.rounds": 1}, progress=False)


def draws(seed: int, device: int, count: int) -> list[float]:
    return list(Streams(seed)("flower control", device).random(count))


def after(now_s: float, since_s: float, period_s: float) -> float:
    """The first instant of a loop, now or later."""
    return since_s + math.ceil((now_s - since_s) / period_s - 1e-9) * period_s


def test_every_step_of_a_round_is_where_the_loops_put_it(write_app: WriteApp) -> None:
    """Fetched at the SuperNode's next look, started by SuperExec, seen by the SuperNode, collected by the ServerApp."""
    app = write_app(**ALONE)
    run, bare = played(app), played(app, control="none")
    down_s, up_s = (bare.transfers["ended_s"] - bare.transfers["started_s"]).tolist()
    compute_s = float((bare.computes["ended_s"] - bare.computes["started_s"]).iloc[0])
    phase, wait, *_ = draws(0, 0, 3)

    fetched_s = 3.0 - 3.0 * phase + 4 * 0.01 + down_s
    began_s = fetched_s + wait * 1.0 + 1.25
    announced_s = after(began_s + compute_s, fetched_s, 0.5) + 6 * 0.01
    down, up = run.transfers.iloc[0], run.transfers.iloc[1]
    assert down["ended_s"] == pytest.approx(fetched_s)
    assert run.computes["started_s"].iloc[0] == pytest.approx(began_s)
    assert up["started_s"] == pytest.approx(announced_s)
    assert up["ended_s"] == pytest.approx(announced_s + up_s)
    collected_s = after(up["ended_s"], 0.0, 3.0)  # unless it looks in mid-upload
    assert not announced_s < collected_s - 3.0 < up["ended_s"]
    assert run.rounds["ended_s"].iloc[0] == pytest.approx(collected_s)
    assert bare.rounds["ended_s"].iloc[0] == pytest.approx(down_s + compute_s + up_s)


def test_a_collection_in_mid_upload_backs_off(write_app: WriteApp) -> None:
    """It waits 1, 2, 4 s and so on, within 20 %, until the reply is whole."""
    run = fe.run(
        on_small(write_app(**ALONE), control=LOOPS),
        settings={"devices.count": 1, "algorithm.run_config.rounds": 1, "channel.rate.bit_rate_bps": 500.0},
        progress=False,
    )
    up = run.transfers.iloc[-1]
    (found_s,) = [look for look in [after(up["started_s"], 0.0, 3.0)] if look < up["ended_s"]]
    pauses = [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    taken = next(count for count in range(7) if found_s + 1.2 * sum(pauses[:count]) >= up["ended_s"])
    waited_s = run.rounds["ended_s"].iloc[0] - found_s
    assert 0.8 * sum(pauses[:taken]) <= waited_s <= 1.2 * sum(pauses[: taken + 1])
    assert run.rounds["ended_s"].iloc[0] >= up["ended_s"]


@pytest.mark.parametrize(("leaves", "known_s"), [("in mid-upload", 180.0), ("before", 60.0)])
def test_who_leaves_is_missed_late(write_app: WriteApp, leaves: str, known_s: float) -> None:
    """A reply that was announced is waited for until its session ends, a SuperNode without a heartbeat for a minute."""
    app = write_app(**ALONE)
    up = played(app).transfers.iloc[-1]
    left_s = (up["started_s"] + up["ended_s"]) / 2 if leaves == "in mid-upload" else up["started_s"] - 1e-3
    gone = {"kind": "windows", "devices": {"0": [[0.0, float(left_s)]]}}
    scenario = {**on_small(app, control=LOOPS), "channel": "ideal"}
    settings = {"devices.count": 1, "algorithm.run_config.rounds": 1, "devices.availability": gone}
    run = fe.run(scenario, settings=settings, progress=False)
    since_s = up["started_s"]  # when it was announced, or would have been
    assert run.rounds["arrived"].tolist() == [0]
    assert since_s + known_s <= run.rounds["ended_s"].iloc[0] <= since_s + known_s + 12.1


def test_silence_does_not_go_with_the_loops(write_app: WriteApp) -> None:
    """They say themselves when the server learns of a loss."""
    with pytest.raises(
        ScenarioError, match=r"algorithm.lost: flower-1.41 defines when the server learns of a loss, got silence"
    ):
        played(write_app(), lost="silence")


def test_the_constants_are_those_of_the_installed_flower() -> None:
    """Where it is Flower 1.41 or later."""
    flwr = import_module("flwr")
    if tuple(map(int, flwr.__version__.split(".")[:2])) < (1, 41):
        pytest.skip("another version of Flower")
    known = import_module("flwr.supercore.constant")
    assert known.OBJECT_PUSH_SESSION_TTL_SECONDS == control.PUSH_SESSION_S
    assert (known.PULL_INITIAL_BACKOFF, known.PULL_BACKOFF_CAP) == (control.BACKOFF_S, control.MOST_BACKOFF_S)
    pauses = {
        ("flwr.supernode.start_client_internal", "start_client_internal"): [control.NODE_POLL_S],
        ("flwr.supernode.start_client_internal", "_push_messages"): [control.REPLY_POLL_S] * 2,
        ("flwr.superlink.grid.http_grid", "HttpGrid.send_and_receive"): [control.APP_POLL_S],
    }
    for (module, name), expected in pauses.items():
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        assert [*map(float, re.findall(r"time\.sleep\(([\d.]+)\)", inspect.getsource(found)))] == expected
    executor = import_module("flwr.supercore.superexec.run_superexec")
    assert executor._DEFAULT_TASK_POLL_INTERVAL_SECONDS == control.TASK_POLL_S
    life = import_module("flwr.common.constant")
    assert life.HEARTBEAT_PATIENCE * life.HEARTBEAT_DEFAULT_INTERVAL == control.OFFLINE_S

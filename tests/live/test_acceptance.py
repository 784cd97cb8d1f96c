"""What live mode promises: accuracy, many clients, devices that leave and return, cells, a clean host."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.analysis.beside import transfers_beside
from tests.live.conftest import ROOT, UPLOAD, cell, unspoilt
from tests.live.test_live import come, gone, host_facts, marked

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("machine"), pytest.mark.filterwarnings("ignore::UserWarning")]


def uploading(size: int) -> list[str]:
    return [*UPLOAD, "{role}", "{server}", str(size)]


@pytest.mark.slow
@pytest.mark.parametrize(("access", "size"), [("ofdma", 3_000_000), ("tdma", 4_000_000), ("noma", 6_000_000)], ids=str)
def test_long_uploads_are_within_two_per_cent(tmp_path: Path, access: str, size: int) -> None:
    """Those of a second and more that did not starve, where the host was in time; the errors are printed."""
    scenario = cell(4, access)
    summary, out = unspoilt(lambda out: fe.live(scenario, uploading(size), out=out).summary, tmp_path)
    beside = transfers_beside(fe.open(out))
    long = beside[(beside["took_s"] >= 1.0) & (beside["starved_s"] <= 0.02 * beside["took_s"])]
    print(access, [f"{error:+.2%}" for error in long["error"]], summary["doubtful"])
    assert len(beside) == 4
    assert beside["predicted_s"].notna().all()
    if not summary["doubtful"]:
        assert (long["error"].abs() <= 0.02).all(), beside


@pytest.mark.slow
def test_twenty_clients_at_once(tmp_path: Path) -> None:
    """Each message of each client is found, on a shared uplink."""
    run = fe.live(cell(20, "ofdma"), uploading(100_000), out=tmp_path / "run")
    assert sorted(run.transfers["sender"]) == [*range(20)]
    assert (run.table("live_messages")["payload_byte"] - 100_000).between(100, 300).all()
    assert run.summary["verified"]
    assert sorted(run.table("live_programs")["device"]) == [*range(-1, 20)]


def test_a_device_that_leaves_and_returns_goes_on(tmp_path: Path) -> None:
    """Its packets vanish meanwhile; the message is whole in the end, and makes no claim.

    It is there for 1 s of each 1.5 s, and needs more than 1 s on the air, so that it leaves in mid-upload whenever its
    program begins to send.
    """
    there = [[1.5 * number, 1.5 * number + 1.0] for number in range(40)]
    scenario = cell(1, "tdma")
    scenario["devices"]["availability"] = {"kind": "windows", "devices": {"0": there}}
    scenario["channel"]["bandwidth_hz"] = 1e6
    size = 2_000_000
    run = fe.live(scenario, uploading(size), out=tmp_path / "run")
    (row,), (sent,) = (table.itertuples() for table in (transfers_beside(run), run.transfers))
    away_s = sum(
        max(0.0, min(sent.ended_s, back_s) - max(sent.requested_s, left_s))
        for (_, left_s), (back_s, _) in itertools.pairwise(there)
    )
    assert away_s >= 0.5
    assert row.away_s == pytest.approx(away_s)
    assert np.isnan(row.error), "the simulator loses the transfer of a device that leaves"
    assert run.summary["live"]["vanished"][0] > 0
    assert (tmp_path / "run/dev-0.txt").read_text() == f"the server has received {size} bytes\n"


def walk(path: Path, *rows: tuple[float, float]) -> Path:
    """A recorded walk along the x-axis: pairs of time in s and x in m."""
    np.savez(path, walk=np.array([(time_s, x_m, 0.0) for time_s, x_m in rows], np.float64))
    return path


def walking(path: Path, **network: Any) -> dict[str, Any]:
    """A device on that walk, on a band of 1 MHz without fading."""
    scenario = cell(1, "tdma")
    trace = {"kind": "trace", "path": str(path), "start": "beginning", "assignment": "in-turn"}
    scenario["devices"] = {"count": 1, "profile": "pi-4b", "mobility": trace}
    plain = {"kind": "log-distance", "exponent": 3.5}
    scenario["channel"] |= {"bandwidth_hz": 1e6, "fading": "none", "path_loss": plain, "shadowing": "none"}
    scenario["network"] |= {"position_update_s": 0.1, **network}
    return scenario


def test_a_device_that_drives_out_of_range_and_returns(tmp_path: Path) -> None:
    """Nothing leaves while the link carries nothing, and the upload ends after the return."""
    path = walk(tmp_path / "walk.npz", (0, 50), (0.5, 50), (1.0, 20_000), (2.0, 20_000), (2.5, 50), (100, 50))
    run = fe.live(walking(path), uploading(1_000_000), out=tmp_path / "run")
    assert run.transfers["ended_s"].iloc[0] > 2.5
    seconds = run.table("live_host").set_index("simulated_s")["packets"]
    assert seconds.get(1, 0) < 0.1 * seconds.max(), "out of range for the whole of this second"
    assert (tmp_path / "run/dev-0.txt").read_text() == "the server has received 1000000 bytes\n"


def test_a_device_that_changes_its_cell_goes_on(tmp_path: Path) -> None:
    """From one station to the other in mid-upload: the rate falls at the edge and rises again."""
    path = walk(tmp_path / "walk.npz", (0, 10), (0.5, 10), (2.5, 390), (100, 390))
    cells = {"cells": {"kind": "list", "xy_m": [[0, 0], [400, 0]]}}
    run = fe.live(walking(path, **cells), uploading(2_000_000), out=tmp_path / "run")
    assert run.transfers["ended_s"].iloc[0] > 1.5
    assert run.summary["verified"]
    assert (tmp_path / "run/dev-0.txt").read_text() == "the server has received 2000000 bytes\n"


@pytest.mark.slow
def test_nothing_is_left_after_kill_9_at_twenty_moments(tmp_path: Path) -> None:
    """No process, mount, interface or file outside the run folder, whenever the command is killed."""
    scenario = tmp_path / "cell.yaml"
    scenario.write_text(json.dumps(cell(3, "ofdma", stop={"simulated_s": 600})))
    before, files = host_facts(), _files()
    for moment in range(20):
        mark = uuid.uuid4().hex
        words = ["live", str(scenario), "--out", str(tmp_path / f"run-{moment}"), "--", *uploading(20_000_000)]
        command = subprocess.Popen(
            [sys.executable, "-m", "fednet_emu", *words],
            env={**os.environ, "FEDNET_MARK": mark, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        come(mark, 2 + moment % 5)  # the keeper, and some of the programs
        time.sleep(0.1 * (moment // 5))
        command.send_signal(signal.SIGKILL)
        command.wait()
        assert gone(mark), (moment, marked(mark))
    assert host_facts() == before
    assert _files() == files


def _files() -> set[str]:
    return {str(path) for place in ("/run", "/tmp", "/dev/shm", "/var/run/netns") for path in Path(place).glob("fed*")}

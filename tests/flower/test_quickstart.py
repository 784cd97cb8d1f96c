"""The example app, from the command line."""

import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import fednet_emu as fe
from tests.commands import fednet

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower_quickstart"


def test_the_example_runs_in_an_urban_cell(tmp_path, monkeypatch):
    """PyTorch counts the operations of each client, and accuracy grows."""
    monkeypatch.chdir(tmp_path)
    rounds = "algorithm.run_config.num-server-rounds=4"
    done = fednet("flower", EXAMPLE, "--out", "out", "--no-plots", "--set", rounds)
    assert done.exit_code == 0, done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())

    assert summary["rounds"] == 4
    assert summary["verified"]
    assert summary["accuracy"] > 0.4
    assert "accuracy" in done.stdout
    assert "ROUND 4/4" in (tmp_path / "out" / "log.txt").read_text()


def test_an_app_that_fails_ends_with_code_one(tmp_path, monkeypatch):
    """Its traceback, and which part of it has failed; a wrong setting ends with code two."""
    monkeypatch.chdir(tmp_path)
    done = fednet("flower", EXAMPLE, "--out", "out", "--set", "algorithm.run_config.learning-rate=nothing")
    wrong = fednet("flower", EXAMPLE, "--set", "algorithm.run_config.learning=1.0")
    nowhere = fednet("flower", "nowhere")

    assert done.exit_code == 1
    assert "Traceback (most recent call last):" in done.stderr
    assert "the app failed: the ClientApp of dev-" in done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "failed"
    assert wrong.exit_code == 2
    assert "did you mean 'learning-rate'?" in wrong.stderr
    assert nowhere.exit_code == 2
    assert "APP: no such folder, got 'nowhere'" in nowhere.stderr


@pytest.mark.slow
def test_the_page_of_the_gallery_runs(tmp_path):
    """The script is not run when the site is built; from a folder with the examples it draws its two pictures."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    script = ROOT / "docs/examples/learning/show_flower_app.py"
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("5 MHz")
    assert {path.name for path in (tmp_path / "results/flower_app").glob("*.png")} == {"accuracy.png", "uploads.png"}


def ended(home):
    """End the processes that `flwr run` has left behind, which keep its home in their environment."""
    mark = f"FLWR_HOME={home}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGTERM)
        except OSError:  # it has just ended, or is somebody else's
            continue


def parts(app):
    """What an app is made of: its modules, and what its project says about the app."""
    project = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    return (
        {path.name: path.read_bytes() for path in app.rglob("*.py")},
        project["project"],
        project["tool"]["flwr"]["app"],
    )


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed; pip install 'flwr[simulation]' installs it")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to end what flwr run leaves behind")
def test_flowers_own_simulation_learns_alike(tmp_path):
    """`flwr run` plays a copy of the same folder on Ray; its accuracies are among those that ten of our seeds give.

    Flower draws the initial model and the batches anew in each run. So each round's accuracy is to lie within four
    standard deviations of the mean over our seeds. Flower comments a table out in `pyproject.toml`, and nothing else.
    """
    settings = {"num-server-rounds": 5, "fraction-train": 1.0}
    app, home = tmp_path / "app", tmp_path / "home"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port,
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    config = " ".join(f"{key}={value}" for key, value in settings.items())
    command = ["flwr", "run", ".", "--stream", "--run-config", config]
    try:
        done = subprocess.run(
            command, cwd=app, env=environment, capture_output=True, text=True, check=False, timeout=480
        )
    finally:
        ended(home)
    theirs = [float(accuracy) for accuracy in re.findall(r"'eval_acc': '([0-9.e+-]+)'", done.stdout)[-5:]]

    assert len(theirs) == 5, done.stdout + done.stderr
    assert parts(app) == parts(EXAMPLE)
    base = {"algorithm": {"kind": "flower", "app": str(app), "run_config": settings}, "channel": "urban-micro"}
    devices = {"count": 10, "placement": {"kind": "disc", "radius_m": 50, "inner_radius_m": 10}}
    scenario = {**base, "devices": {**devices, "speed": {"kind": "fixed", "flop_per_s": 1e10}}, "stop": {"rounds": 5}}
    runs = [fe.run(scenario, seed=seed, progress=False).evaluations.accuracy.tolist() for seed in range(10)]
    for their, ours in zip(theirs, zip(*runs, strict=True), strict=True):
        assert abs(their - statistics.mean(ours)) < 4 * statistics.stdev(ours)
    assert theirs[-1] > theirs[0]
    print("accuracy by round", theirs, [round(statistics.mean(ours), 3) for ours in zip(*runs, strict=True)])

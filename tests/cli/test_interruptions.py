"""Runs that are interrupted, killed, or disturbed by a second one: nothing is lost that was measured."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest
from typer import Exit

import fednet_emu.cli
from fednet_emu.cli.outcome import outcome
from fednet_emu.emulation.guard import Signals
from fednet_emu.emulation.play import play
from fednet_emu.federation.federation import Federation
from fednet_emu.records.folder import fingerprint
from fednet_emu.study import runners
from fednet_emu.study.runners import Outcome
from fednet_emu.testing import small_scenario
from tests.commands import LIMIT_S, Forked, fednet

LONG = [
    "--set",
    "stop.rounds=30",
    "--set",
    "training.checkpoint_s=1e-9",
    "--set",
    "training.engine=serial",
    "--no-plots",
]
FOR_EVER = ("--set", "stop.rounds=100000000")
KILL_AT_A_CHECKPOINT = """
import os, signal
from fednet_emu.cli import main
from fednet_emu.emulation import store
write, written = store.Shelf.keep, []
def write_and_die(self, *snapshot):
    write(self, *snapshot)
    written.append(snapshot)
    if len(written) == 10:
        os.kill(os.getpid(), signal.SIGKILL)
store.Shelf.keep = write_and_die
store.COST = float("inf")  # a checkpoint in every round
main()
"""


def endless(folder: Path) -> list[str]:
    """The arguments of Python for a run without an end."""
    return ["-m", "fednet_emu", "run", "quickstart", "--out", str(folder), *LONG, *FOR_EVER]


def wait_for_a_checkpoint(folder: Path) -> None:
    """Wait until a run has written its first checkpoint."""
    deadline = time.monotonic() + LIMIT_S
    while not list(folder.glob("learning/*/*.snapshot")) and time.monotonic() < deadline:
        time.sleep(0.02)


@contextmanager
def running(folder: Path) -> Iterator[Forked]:
    """A run without an end in a process of its own, from its first checkpoint on."""
    process = Forked(*endless(folder))
    try:
        wait_for_a_checkpoint(folder)
        yield process
    finally:
        process.kill()
        process.ended()


def tables(folder: Path) -> list[pd.DataFrame]:
    return [pd.read_parquet(folder / f"{name}.parquet") for name in ("transfers", "computes", "rounds", "evaluations")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert fednet("run", "quickstart", "--out", folder, "--quiet", *LONG).exit_code == 0
    return folder


@pytest.mark.slow
def test_killed_run_goes_on(tmp_path: Path, undisturbed: Path) -> None:
    """After kill -9 the same command replays the past, goes on from the checkpoint, and ends with equal tables."""
    folder = tmp_path / "run"
    killed = Forked("-c", KILL_AT_A_CHECKPOINT, "run", "quickstart", "--out", folder, *LONG).ended()
    assert killed.returncode == -signal.SIGKILL
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"

    again = fednet("run", "quickstart", "--out", folder, "--quiet", *LONG)

    assert again.exit_code == 0
    assert "going on from a checkpoint" in (folder / "log.txt").read_text()
    for got, expected in zip(tables(folder), tables(undisturbed), strict=True):
        pd.testing.assert_frame_equal(got, expected)


@pytest.mark.slow
def test_impatient_interrupts_leave_whole_records(tmp_path: Path) -> None:
    """However often Ctrl-C comes, the run ends with 130, says where its records are, and they are there.

    It may come while the interpreter ends, which a forked process does not do: this one is started afresh.
    """
    folder = tmp_path / "run"
    command = [sys.executable, *endless(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for_a_checkpoint(folder)
            for _ in range(4):
                process.send_signal(signal.SIGINT)
                time.sleep(0.03)
            _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()

    assert process.returncode in (130, -signal.SIGINT)  # a shell calls both 130
    assert str(folder).encode() in errors
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"
    assert len(tables(folder)) == 4


def test_an_interrupt_before_the_others_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C that comes at the last moment, when the run has ended and its records begin, cuts nothing off."""
    ignore, sent, before = Signals.ignore, [], signal.getsignal(signal.SIGINT)

    def late(self: Signals) -> None:
        if not sent:
            sent.append(True)
            signal.raise_signal(signal.SIGINT)
        ignore(self)

    def press(fed: Federation) -> None:
        if fed.round == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Signals, "ignore", late)
    with pytest.raises(KeyboardInterrupt):
        play(small_scenario("stop.rounds=5"), "small", tmp_path / "run", on_round=press)

    assert sent
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"
    assert len(tables(tmp_path / "run")) == 4
    assert signal.getsignal(signal.SIGINT) is before


def test_where_records_are_is_said_to_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C while the message is made does not cut it off."""
    before = signal.getsignal(signal.SIGINT)

    def said() -> str:
        signal.raise_signal(signal.SIGINT)
        return "in this folder"

    with pytest.raises(Exit) as ended, outcome(said):
        raise KeyboardInterrupt

    assert ended.value.exit_code == 130
    assert "in this folder" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_termination_is_an_interrupt(tmp_path: Path) -> None:
    """A cluster that takes the machine back sends SIGTERM: the run ends between two events with sound books."""
    folder = tmp_path / "run"
    with running(folder) as process:
        process.send_signal(signal.SIGTERM)
        process.ended()

    summary = json.loads((folder / "summary.json").read_text())
    assert (process.returncode, summary["status"], summary["verified"]) == (130, "interrupted", True)


def test_second_run_keeps_its_hands_off(tmp_path: Path) -> None:
    """A folder that is being written is refused, with --force too, and the first run is not disturbed."""
    folder = tmp_path / "run"
    with running(folder) as process:
        second = fednet("run", "quickstart", "--out", folder, "--force", *LONG)
        assert process.returncode is None

    assert second.exit_code == 2
    assert "is being written by another run" in second.stderr


def test_damaged_checkpoint_is_left_aside(tmp_path: Path) -> None:
    """A run whose checkpoint cannot be read starts anew instead of failing for ever."""
    folder = tmp_path / "run"
    short = ["--set", "stop.rounds=2", "--no-plots", "--quiet"]
    with running(folder):
        pass
    resolved = fednet("check", "quickstart", *short[:2]).stdout
    for damage in (b"garbage\n", b""):
        for entry in folder.glob("learning/*/*"):
            entry.write_bytes(damage)
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(
            json.dumps({**manifest, "status": "running", "scenario": fingerprint(resolved)})
        )

        assert fednet("run", "quickstart", "--out", folder, *short).exit_code == 0


def test_busy_host_changes_no_event(tmp_path: Path) -> None:
    """Virtual time is not taken from the host's clock: a run beside a busy process has the same event log."""
    options = ["--set", "stop.rounds=5", "--no-plots", "--quiet"]
    fednet("run", "quickstart", "--out", tmp_path / "quiet", *options)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        fednet("run", "quickstart", "--out", tmp_path / "busy", *options)
    finally:
        for process in busy:
            process.kill()
            process.wait()

    digests = {json.loads((tmp_path / name / "summary.json").read_text())["event_digest"] for name in ("quiet", "busy")}
    assert len(digests) == 1


def test_ctrl_c_while_the_commands_are_imported_is_an_interrupt(monkeypatch, capsys) -> None:
    """That takes longer than all before it; the command ends with a word and code 130, as it does later."""

    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "fednet_emu.cli.app", Interrupted("fednet_emu.cli.app"))
    try:
        main = runpy.run_path(fednet_emu.cli.__file__)["main"]
        with pytest.raises(SystemExit) as ended:
            main()
    except KeyboardInterrupt:
        pytest.fail("a bare KeyboardInterrupt")

    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interrupt_while_a_cell_starts_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell is then known, so that it is stopped and not left alone; its process is started deaf to Ctrl-C."""
    told: list[str] = []

    class Starts:
        """An attempt that Ctrl-C meets in the middle of its start."""

        results, _process = None, None

        def __init__(self, _job: object) -> None:
            signal.raise_signal(signal.SIGINT)
            told.append("started")

        def stop(self) -> None:
            told.append("stopped")

        def poll(self) -> Outcome:
            return Outcome("stopped")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(runners, "Attempt", Starts)
    monkeypatch.setattr(runners.connection, "wait", lambda *_: [])
    try:
        with pytest.raises(KeyboardInterrupt):
            list(runners.run_locally([SimpleNamespace(group="")], 1))
    finally:
        signal.signal(signal.SIGINT, before)

    assert told == ["started", "stopped"]


def test_cells_start_deaf_to_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends it to all processes, also to those that have not begun to end with their parent."""
    blocked: list[bool] = []

    class Context:
        """Notes, in place of a start, whether a process would have inherited that the signal is blocked."""

        def Process(self, **_: object) -> Context:  # noqa: N802
            return self

        def Pipe(self, *, duplex: bool) -> tuple[Context, Context]:  # noqa: N802
            return self, self

        def start(self) -> None:
            blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(runners, "clean_context", lambda *_: Context())
    runners.Attempt(SimpleNamespace(limits=None))

    assert blocked == [True]

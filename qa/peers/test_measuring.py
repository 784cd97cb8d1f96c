"""How contestants are measured: time, memory, and the table made of both."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from peers import memory, stopwatch, table
from peers.__main__ import Contestant, RunError, play
from peers.journal import Journal
from peers.stopwatch import Stopwatch
from peers.workloads import WARM_UP, Workload

WORKLOAD = Workload("W1", "softmax", clients=4, samples=8, cohort=2, batch=4, steps=2, lr=0.1, rounds=2)
PARENT = """
import pathlib, subprocess, sys, time
held = "import time; held = b'1' * 64_000_000; print('held', flush=True); time.sleep(3600)"
child = subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE)
child.stdout.readline()
pathlib.Path(sys.argv[1] + ".held").touch()
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def test_the_warm_up_is_off_the_clock_and_picks_the_faster_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 9 and 4 s with two threads, 5 and 3 s with one: one thread is kept, and only later rounds count."""
    instants = iter([0.0, 9.0, 13.0, 18.0, 21.0, 21.5, 22.5])
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: next(instants))
    chosen: list[int] = []
    watch = Stopwatch(WORKLOAD, chosen.append, threads=(2, 1))

    for _ in range(WARM_UP + WORKLOAD.rounds + 1):
        watch.round_done()

    assert chosen == [2, 2, 1, 1, 1]
    assert watch.round_s == pytest.approx(0.75)


def test_memory_of_a_grandchild_counts_and_what_is_left_behind_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose child holds 64 MB has a peak above that, and the child does not outlive the measurement.

    The process ends when it has been looked at since the child holds the memory, however slow the host is.
    """
    enough, held, look = tmp_path / "enough", tmp_path / "enough.held", memory.Tree.look

    def look_and_tell(tree: memory.Tree) -> None:
        was_held = held.exists()
        look(tree)
        if was_held:
            enough.touch()

    monkeypatch.setattr(memory.Tree, "look", look_and_tell)
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(enough)], text=True)

    tree = memory.watch(process, interval_s=0.1)
    left = [pid for pid in tree.seen if pid != process.pid]

    assert 64e6 < tree.peak_byte < 164e6
    assert len(left) == 1
    deadline_s = time.monotonic() + 300  # far more than any host needs to bury a process
    while any(memory._pss_byte(pid) for pid in left):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A process that waits for what never comes is killed after the second it has."""
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "never")], text=True)

    tree = memory.watch(process, interval_s=0.1, limit_s=1.0)

    assert process.returncode == -signal.SIGKILL
    assert process.pid in tree.seen


def test_work_of_others_is_told_apart() -> None:
    """Of two busy cores the tree and we ourselves had 0.8 in a second, others 1.2; they never have less than none."""
    tree = memory.Tree(1, spent_s={1: 0.5, 2: 0.2})

    assert memory.others_cores(tree, 2.0, 0.8, 1.0) == pytest.approx(1.2)
    assert memory.others_cores(tree, 0.6, 0.8, 1.0) == 0.0


def run(kind: str, contestant: str, times_s: list[float], **more: Any) -> list[dict[str, Any]]:
    """The runs of one contestant."""
    common = {"workload": "W1", "kind": kind, "contestant": contestant, "peak_mb": 500.0, "steps": 108_000}
    return [
        {**common, "loss": 0.5, "version": "1", "round_s": spent, "repeat": place} | more
        for place, spent in enumerate(times_s)
    ]


def test_the_table_has_medians_and_ratios() -> None:
    """Medians of three, relative to our whole run; a peer counts with its best configuration, and so do the loops."""
    runs = [
        *run("fednet_emu", "fednet_emu", [0.03, 0.02, 0.01], learning_s=0.012),
        *run("reference", "hand-written, lean", [0.05, 0.04, 0.06]),
        *run("reference", "hand-written, analytic", [0.01, 0.01, 0.02]),
        *run("peer", "slow, one process", [0.2, 0.1, 0.3], peak_mb=400.0),
        *run("peer", "slow, two processes", [0.1, 0.1, 0.1]),
    ]

    text = table.markdown(runs, {"processor": "abacus"})

    assert "| slow, one process | 200 | 100 to 300 | 10.00 | 400 | 0.5000 | 108000 | 3 |" in text
    assert "| **slow, two processes** | 100 | 100 to 100 | **5.00** | 500 | 0.5000 | 108000 | 3 |" in text
    assert "Learning plane 12 ms, 1.20 times the best loop (analytic, 10 ms); 50 rounds per second" in text
    assert "Peers at their best, in times of the whole emulated run: slow, two processes 5.00." in text
    assert "Leanest peer: slow, one process, 400 MB to our 500 MB" in text


def test_an_app_is_set_against_its_own_engine() -> None:
    """The same app took 0.1 s on the emulated network and 0.4 s in its own engine; without that nothing is said."""
    runs = [*run("peer", "Flower", [0.4]), *run("app", "Flower app on fednet_emu", [0.1])]

    told = "- Flower app on fednet_emu takes 100 ms, in Flower's own engine 400 ms, 4.00 times as long."
    assert told in table.markdown(runs, {})
    assert told not in table.markdown(runs[1:], {})
    assert "own engine" not in table.markdown(runs[1:], {})


@pytest.mark.parametrize(("change", "marked"), [({}, False), ({"loss": 0.6}, True), ({"steps": 107_999}, True)])
def test_another_loss_or_count_of_steps_is_marked(change: dict[str, float], marked: bool) -> None:
    """A contestant that did something else than the hand-written loops is told apart in the table."""
    runs = [*run("reference", "hand-written, lean", [0.05]), *run("peer", "odd", [0.2], **change)]

    assert ("(differs)" in table.markdown(runs, {})) == marked


def test_a_failure_is_told_beside_the_figures() -> None:
    """The medians are over the runs that ended; the one that did not is a line of its own."""
    failed = {"workload": "W1", "kind": "peer", "contestant": "frail", "repeat": 1, "failed": "exit code 1"}

    text = table.markdown([*run("peer", "frail", [0.2]), failed], {})

    assert "| **frail** | 200 |" in text
    assert "- frail, repeat 2: exit code 1." in text


def test_a_disturbed_run_is_told() -> None:
    """A run beside which others kept half a core busy is named; a tenth of one is nothing."""
    text = table.markdown([*run("peer", "a", [0.2], others_cores=0.5), *run("peer", "b", [0.2], others_cores=0.1)], {})

    assert "- a, repeat 1: disturbed, others kept 0.50 cores busy." in text
    assert "b, repeat" not in text


def test_a_broken_off_comparison_goes_on_with_what_failed(tmp_path: Path) -> None:
    """What has figures is kept to the last digit; what failed or was disturbed is to be run again; afresh, all is."""
    kept, path = run("peer", "sound", [1 / 3], threads=2)[0], tmp_path / "runs.csv"
    failed = {"workload": "W1", "kind": "peer", "contestant": "frail", "repeat": 0, "failed": "exit code 1, of many"}
    journal = Journal(path)
    journal.add(kept)
    journal.add(failed)
    journal.add(run("peer", "unlucky", [0.2], others_cores=1.5)[0])

    assert Journal(tmp_path / "runs.csv", resume=True).runs == [kept]
    assert ("W1", "sound", 0) in Journal(path, resume=True)
    assert ("W1", "frail", 0) not in Journal(path, resume=True)
    assert Journal(path).runs == []


def test_a_contestant_that_fails_says_how(tmp_path: Path) -> None:
    """A program that ends with an error, or is not installed, is a failure with its reason, and nothing else."""
    entrant = Contestant("frail", "no_such_module", "peer")

    with pytest.raises(RunError, match="exit code 1"):
        play(entrant, "W1", Path(sys.executable), tmp_path)
    with pytest.raises(RunError, match="not installed"):
        play(entrant, "W1", None, tmp_path)

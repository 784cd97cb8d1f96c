"""What becomes of the file: written at once or not at all, the same from a folder and from memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.trace.feed import nanoseconds
from fednet_emu.draw.trace.trace import write_trace
from fednet_emu.records.ledger import Ledger

SHORT = {"stop.rounds": 3}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> fe.Run:
    """A short run with training, in a folder."""
    return fe.run("quickstart", settings=SHORT, out=tmp_path_factory.mktemp("trace") / "run")


def test_scores_are_counters(learnt: fe.Run, tmp_path: Path, read_trace: Callable[[Path], Any]) -> None:
    """Scores have their values at the times of the evaluations; energy ends at the summary's but idle power."""
    trace = read_trace(learnt.trace(tmp_path / "run.pftrace"))

    measured = learnt.evaluations
    for name in ("accuracy", "loss"):
        assert [value for _, value in trace.counters["quickstart", name]] == measured[name].tolist()
    assert [at_ns for at_ns, _ in trace.counters["quickstart", "loss"]] == nanoseconds(measured["simulated_s"]).tolist()
    spent_j = learnt.summary["energy_j"] - learnt.summary["idle_j"]
    assert trace.counters["quickstart", "energy"][-1][1] == pytest.approx(spent_j)
    assert trace.counters["cell 0", "medium", "uplink: bits on the air"][-1][1] == learnt.summary["uplink_bit"]
    assert "worst train loss" not in [track[-1] for track in trace.counters]


def test_a_run_in_memory_and_in_a_folder_give_one_file(learnt: fe.Run, tmp_path: Path) -> None:
    """Times in the tables of the folder are those of the clock, so not a byte differs; neither does a second time."""
    again = fe.run("quickstart", settings=SHORT)

    files = [run.trace(tmp_path / name).read_bytes() for run, name in ((learnt, "a"), (learnt, "b"), (again, "c"))]

    assert files[0] == files[1] == files[2]


def test_an_empty_run_is_a_trace_without_slices(tmp_path: Path, read_trace: Callable[[Path], Any]) -> None:
    """A run in which nothing happened has a trace, too."""
    run = RunRecords("empty", {"simulated_s": 0.0}, {}, None, Ledger().frames)

    assert write_trace(run, tmp_path / "run.pftrace") == 0
    assert read_trace(tmp_path / "run.pftrace").slices == []


def test_a_trace_that_fails_leaves_the_file_as_it_was(learnt: fe.Run, tmp_path: Path) -> None:
    """When writing is interrupted, an older trace of the same name is whole, and nothing else is left."""
    path = tmp_path / "run.pftrace"
    path.write_bytes(b"older")

    def interrupt(_now_ns: int, _slices: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_trace(learnt, path, show=interrupt)
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_table_is_named(learnt: fe.Run, write_run: Callable[..., Path], tmp_path: Path) -> None:
    """A table that cannot be read is named with its path, and there is no trace."""
    folder = write_run(tmp_path / "run", {}, simulated_s=1.0)
    (folder / "transfers.parquet").write_bytes(b"no table")

    with pytest.raises(fe.DataError, match=r"transfers\.parquet: not a readable table, got .*; restore it from a copy"):
        fe.open(folder).trace(tmp_path / "run.pftrace")
    assert not (tmp_path / "run.pftrace").exists()


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ({"devices": [3, 20]}, r"devices: no such device, got 20; they are numbered 0 to 19"),
        ({"devices": []}, r"devices: no device is to be shown, got no number; leave it out"),
        ({"from_s": 2.0, "until_s": 1.0}, r"until_s: must be after the begin at 2 s, got 1 s; give a later end"),
        ({"from_s": 1e6}, r"from_s: the run ends at .* s, got 1e\+06 s; give an earlier time"),
    ],
)
def test_a_window_without_anything_is_refused(
    learnt: fe.Run, tmp_path: Path, window: dict[str, Any], problem: str
) -> None:
    """Devices that do not exist and times outside of the run are mistakes, said in one sentence."""
    with pytest.raises(fe.FednetError, match=problem):
        learnt.trace(tmp_path / "run.pftrace", **window)


def test_times_in_seconds_are_nanoseconds_again() -> None:
    """Whatever the clock counts in 26 days comes back from float64 seconds; what never happened stays apart."""
    times_ns = np.random.default_rng(0).integers(0, 2**51, 100_000)

    assert (nanoseconds(times_ns / 1e9) == times_ns).all()
    assert nanoseconds([np.nan, 0.0]).tolist() == [-1, 0]

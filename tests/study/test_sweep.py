"""Sweeps: runs in processes, on clusters, and the server that forks them."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from typer.testing import CliRunner

from fednet_emu.analysis.study import StudyRecords
from fednet_emu.cli.app import app
from fednet_emu.errors import DataError, FednetError
from fednet_emu.files.data_folder import checksum
from fednet_emu.records.folder import RunFolder
from fednet_emu.study import runners, slurm
from fednet_emu.study.file import Limits
from fednet_emu.study.grid import result_columns
from fednet_emu.study.runners import run_here, run_locally
from fednet_emu.study.runs import runs_of
from fednet_emu.study.slurm import Slurm, collected, submit
from fednet_emu.study.sweep import Sweep, sweep
from fednet_emu.testing import SMALL
from tests.commands import Forked
from tests.quick import crossed


def swept(path, out):
    """The progress of a sweep in this process, when it has ended."""
    return sweep(runs_of(path), out, run_here)


def swept_apart(path, out, workers=2):
    return sweep(runs_of(path), out, lambda tasks: run_locally(tasks, workers))


def backwards(tasks):
    """A runner that finishes runs in the opposite order."""
    for news in run_here(tasks[::-1]):
        yield news._replace(place=len(tasks) - 1 - news.place)


def tables(out: Path) -> list[bytes]:
    """The two tables of a study, to the byte."""
    return [(out / name).read_bytes() for name in ("study.parquet", "runs.parquet")]


def test_a_script_needs_no_guard(study_file, tmp_path, monkeypatch):
    """A sweep at the top of a script does not run the script again in the processes of its runs."""
    script, main = tmp_path / "script.py", ModuleType("__main__")
    script.write_text(f"open({str(tmp_path / 'again')!r}, 'w').close()", encoding="utf-8")
    main.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    progress = swept_apart(study_file("grid: {algorithm.lr: [0.0, 0.1]}\nseeds: 1\n"), tmp_path / "out")

    assert progress.failures == {}
    assert len(progress.done) == 2
    assert not (tmp_path / "again").exists()


def test_tables_hold_every_evaluation_and_every_run(study_file, tmp_path):
    """One row for each evaluation with the varied keys, and one for each run with what the target had cost."""
    path = study_file("grid: {algorithm.lr: [0.0, 0.1], devices.count: [4, 5]}\nseeds: 2\ntarget: {loss: 5}\n")
    progress = swept(path, tmp_path / "out")

    assert progress.failures == {}
    rows, runs = (pd.read_parquet(tmp_path / "out" / f"{name}.parquet") for name in ("study", "runs"))
    assert len(rows) == 8 * 4  # the initial model and three rounds
    assert rows["devices.count"].dtype == "int64"
    assert rows["algorithm.lr"].dtype == "float64"
    assert runs["seed"].tolist() == [0, 1] * 4
    assert (rows["total_bit"] == rows["uplink_bit"] + rows["downlink_bit"]).all()
    first = rows[(rows["run"] == runs["run"][7]) & (rows["loss"] <= 5)].iloc[0]
    assert runs["time_to_target_s"][7] == first["simulated_s"]
    assert runs["bits_to_target"][7] == first["total_bit"]
    assert runs["rounds_to_target"][7] == first["round"]
    assert runs["time_to_target_s"][:4].isna().all()  # nothing is learnt with lr = 0


def test_no_axis_has_the_name_of_a_column(study_file, tmp_path):
    """All columns of the tables of a study are reserved, except the axes."""
    metrics = "evaluation.metrics: [macro-f1, {kind: top-k, k: 2}], evaluation.per_device: true, carbon.g_per_kwh: 300"
    path = study_file(f"set: {{{metrics}}}\ngrid: {{devices.count: [4]}}\n")
    swept(path, tmp_path / "out")
    records = StudyRecords.opened(tmp_path / "out")

    assert {*records.runs, *records.evaluations} - result_columns() == {"devices.count"}


def test_the_time_left_is_told_by_the_finished_cells():
    """Eight runs left at 10 s each on average, two at a time, two of them half done: 35 s; NaN before."""
    progress = Sweep("study", Path(), Limits(), False, run_here, runs=[None] * 10)
    assert math.isnan(progress.left_s)
    progress.host_s, progress.done = [8.0, 12.0], {0, 1}
    assert math.isnan(progress.left_s)

    progress.at_once = 2
    assert progress.left_s == pytest.approx(35.0)
    progress.failures = dict.fromkeys(range(2, 9), "why")
    assert progress.left_s == pytest.approx(5.0)  # the last one, alone
    progress.done.add(9)
    assert math.isnan(progress.left_s)


def test_cells_of_an_earlier_sweep_tell_the_time_left(study_file, tmp_path):
    """A sweep that goes on knows the host times of what is finished before it has finished anything itself."""
    path = study_file("grid: {algorithm.lr: [0.05, 0.1]}\nseeds: 1\n")
    swept(path, tmp_path / "out")
    seen = []
    longer = runs_of(study_file("grid: {algorithm.lr: [0.05, 0.1, 0.2]}\nseeds: 1\n"))
    sweep(longer, tmp_path / "out", run_here, on_event=lambda now: seen.append(now.left_s))

    assert len(seen) == 3  # before anything, at the start of the third run, at its end
    assert math.isnan(seen[0])
    assert seen[1] > 0
    assert math.isnan(seen[2])


def test_tables_do_not_depend_on_who_finished_first(study_file, tmp_path):
    """One worker or two or none, forwards or backwards: the tables are the same to the byte."""
    path = study_file("grid: {algorithm.lr: [0.05, 0.1, 0.2]}\nseeds: 1\n")
    swept_apart(path, tmp_path / "one", workers=1)
    swept_apart(path, tmp_path / "two", workers=2)
    sweep(runs_of(path), tmp_path / "backwards", backwards)

    assert tables(tmp_path / "one") == tables(tmp_path / "two") == tables(tmp_path / "backwards")


class HourWhenHung:
    """A clock by which an hour has passed as soon as a run has told that it hangs, however fast the host is."""

    def __init__(self, told: Path) -> None:
        self._told = told

    def monotonic(self) -> float:
        return time.monotonic() + 3600.0 * self._told.exists()


def test_a_cell_that_never_ends_is_ended_after_its_time(study_file, moods, tmp_path, monkeypatch):
    """What hangs fails after half an hour, the limit; what was calm before is done."""
    told = tmp_path / "told"
    monkeypatch.setattr(runners, "GRACE_S", 0.5)
    monkeypatch.setattr(runners, "time", HourWhenHung(told))
    path = study_file(moods("calm", "hangs", told=str(told)) + "seeds: 1\nlimits: {time_s: 1800}\n")

    progress = swept_apart(path, tmp_path / "out", workers=1)

    assert (progress.done, progress.failures) == ({0}, {1: "took longer than limits.time_s, 1800 s"})


def test_bad_cells_fail_with_their_reason_and_the_rest_complete(study_file, moods, tmp_path):
    """Raising and growing without bounds are two failures; what is calm is done."""
    path = study_file(moods("raises", "grows", "calm") + "seeds: 1\nlimits: {memory_mb: 1500}\n")
    progress = swept_apart(path, tmp_path / "out")

    runs = pd.read_parquet(tmp_path / "out" / "runs.parquet").set_index("mood")
    assert progress.done == {2}
    assert runs["status"].to_dict() == {"raises": "failed", "grows": "failed", "calm": "done"}
    assert runs["reason"]["raises"] == "ZeroDivisionError: no way"
    assert "MB of memory, more than limits.memory_mb, 1500" in runs["reason"]["grows"]
    report = (tmp_path / "out" / "failures" / f"{runs['run']['raises']}.txt").read_text()
    assert "replay: fednet run" in report
    assert "raise ZeroDivisionError" in report


def test_a_killed_worker_fails_alone_and_is_tried_again(study_file, moods, tmp_path):
    """A process killed with -9 is a failure of that run; the next sweep runs that one only."""
    path = study_file(moods("dies", "calm", once=str(tmp_path / "died")) + "seeds: 1\n")
    first = swept_apart(path, tmp_path / "out")
    calm = first.folder_of[1] / "manifest.json"
    before = calm.stat().st_mtime_ns
    assert first.failures == {0: "its process was killed by SIGKILL; the host may have run out of memory"}

    second = swept(path, tmp_path / "out")

    assert (second.done, second.failures) == ({0, 1}, {})
    assert calm.stat().st_mtime_ns == before
    assert not list((tmp_path / "out" / "failures").iterdir())
    swept(path, tmp_path / "undisturbed")
    assert tables(tmp_path / "out") == tables(tmp_path / "undisturbed")


def test_a_worker_that_others_interrupt_has_failed(study_file, moods, tmp_path):
    """An interrupt that is not the sweep's own is told as a failure; the next sweep runs that run."""
    path = study_file(moods("leaves", "calm", once=str(tmp_path / "left")) + "seeds: 1\n")
    first = swept_apart(path, tmp_path / "out")
    assert (first.done, first.failures) == ({1}, {0: "its process was stopped from outside"})

    assert swept(path, tmp_path / "out").done == {0, 1}


def test_finished_cells_never_run_again(study_file, tmp_path):
    """A second sweep starts nothing, and one with more seeds only the new ones, whatever levels are called."""
    swept(study_file("grid: {air: {old: {}}}\nseeds: 2\n"), tmp_path / "out")
    handed = []

    def counting(tasks):
        handed.extend(tasks)
        yield from run_here(tasks)

    progress = sweep(runs_of(study_file("grid: {air: {new: {}}}\nseeds: 3\n")), tmp_path / "out", counting)

    assert [task.scenario.seed for task in handed] == [2]
    assert progress.done == {0, 1, 2}


def test_an_unfinished_sweep_says_what_is_waiting(study_file, tmp_path):
    """Whoever stops a sweep finds the finished runs in the tables; the same call later runs the others."""
    path = study_file("seeds: 3\n")

    class EnoughError(Exception):
        """The test has seen enough."""

    def stop_after_one(progress):
        if progress.done:
            raise EnoughError

    with pytest.raises(EnoughError):
        sweep(runs_of(path), tmp_path / "out", run_here, on_event=stop_after_one)
    assert pd.read_parquet(tmp_path / "out" / "runs.parquet")["status"].tolist() == ["done", "waiting", "waiting"]

    assert swept(path, tmp_path / "out").done == {0, 1, 2}


def test_two_sweeps_do_not_share_a_folder(study_file, tmp_path):
    """The second one is refused at once, and neither touches a folder that is no study."""
    path = study_file("seeds: 1\n")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.tex").write_text("three years of work")
    with pytest.raises(DataError, match="exists and is not the folder of a study"):
        swept(path, tmp_path / "thesis")
    with pytest.raises(DataError, match="exists and is not the folder of a study"):
        swept(path, tmp_path / "thesis" / "text.tex")

    def meddling(tasks):
        with pytest.raises(DataError, match="is being written by another sweep or search"):
            swept(path, tmp_path / "out")
        yield from run_here(tasks)

    assert sweep(runs_of(path), tmp_path / "out", meddling).done == {0}


def test_cells_of_broken_laws_have_failed(study_file, tmp_path):
    """A run that is finished but unsound counts as failed, now and later."""
    path = study_file("seeds: 1\n")
    folder = swept(path, tmp_path / "out").folder_of[0]
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "verified": False, "broken_laws": {"energy": "x"}}))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["summary.json"] = checksum(folder / "summary.json")
    (folder / "manifest.json").write_text(json.dumps(manifest))

    assert "conservation laws are broken" in swept(path, tmp_path / "out").failures[0]


def test_processes_have_one_thread_each_and_leave_the_environment_alone(study_file, tmp_path, monkeypatch):
    """Limits on threads are given to the runs, not to this process."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    swept_apart(study_file("seeds: 1\n"), tmp_path / "out")

    assert "OMP_NUM_THREADS" not in os.environ


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study of two runs that has ended, and its runs; tests copy its folder."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.yaml").write_text(SMALL, encoding="utf-8")
    (folder / "study.yaml").write_text("base: small\nseeds: 2\n", encoding="utf-8")
    runs = runs_of(folder / "study.yaml")
    sweep(runs, folder / "out", run_here)
    return folder / "out", runs


@pytest.mark.parametrize(
    ("name", "damage"),
    crossed(["summary.json", "evaluations.parquet", "rounds.parquet", "scenario.yaml"], [None, b"", b"{}", b"garbage"]),
)
def test_a_finished_cell_with_a_damaged_file_is_run_again(finished, tmp_path, name, damage, caplog):
    """The sweep names the file, repeats that run only, and leaves the tables that it left before."""
    (whole, runs), out = finished, tmp_path / "out"
    shutil.copytree(whole, out)
    folders = [out / "runs" / run.name for run in runs]
    before = [(out / table).read_bytes() for table in ("study.parquet", "runs.parquet")]
    others = (folders[1] / "manifest.json").stat().st_mtime_ns
    (folders[0] / name).unlink()
    if damage is not None:
        (folders[0] / name).write_bytes(damage)
    again = sweep(runs, out, run_here)

    problem = "no such file" if damage is None else "damaged, its content has changed since it was written"
    assert f"{folders[0] / name}: {problem}; the run is repeated" in caplog.messages
    assert again.done == {0, 1}
    assert [(out / table).read_bytes() for table in ("study.parquet", "runs.parquet")] == before
    assert (folders[1] / "manifest.json").stat().st_mtime_ns == others


LOOK = """
import gc, json, sys
from pathlib import Path
from fednet_emu.emulation.play import play
from fednet_emu.emulation.provenance import commit, source_hash
from fednet_emu.records.folder import versions
from fednet_emu.testing import small_scenario
known = [look_up.cache_info().currsize for look_up in (commit, source_hash, versions)]
frozen, there = gc.get_freeze_count(), set(sys.modules)
play(small_scenario("stop.rounds=1"), "small", Path(sys.argv[1]))
print(json.dumps([known, frozen, sorted(set(sys.modules) - there)]))
"""
LARGE = {"fednet_emu", "pandas", "scipy", "threadpoolctl", "torch"}


def test_a_run_imports_and_looks_up_nothing_itself(tmp_path) -> None:
    """Code, commit and versions are known, and a run with records imports no part of a library that takes long."""
    told = Forked("-c", LOOK, tmp_path / "run").ended()
    known, frozen, imported = json.loads(told.stdout)

    assert known == [1, 1, 1]
    assert frozen > 100_000
    assert not {name.partition(".")[0] for name in imported} & LARGE


SBATCH = f"""#!{sys.executable}
import os, random, re, subprocess, sys
from pathlib import Path

*options, script = sys.argv[1:]
assert options[0] == "--parsable"
lines = re.findall(r"^#SBATCH --(.+?)=(.+)$", Path(script).read_text(), re.MULTILINE)
asked = dict(lines)
elements = list(range(int(asked["array"].split("-")[1]) + 1)) * 2 if "array" in asked else [""]
random.Random(1).shuffle(elements)
for element in elements:
    with Path(asked["output"].replace("%a", str(element))).open("a") as log:
        env = {{**os.environ, "SLURM_ARRAY_TASK_ID": str(element)}}
        subprocess.run(["bash", script], env=env, stdout=log, stderr=log)
print(f"{{17 + len(options)}};cluster")
"""


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    there = tmp_path / "bin" / "sbatch"
    there.parent.mkdir()
    there.write_text(SBATCH, encoding="utf-8")
    there.chmod(0o755)
    monkeypatch.setenv("PATH", str(there.parent), prepend=":")


@pytest.mark.slow
def test_one_command_submits_the_cells_and_the_tables(study_file, moods, tmp_path, monkeypatch, sbatch):
    """Every element runs twice, in any order; tables and failures are those of a sweep on one machine."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    path = study_file(moods("calm", "raises") + "seeds: 1\n")
    here = sweep(runs_of(path), tmp_path / "local", lambda tasks: run_locally(tasks, 2))
    told = CliRunner().invoke(app, ["sweep", str(path), "--out", str(tmp_path / "out"), "--slurm", "--no-plots"])

    assert told.exit_code == 0, told.output
    assert "2 runs to run: " in told.output
    assert "submitted as 18; 19 writes the tables after it" in told.output
    log = tmp_path / "out" / "slurm" / "1" / "logs" / "tables.txt"
    assert tables(tmp_path / "out") == tables(tmp_path / "local"), log.read_text(encoding="utf-8")
    assert (tmp_path / "out" / "report.html").is_file()
    failure = f"{here.runs[1].name}.txt"
    assert (tmp_path / "out" / "failures" / failure).is_file()
    assert "ZeroDivisionError: no way" in (tmp_path / "out" / "failures" / failure).read_text(encoding="utf-8")


def test_an_array_runs_what_is_left(study_file, tmp_path, monkeypatch):
    """Five runs in three elements, in any order and twice: nothing is run twice, and the tables are the same."""
    monkeypatch.setattr(slurm, "MOST_ELEMENTS", 3)
    path, out = study_file("seeds: 5\nlimits: {time_s: 600, memory_mb: 2500, gpus: 0.5}\n"), tmp_path / "out"
    loaded = runs_of(path)
    sweep(loaded, tmp_path / "local", run_here)
    first = Slurm(out, ["true"])
    sweep(loaded, out, first)

    assert first.jobs is not None
    assert first.jobs.runs == 5
    script = first.jobs.array.read_text(encoding="utf-8")
    for option in ("--array=0-2", "--time=25", "--mem=3500M", "--gpus=1"):  # two runs of 10 min, and 5 min
        assert f"#SBATCH {option}\n" in script
    order = [0, 1, 2] * 2
    random.Random(0).shuffle(order)
    for element in order:
        list(slurm.run_element(first.jobs.array.parent, element, 3))
        rest = Slurm(out, ["true"])
        sweep(loaded, out, rest)  # asks for what is missing at that moment
    assert rest.jobs is None
    assert tables(out) == tables(tmp_path / "local")


def test_a_cell_that_was_never_run_waits(study_file, tmp_path):
    """Collected before anything has run, a study has no failures, only runs that wait."""
    loaded, out = runs_of(study_file("seeds: 2\n")), tmp_path / "out"
    sweep(loaded, out, Slurm(out, ["true"]))
    progress = sweep(loaded, out, lambda tasks: collected(tasks, out))

    assert (progress.done, progress.failures, progress.left) == (set(), {}, [0, 1])
    assert RunFolder.status(progress.folder_of[0]) is None


def test_a_task_survives_its_file(study_file, tmp_path):
    """What an element reads is the task that was written."""
    loaded, tasks = runs_of(study_file("set: {channel.fading: {kind: rician, k_db: 3}}\nseeds: 1\n")), []

    def kept(given):
        tasks.extend(given)
        yield from ()

    sweep(loaded, tmp_path / "out", kept, data_dir=tmp_path, track=("tensorboard",))

    jobs = slurm._jobs()
    assert jobs.validate_json(jobs.dump_json(tasks[0])) == tasks[0]


def test_without_sbatch_the_commands_are_told(study_file, tmp_path, monkeypatch):
    """Where there is no SLURM the scripts are written all the same."""
    monkeypatch.setenv("PATH", str(tmp_path))
    told = CliRunner().invoke(app, ["sweep", str(study_file("seeds: 1\n")), "--out", str(tmp_path / "o"), "--slurm"])

    assert told.exit_code == 0, told.output
    assert "there is no sbatch here; on the cluster:" in told.output
    assert (tmp_path / "o" / "slurm" / "1" / "runs.sh").is_file()


def test_what_slurm_refuses_is_a_mistake(study_file, tmp_path, monkeypatch, sbatch):
    """The reason that sbatch gives is in the sentence."""
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho invalid account >&2; exit 1\n", encoding="utf-8")
    out = tmp_path / "out"
    runner = Slurm(out, ["true"])
    sweep(runs_of(study_file("seeds: 1\n")), out, runner)
    assert runner.jobs is not None

    with pytest.raises(FednetError, match="is refused, got 'invalid account'"):
        submit(runner.jobs)


def test_one_place_at_a_time(study_file, tmp_path):
    """A sweep runs on Ray or on SLURM, not on both."""
    told = CliRunner().invoke(app, ["sweep", str(study_file("seeds: 1\n")), "--ray", "--slurm"])

    assert told.exit_code == 2
    assert "a study runs in one place, got several of --ray, --slurm, --collect" in told.output


def test_scripts_pass_the_shell(study_file, tmp_path):
    """Names with blanks and quotes do not break a script."""
    out = tmp_path / "it's a study"
    runner = Slurm(out, ["echo", "it's $HOME"])
    sweep(runs_of(study_file("seeds: 1\n")), out, runner)
    assert runner.jobs is not None
    ended = subprocess.run(["bash", str(runner.jobs.last)], capture_output=True, text=True, check=True)

    assert ended.stdout == "it's $HOME\n"

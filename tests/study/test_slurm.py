"""The same runs as a job array of SLURM, which a script stands in for that has its options and runs jobs at once."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fednet_emu.cli.app import app
from fednet_emu.errors import FednetError
from fednet_emu.records.folder.store import RunFolder
from fednet_emu.study import slurm
from fednet_emu.study.runners import run_here, run_locally
from fednet_emu.study.runs import runs_of
from fednet_emu.study.slurm import Slurm, collected, submit
from fednet_emu.study.sweep import sweep

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


def tables(out: Path) -> list[bytes]:
    """The two tables of a study, to the byte."""
    return [(out / name).read_bytes() for name in ("study.parquet", "cells.parquet")]


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """Puts the stand-in on the path."""
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

    assert slurm._task(slurm._text(tasks[0])) == tasks[0]


def test_without_sbatch_the_commands_are_told(study_file, tmp_path, monkeypatch):
    """Where there is no SLURM the scripts are written all the same."""
    monkeypatch.setenv("PATH", str(tmp_path))
    told = CliRunner().invoke(app, ["sweep", str(study_file("seeds: 1\n")), "--out", str(tmp_path / "o"), "--slurm"])

    assert told.exit_code == 0, told.output
    assert "there is no sbatch here; on the cluster:" in told.output
    assert (tmp_path / "o" / "slurm" / "1" / "cells.sh").is_file()


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

"""Speed of a sweep: runs per hour of two workers against one, and what thousands of runs cost beside their runs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from fednet_emu.study.runners import Event, Job, attempted, run_locally
from fednet_emu.study.runs import StudyRun, runs_of
from fednet_emu.study.sweep import sweep

RUNS = 6


def cells_per_hour(out: Path, workers: int) -> float:
    """Host speed of a part of the example study; the first call of a process also starts the server of processes."""
    some = runs_of("quickstart_access", ["stop.rounds=60"])[:RUNS]
    started_s = time.perf_counter()
    progress = sweep(some, out, lambda tasks: run_locally(tasks, workers))
    assert len(progress.done) == RUNS
    return RUNS / (time.perf_counter() - started_s) * 3600


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_two_workers_are_nearly_twice_as_fast(tmp_path: Path) -> None:
    """On two idle cores two workers finish at least 1.7 times as many runs per hour as one."""
    sweep(runs_of("quickstart_access", ["stop.rounds=1"])[:1], tmp_path / "warm", lambda tasks: run_locally(tasks, 1))

    one, two = (cells_per_hour(tmp_path / str(workers), workers) for workers in (1, 2))

    print(f"{one:.0f} runs per hour with one worker, {two:.0f} with two: {two / one:.2f} times")
    assert two >= 1.7 * one


def study_of(runs: int, folder: Path) -> list[StudyRun]:
    """A study of the quickstart with a hundred seeds and as many bandwidths as make this many runs."""
    bandwidths = [1e6 + 1e4 * level for level in range(runs // 100)]
    path = folder / f"study{runs}.yaml"
    lines = [
        "base: quickstart",
        "set: {stop.rounds: 10}",
        f"grid: {{channel.bandwidth_hz: {bandwidths}}}",
        "seeds: 100",
    ]
    path.write_text("\n".join([*lines, "target: {accuracy: 0.5}"]), encoding="utf-8")
    return runs_of(path)


def around_s(runs: int, folder: Path) -> tuple[float, float]:
    """Processor time until the first of many runs starts, and of a sweep that finds all finished and writes tables."""
    started_s, first_s = time.process_time(), 0.0
    loaded, out = study_of(runs, folder), folder / f"out{runs}"

    def none(jobs: Sequence[Job]) -> Generator[Event, None, None]:
        nonlocal first_s
        first_s = time.process_time() - started_s
        yield from ()

    sweep(loaded, out, none)
    run = folder / "run"
    if not run.exists():
        attempted(Job(loaded[0].scenario, "run", run, None, False, loaded[0].study.limits))
    for copy in loaded:
        shutil.copytree(run, out / "runs" / copy.name, copy_function=os.link)
    started_s = time.process_time()
    assert len(sweep(loaded, out, none).done) == runs
    return first_s, time.process_time() - started_s


def test_many_cells_cost_as_much_more_as_they_are_more(tmp_path: Path) -> None:
    """Four times as many runs take at most six times as long to start, and to be found finished and tabled."""
    few, many = (around_s(runs, tmp_path) for runs in (2500, 10_000))

    print(
        f"10,000 runs: {many[0]:.1f} s until the first starts, {many[1]:.1f} s to check all files and write the tables"
    )
    assert many[0] < 6 * few[0]
    assert many[1] < 6 * few[1]

"""Speed of a sweep: cells per hour of two workers against one."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fednet_emu.study.cells import load_study
from fednet_emu.study.local import run_locally
from fednet_emu.study.sweep import sweep

CELLS = 6


def cells_per_hour(out: Path, workers: int) -> float:
    """Host speed of a part of the example study; the first call of a process also starts the server of processes."""
    study = load_study("quickstart_access", ["stop.rounds=60"])
    loaded = replace(study, cells=study.cells[:CELLS])
    started_s = time.perf_counter()
    progress = sweep(loaded, out, lambda tasks: run_locally(tasks, workers))
    assert len(progress.done) == CELLS
    return CELLS / (time.perf_counter() - started_s) * 3600


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_two_workers_are_nearly_twice_as_fast(tmp_path: Path) -> None:
    """On two idle cores two workers finish at least 1.7 times as many cells per hour as one."""
    study = load_study("quickstart_access", ["stop.rounds=1"])
    sweep(replace(study, cells=study.cells[:1]), tmp_path / "warm", lambda tasks: run_locally(tasks, 1))

    one, two = (cells_per_hour(tmp_path / str(workers), workers) for workers in (1, 2))

    print(f"{one:.0f} cells per hour with one worker, {two:.0f} with two: {two / one:.2f} times")
    assert two >= 1.7 * one

"""Whole emulated runs with two workers against one process, and against the best loops by hand: needs two free cores.

All are programs that wait for their turn. `python -m pytest -s benchmarks/test_whole_runs.py` prints milliseconds per
round, the ratios, and the memory of all processes of each, where pages that they share count once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

import numpy as np
import pytest
from legs import program, rounds_per_s
from peers.memory import Tree
from peers.workloads import write_data
from whole_run import BY_HAND, EMULATED

SCRIPT, TURNS = Path(__file__).parent / "whole_run.py", 5


class Bounds(NamedTuple):
    """What is asked of two workers: the largest multiple of the time of loops by hand, the least gain, and memory."""

    rounds: int
    of_two_processes: float
    of_two_threads: float
    gain: float
    memory: float


BOUNDS = {
    "W1": Bounds(20, 1.6, 1.8, 1.15, 0.95),
    "W2": Bounds(10, 1.25, 1.35, 1.3, 0.95),
    "W3": Bounds(2, 1.15, 1.2, 1.45, 1.05),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples of all workloads."""
    made = tmp_path_factory.mktemp("samples")
    write_data(made)
    return made


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("workload", BOUNDS)
def test_two_workers_against_one_process_and_loops_by_hand(workload: str, folder: Path) -> None:
    """Network, clock, ledger and training take at most so many times what the arithmetic alone takes by hand.

    Ratios are medians over the turns, in which everybody plays the same number of rounds.
    """
    wanted, ways = BOUNDS[workload], (*BY_HAND, *EMULATED)
    with ExitStack() as stack:
        given = ("--rounds", wanted.rounds, "--legs", 1 + TURNS)  # the first one is for warming up
        programs = {way: stack.enter_context(program(SCRIPT, workload, way, folder, *given)) for way in ways}
        turns = [in_turn(programs) for _ in range(TURNS)][1:]
        memory_mb = {way: memory_byte(own.pid) / 1e6 for way, own in programs.items()}
        turns.append(in_turn(programs))
    print(f"\n{workload}, a round: " + ", ".join(f"{way} {np.median(of(way, turns)):.1f} ms" for way in ways))
    print("memory: " + ", ".join(f"{way} {memory_mb[way]:.0f} MB" for way in ways))
    times = {way: float(np.median(of("two-workers", turns) / of(way, turns))) for way in ways}
    print("two workers take " + ", ".join(f"{times[way]:.2f} times {way}" for way in ways if way != "two-workers"))

    assert times["two-processes-by-hand"] < wanted.of_two_processes
    assert times["two-threads-by-hand"] < wanted.of_two_threads
    assert 1 / times["one-process"] > wanted.gain
    assert memory_mb["two-workers"] < wanted.memory * memory_mb["two-processes-by-hand"]


def in_turn(programs: Mapping[str, Popen[str]]) -> dict[str, float]:
    """The milliseconds per round of each in a leg, one after the other."""
    return {way: 1e3 / rounds_per_s(own)[0][0] for way, own in programs.items()}


def of(way: str, turns: list[Mapping[str, float]]) -> np.ndarray:
    """The milliseconds per round of one way in each turn."""
    return np.array([turn[way] for turn in turns])


def memory_byte(pid: int) -> int:
    """The proportional set sizes of a process and all that it has started."""
    tree = Tree(pid)
    tree.look()
    return tree.peak_byte

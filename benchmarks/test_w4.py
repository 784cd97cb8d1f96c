"""Speed of asynchronous training, with network, clock and records: alone, side by side, and by either engine."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from subprocess import Popen

import numpy as np
import pytest
import torch
from legs import program, rounds_per_s
from w4 import algorithm, federation

SCRIPT = Path(__file__).parent / "w4.py"
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
STEPS, LEGS = 3000, 6


def emulation(cores: Sequence[int], *options: str) -> AbstractContextManager[Popen[str]]:
    """A process that runs an emulation on the cores it is given, leg by leg."""
    return program(SCRIPT, "--cores", *cores, "--legs", LEGS, "--steps", STEPS, *options)


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores that may be chosen")
@pytest.mark.parametrize("pinned", [True, False], ids=["a core each", "a thread each"])
def test_two_emulations_side_by_side(pinned: bool) -> None:
    """Each of two emulations on two cores keeps at least 80 % of the speed of one alone on one core.

    It holds when each is given a core, and when each trains in one thread and the system deals both out. Processor time
    is compared: it contains what they spend spinning and waiting for memory, and not what a third program takes.
    """
    one, two = ([CORES[0]], [CORES[1]]) if pinned else (CORES[:2], CORES[:2])
    with ExitStack() as stack:
        alone = stack.enter_context(emulation([CORES[0]]))
        pair = [stack.enter_context(emulation(cores, "--threads", "1")) for cores in (one, two)]
        turns = [(*rounds_per_s(alone), *rounds_per_s(*pair)) for _ in range(LEGS)]
    walls, processors = np.array(turns[1:]).max(axis=0).T
    print(
        f"\nsteps/s alone on one core, and two side by side: {walls.round()}; by processor time: {processors.round()}"
    )

    assert min(processors[1:]) > 0.8 * processors[0]


def test_engines_agree() -> None:
    """After 5,000 steps of the server both engines come to the same model within 1e-5, in wavefronts of 50 and more."""
    print()
    models = {}
    for engine in ("serial", "batched"):
        fed = federation(5000, f"training.engine={engine}")
        started_s = time.perf_counter()
        models[engine] = fed.graph.read(fed.run(algorithm()))
        spent_s = time.perf_counter() - started_s
        wavefront = fed.graph.statistics.mean_wavefront
        print(f"{engine}: {5000 / spent_s:,.0f} steps/s, {wavefront:.0f} jobs per wavefront")
        assert wavefront > 50
    serial, batched = models["serial"], models["batched"]

    assert isinstance(serial, torch.Tensor)
    assert float((batched - serial).norm() / serial.norm()) < 1e-5

"""Gain of computing each learning program once, and cost of a run without known results."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest

from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.play import play
from fednet_emu.scenario.model import Scenario

WORKLOADS = Path(__file__).with_name("peers") / "scenarios"
SYNTHETIC = ("data={kind: synthetic, features: [1, 28, 28], n_samples: 60000, n_test: 10000}", "partition=iid")
ALONE = ("training.workers=1", "training.threads=1")
LONG = {"W1": 150, "W2": 80, "W3": 10}
"""Rounds of a run of five seconds or more; in a shorter run, noise decides."""
ROUNDS = os.environ.get("FEDNET_BENCH_ROUNDS", "30")
NETWORKS = [
    [f"network.uplink.access={access}", f"channel.bandwidth_hz={bandwidth}"]
    for access in ("tdma", "ofdma")
    for bandwidth in ("1e6", "2e6", "4e6", "8e6")
]


def scenario(name: str, *settings: str, reuse: bool = True) -> Scenario:
    """A workload of the peers on synthetic data of MNIST's size."""
    return load_scenario(
        WORKLOADS / f"{name}.yaml", [*SYNTHETIC, *ALONE, *settings, f"training.reuse={str(reuse).lower()}"]
    )


def taken_s(scenarios: Sequence[Scenario], store: Path, *, timing_only: bool = False) -> float:
    """Processor time of runs one after the other, in s."""
    started = time.process_time()
    for each in scenarios:
        play(each, "bench", None, store=store, timing_only=timing_only)
    return time.process_time() - started


@pytest.mark.parametrize("name", ["W1", "W2", "W3"])
def test_a_run_that_finds_nothing(name: str, tmp_path: Path) -> None:
    """By turns, the shortest of seven runs: at most 2 % longer than with --no-reuse."""
    rounds = f"stop.rounds={LONG[name]}"
    spent_s: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(8):
        for reuse in (turn % 2 == 0, turn % 2 == 1):  # either goes first, as the second may find warm caches
            spent_s[reuse].append(taken_s([scenario(name, rounds, reuse=reuse)], tmp_path / str(turn)))
    known, without = spent_s[True][1:], spent_s[False][1:]
    ratio = min(known) / min(without)  # medians of the ratios vary by 3 % on a shared host
    of_turns = median(one_s / other_s for one_s, other_s in zip(known, without, strict=True))
    print(f"\n{name}, nothing known: {ratio:.3f} of the time without reuse, median of the turns {of_turns:.3f}")
    assert ratio <= 1.02


def test_a_study_of_networks(tmp_path: Path) -> None:
    """Eight networks of the McMahan CNN, ten of 100 clients: at most 1/6 of the time with --no-reuse.

    A cached run takes at most 1.3 times its timing-only run.
    """
    settings = [[*own, f"stop.rounds={ROUNDS}", "evaluation.every_rounds=10"] for own in NETWORKS]
    once_s = taken_s([scenario("W3", *own) for own in settings], tmp_path)
    alone_s = taken_s([scenario("W3", *own, reuse=False) for own in settings], tmp_path)
    ratios = []
    for own in settings[1:]:
        known_s = taken_s([scenario("W3", *own)], tmp_path)
        timing_s = taken_s([scenario("W3", *own)], tmp_path, timing_only=True)
        ratios.append(known_s / timing_s)
    shutil.rmtree(tmp_path)
    print(
        f"\n8 networks: {once_s:.1f} s, without reuse {alone_s:.1f} s; a cached run takes {median(ratios):.2f} "
        "of its timing-only run (median of seven)"
    )
    assert once_s <= alone_s / 6
    assert median(ratios) <= 1.3

"""What compression and selection cost in host time at a thousand devices, as a ratio within one run."""

from __future__ import annotations

import statistics
import time

import pytest

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario

THOUSAND = (
    "devices.count=1000",
    "data={kind: synthetic, n_samples: 40000, n_test: 1000, features: 64}",
    "partition=iid",
    "model={kind: mlp, hidden: [64]}",
    "algorithm={kind: fedavg, cohort: 100, lr: 0.1, batch_size: 20, local_epochs: 5}",
    "stop={rounds: 10}",
    "evaluation.every_rounds=5",
    "training.threads=1",
)
REPEATS = 5
HALF = {
    "qsgd": "network.uplink.compression=qsgd",
    "top-k": "network.uplink.compression={kind: top-k, share: 0.1}",
    "oort": "algorithm.selection=oort",
    "power-of-choice": "algorithm.selection=power-of-choice",
    "batteries": "devices.battery={capacity_j: 1000}",
    "over the air": "network.uplink.access=over-the-air",
}
"""Parts of the uplink that leave half the speed at least."""
PLANNED = "network.uplink.access=planned"
"""Solves a problem of a hundred devices before each round, which is more work than training them so shortly."""


def run_s(*settings: str) -> float:
    """Processor time of ten rounds in s, building and reading of files left out."""
    scenario = load_scenario("quickstart", [*THOUSAND, *settings])
    fed = build(scenario)
    started_s = time.process_time()
    fed.run(scenario.algorithm)
    return time.process_time() - started_s


def speeds(*settings: str) -> float:
    """Median over interleaved pairs of runs: the speed with these settings over that without."""
    return statistics.median(run_s() / run_s(*settings) for _ in range(REPEATS))


@pytest.mark.parametrize("name", HALF)
def test_what_each_part_costs(name: str) -> None:
    """A part of the uplink that is used leaves at least half the speed."""
    ratio = speeds(HALF[name])
    print(f"\n{name}: {ratio:.2f} of the speed without")
    assert ratio > 0.5


def test_compression_and_selection_together() -> None:
    """QSGD with Oort's selection runs at least at half the speed of neither."""
    ratio = speeds(HALF["qsgd"], HALF["oort"])
    print(f"\nqsgd and oort: {ratio:.2f} of the speed without")
    assert ratio > 0.5


def test_planned_rounds() -> None:
    """A plan for a hundred devices takes no longer than four times what else there is to do in such a round."""
    ratio = speeds(PLANNED)
    print(f"\nplanned: {ratio:.2f} of the speed without")
    assert ratio > 0.2

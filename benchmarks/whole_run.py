"""A workload of `peers/`, to be timed: a whole emulated run, or the best loop by hand, which is arithmetic alone.

    python benchmarks/whole_run.py W1 two-workers FOLDER

FOLDER holds the samples, as `peers.workloads.write_data` leaves them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from legs import Legs
from peers import loops
from peers.contestants.reference import Loop, Processes, Threads
from peers.models import build_model
from peers.workloads import WORKLOADS, Workload, load_data
from torch import Tensor

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario

SCENARIOS = Path(__file__).parent / "peers" / "scenarios"
EMULATED = {
    "one-process": ["training.workers=1", "training.threads=1"],
    "two-threads": ["training.workers=1", "training.threads=2"],
    "two-workers": ["training.workers=2"],
}
BY_HAND = ("one-thread-by-hand", "two-threads-by-hand", "two-processes-by-hand")


def emulate(workload: Workload, settings: list[str], folder: Path, legs: Legs) -> None:
    """Network, clock, ledger and training."""
    path = SCENARIOS / f"{workload.name}.yaml"
    scenario = load_scenario(path, [f"stop.rounds={legs.rounds * legs.legs}", *settings])
    fed = build(scenario, data_dir=folder)
    fed.observers.append(legs)
    legs.start()
    fed.run(scenario.algorithm)
    stayed = [choice for choice in fed.graph.engine.choices if "main process" in choice]
    assert not stayed, stayed


def by_hand(workload: Workload, way: str, folder: Path, legs: Legs) -> None:
    """Draw batches, train, average; with two processes, the next batches are drawn while they train."""
    torch.set_num_threads(1)
    data, model, rng = load_data(workload, folder), build_model(workload.model), np.random.default_rng(1)
    x, y = torch.from_numpy(data.x).flatten(0, 1), torch.from_numpy(data.y).flatten()
    best: Loop = loops.Lean if workload.model == "cnn" else loops.Analytic
    given, w = (model, x, y, workload.lr), loops.flat(model)

    def draw() -> Tensor:
        return loops.draw_batches(workload, rng)[1]

    if way == "two-processes-by-hand":
        with Processes(best, *given) as processes:
            rows = draw()

            def train() -> None:
                nonlocal w, rows
                processes.start(w, rows)
                rows = draw()
                w = processes.mean()

            play(train, legs)
    else:
        loop = Threads(best, *given) if way == "two-threads-by-hand" else best(*given)

        def train_here() -> None:
            nonlocal w
            w = loop.round(w, draw())

        play(train_here, legs)


def play(train: Callable[[], None], legs: Legs) -> None:
    """Call what trains a round, leg by leg."""
    for _ in range(legs.legs):
        legs.start()
        for _ in range(legs.rounds):
            train()
        legs.end()


def main() -> None:
    """One of them, leg by leg."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("way", choices=(*EMULATED, *BY_HAND))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10, help="of each leg")
    parser.add_argument("--legs", type=int, default=2)
    given = parser.parse_args()
    workload, legs = WORKLOADS[given.workload], Legs(given.rounds, given.legs)
    if given.way in EMULATED:
        emulate(workload, EMULATED[given.way], given.folder, legs)
    else:
        by_hand(workload, given.way, given.folder, legs)


if __name__ == "__main__":
    main()

"""An asynchronous emulation of 1000 workers, to be timed: server steps per host second on the cores it is given.

    python benchmarks/w4.py                        # all cores
    python benchmarks/w4.py --cores 1 --runs 3     # one emulation after the other on core 1

It is W4 of `peers/`, on synthetic samples of the same shape. When a run is ready it says so, and waits for a line of
input: whoever runs several side by side gives them one signal. Then it prints its steps per second.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from peers.asynchronous import Asynchronous
from peers.contestants.reference import MIXING
from peers.workloads import WORKLOADS

from fednet_emu.federation.federation import Federation
from fednet_emu.scenario.emulation import build
from fednet_emu.scenario.load import load_scenario

SCENARIO = Path(__file__).parent / "peers" / "scenarios" / "W4.yaml"
SAMPLES = "data={kind: synthetic, features: 784, classes: 10, n_samples: 60000, n_test: 100}"
READY = "ready"


def federation(steps: int, *settings: str) -> Federation:
    """A federation that is ready to run for so many steps of the server."""
    return build(load_scenario(SCENARIO, [SAMPLES, "partition=iid", f"stop.rounds={steps}", *settings]))


def run(fed: Federation) -> float:
    """Run it, read the final model, and give the host seconds that both took."""
    started_s = time.perf_counter()
    fed.graph.read(fed.run(Asynchronous(lr=WORKLOADS["W4"].lr, mixing=MIXING)))
    return time.perf_counter() - started_s


def main() -> None:
    """Some runs, each at a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, nargs="+", help="the cores it is held to")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=1)
    given = parser.parse_args()
    if given.cores is not None:
        os.sched_setaffinity(0, given.cores)
    for _ in range(given.runs):
        fed = federation(given.steps)
        print(READY, flush=True)
        input()
        spent_s = run(fed)
        print(given.steps / spent_s, flush=True)


if __name__ == "__main__":
    main()

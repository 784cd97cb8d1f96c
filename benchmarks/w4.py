"""An asynchronous emulation of 1000 workers, to be timed: server steps per host second on the cores it is given.

    python benchmarks/w4.py                        # all cores
    python benchmarks/w4.py --cores 1 --legs 3     # held to core 1

It is W4 of `peers/`, on synthetic samples of the same shape, played leg by leg as `legs.py` says.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from legs import Legs
from peers.asynchronous import Asynchronous
from peers.contestants.reference import MIXING
from peers.workloads import WORKLOADS

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario
from fednet_emu.federation.federation import Federation

SCENARIO = Path(__file__).parent / "peers" / "scenarios" / "W4.yaml"
SAMPLES = "data={kind: synthetic, features: 784, classes: 10, n_samples: 60000, n_test: 100}"


def federation(steps: int, *settings: str) -> Federation:
    """A federation that is ready to run for so many steps of the server."""
    return build(load_scenario(SCENARIO, [SAMPLES, "partition=iid", f"stop.rounds={steps}", *settings]))


def algorithm() -> Asynchronous:
    """What the server does."""
    return Asynchronous(lr=WORKLOADS["W4"].lr, mixing=MIXING)


def main() -> None:
    """One run, leg by leg."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, nargs="+", help="the cores it is held to")
    parser.add_argument("--threads", type=int, help="that train; all cores by default")
    parser.add_argument("--steps", type=int, default=5000, help="of each leg")
    parser.add_argument("--legs", type=int, default=2)
    given = parser.parse_args()
    if given.cores is not None:
        os.sched_setaffinity(0, given.cores)
    settings = [] if given.threads is None else [f"training.threads={given.threads}"]
    fed, legs = federation(given.steps * given.legs, *settings), Legs(given.steps, given.legs)
    fed.observers.append(legs)
    legs.start()
    fed.run(algorithm())


if __name__ == "__main__":
    main()

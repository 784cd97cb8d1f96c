"""Digests of the shipped scenarios, to see which of them a change alters: `python tools/digests.py > before.txt`.

Plays every file of scenarios/, cut to a few rounds, and prints a line `name digest simulated_s` for each: the digest of
its events and the simulated time. Only scenarios whose events depend on what is learnt are trained. A scenario whose
data or library are not here gets the line `name skipped: reason`; FEDNET_DATA names the folder with data.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import fednet_emu as fe
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import FednetError

SCENARIOS = Path(__file__).parents[1] / "scenarios"


def line(path: Path, rounds: int) -> str:
    """What is printed of one scenario."""
    scenario = load_scenario(path, [f"stop={{rounds: {rounds}}}", "training.device=cpu"])
    try:
        run = fe.run(scenario, timing_only=not scenario.events_depend_on_learning, progress=False)
    except FednetError as error:
        return f"{path.stem} skipped: {' '.join(str(error).split())}"
    return f"{path.stem} {run.digest} {run.summary['simulated_s']:.9g}"


def main() -> None:
    """Print a line for each scenario, or for those that are named."""
    parser = argparse.ArgumentParser(description="Print the digests of the shipped scenarios, cut to a few rounds.")
    parser.add_argument("names", nargs="*", help="scenarios; all by default")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each; %(default)s by default")
    chosen = parser.parse_args()
    paths = [SCENARIOS / f"{name}.yaml" for name in chosen.names] or sorted(SCENARIOS.glob("*.yaml"))
    for path in paths:
        print(line(path, chosen.rounds), flush=True)


if __name__ == "__main__":
    main()

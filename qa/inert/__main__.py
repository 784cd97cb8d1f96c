"""The sweep from the command line: `python -m qa.inert --seeds 200`; exit code 1 if a key is found to be inert."""

from __future__ import annotations

import argparse
import sys

from qa.inert.keys import labels
from qa.inert.sweep import Sweep, known, unexplained

DRAWN = 6
"""Scenarios of which the one with most open keys is changed."""


def main() -> int:
    """Sweep over the scenarios of the seeds, and print which keys act, which are refused, and which change nothing."""
    parser = argparse.ArgumentParser(prog="python -m qa.inert", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many scenarios are changed")
    parser.add_argument("--first", type=int, default=0, help="the first one; for each, others are drawn")
    options = parser.parse_args()
    sweep, exceptions = Sweep(), known()
    for seed in range(options.first, options.first + options.seeds):
        sweep.look_at(range(DRAWN * seed, DRAWN * (seed + 1)))
        print(f"{seed}: {len(sweep.acting)} keys act", file=sys.stderr)
    found = unexplained(sweep.inert, exceptions)
    lists = {
        "never met": sweep.never_met,
        "always refused": sweep.always_refused,
        "changed nothing yet, in few scenarios": unexplained(sweep.undecided, exceptions),
        "known exceptions that changed nothing": [its for its in sweep.inert if its not in found],
        "known exceptions that act": [label for label in exceptions if label in sweep.acting],
        "scenarios left out, as they take long": sweep.left_out,
        "broken": sweep.broken,
        "INERT": found,
    }
    for title, those in lists.items():
        print(f"{title} ({len(those)}):", *those, sep="\n  ")
    print(f"{len(sweep.acting)} of {len(set(labels()))} keys act")
    return 1 if found or sweep.broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""The swarm from the command line: `python -m tests.swarm --seeds 1000 --first 0`; exit code 1 if a law is broken."""

from __future__ import annotations

import argparse
import sys

from tests.swarm.report import Report
from tests.swarm.shrink import shrunk, told
from tests.swarm.trial import tried


def main() -> int:
    """Try the seeds one after the other, print each failure with its smallest scenario, and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.swarm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one; the others follow")
    parser.add_argument("--no-shrink", action="store_true", help="print failing scenarios as they were drawn")
    options = parser.parse_args()
    report = Report()
    for seed in range(options.first, options.first + options.seeds):
        trial = tried(seed)
        report.add(trial)
        for failure in trial.failures:
            small = trial.settings if options.no_shrink else shrunk(trial.settings, failure.law)
            print(told(seed, failure, small), flush=True)
    print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())

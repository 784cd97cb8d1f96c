"""The swarm from the command line: `python -m qa.swarm --seeds 1000 --first 0`.

The exit code is 1 if a law is broken or a seed hangs: its process then ends, and prints the stack of each thread.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from fednet_emu.host import end_with_parent
from qa.swarm.judge import OF_THEIR_OWN
from qa.swarm.report import Report
from qa.swarm.shrink import shrunk, told
from qa.swarm.trial import Trial, watched, watched_trials

KEEP_EVERY = 50


def main() -> int:
    """Try the seeds, print each failure with its smallest scenario, and report."""
    parser = argparse.ArgumentParser(prog="python -m qa.swarm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one; the others follow")
    parser.add_argument("--workers", type=int, default=1, help="processes; what is found does not depend on it")
    parser.add_argument("--keep", type=Path, help="file of the sums, with which a stopped swarm goes on")
    parser.add_argument("--no-shrink", action="store_true", help="print failing scenarios as they were drawn")
    options = parser.parse_args()
    report = Report.read(options.keep) if options.keep else Report()
    seeds = range(options.first + report.seeds, options.first + options.seeds)
    for seed, found in zip(seeds, _trials(seeds, options.workers), strict=True):
        for trial in found:
            report.add(seed, trial)
            for failure in trial.failures:
                drawn = options.no_shrink or failure.law in OF_THEIR_OWN
                print(f"seed {seed} breaks the law: {failure.law}", file=sys.stderr, flush=True)
                with watched():
                    small = trial.settings if drawn else shrunk(trial.settings, failure.law)
                print(told(seed, failure, small), flush=True)
        if report.seeds % KEEP_EVERY == 0 or seed == seeds[-1]:
            print(f"{report.seeds} of {options.seeds} seeds, {report.failures.total()} failures", file=sys.stderr)
            if options.keep:
                report.write(options.keep)
    print(report)
    return 1 if report.failures else 0


def _trials(seeds: range, workers: int) -> Iterator[list[Trial]]:
    """The trials of each seed, in their order; the first seed that is missing is the one that has ended its process."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        found = pool.map(watched_trials, seeds)
        for seed in seeds:
            try:
                yield next(found)
            except BrokenProcessPool:
                raise SystemExit(f"seed {seed} has hung, or has ended its process; what it was at is above") from None


if __name__ == "__main__":
    sys.exit(main())

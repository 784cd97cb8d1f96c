"""Mutation testing from the command line: `python -m qa.mutants --seed 0 --count 1500`; a stopped draw goes on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest

from qa.mutants.faults import ROOT, Mutant, drawn
from qa.mutants.journal import Journal, end_of, table
from qa.mutants.lines import Coverage, test_files
from qa.mutants.trial import Trials

ABOUT = """# Mutation testing

`make mutants SEED={seed} COUNT={count}`: faults drawn by seed, spread over the packages, put in one at a time. They are
made inside functions by the operators of mutmut. Left out are types, decorators, default values and declarations,
docstrings and prose, raised errors and f-strings, the calls `assert_never`, `cast`, `isinstance` and `len`, and the
argument `strict`. Each fault meets the tests that run its line, nearest and quickest first, up to 10 s of tests of at
most 2 s. Those that no test can kill are listed, with the reason, in `qa/mutants/equivalent.toml`. Tried so far:
{tried} of {count}.

{table}
"""
"""The report."""


def main() -> int:
    """Draw mutants, try those that the journal does not know, name each survivor, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m qa.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=1500, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the draw; a longer draw begins with a shorter one")
    parser.add_argument("--only", default="", help="folder or file in fednet_emu, such as kernel")
    parser.add_argument("--keep", type=Path, default=ROOT / "results/mutants", help="folder of the journal")
    parser.add_argument("--again", action="store_true", help="try the survivors again, and nothing else")
    parser.add_argument("--report", type=Path, help="try nothing; write the table to this file")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.keep / "journal.jsonl")
    mutants = drawn(options.seed, options.count, options.only)
    if not options.report:
        due = "survived" if options.again else "open"
        _try([mutant for mutant in mutants if end_of(journal.entries.get(mutant.name)) == due], journal, options.keep)
    tried = sum(mutant.name in journal.entries for mutant in mutants)
    text = ABOUT.format(seed=options.seed, count=options.count, tried=tried, table=table(mutants, journal))
    if options.report:
        options.report.write_text(text)
    print(text)
    return 0


def _try(mutants: list[Mutant], journal: Journal, keep: Path) -> None:
    left = len(mutants)

    def tell(mutant: Mutant, end: dict[str, Any]) -> None:
        nonlocal left
        left -= 1
        entry = journal.add(mutant, end)
        if end_of(entry) == "survived":
            print(f"{mutant.file}:{mutant.line} {mutant.function} survived {entry['tests']} tests", flush=True)
            print(f"    {entry['before']}\n    {entry['after']}", flush=True)
        if left % 50 == 0:
            print(f"{left} mutants to go", file=sys.stderr, flush=True)

    quiet = ["-q", "-s", "-m", "not slow", "-p", "no:cacheprovider"]
    pytest.main([*quiet, *map(str, test_files())], plugins=[Trials(mutants, Coverage(keep / "lines.json"), tell)])


if __name__ == "__main__":
    sys.exit(main())

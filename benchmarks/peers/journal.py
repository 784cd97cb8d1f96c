"""The runs of a comparison, written down one by one, so that one that was broken off can go on."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Run = Mapping[str, Any]
WHO = ("workload", "kind", "contestant", "repeat")
WHAT = ("round_s", "learning_s", "peak_mb", "steps", "loss", "threads", "mean_wavefront", "version", "jax", "python")
OTHERS = "others_cores"
"""The column with the mean number of cores that others kept busy meanwhile."""
DISTURBED = 0.25
"""So much of a core taken by others spoils a run; what is not seen of a peer's short-lived processes is less."""
FAILED = "failed"
"""The column that says why a run has no figures; empty for those that have."""
_TEXT = (*WHO[:3], "version", "jax", "python", FAILED)
_COUNTS = ("repeat", "steps", "threads")


class Journal:
    """Runs in a table on disk, each added when it is over.

    Attributes:
        runs: all of them, in the order of the table.

    Args:
        path: the table.
        resume: whether to keep the good runs that are there; those that failed or were disturbed are dropped, to be
            tried again.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.runs: list[Run] = [run for run in read(path) if is_good(run)] if resume and path.is_file() else []
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, (*WHO, *WHAT, OTHERS, FAILED), extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.runs)

    def __contains__(self, who: tuple[str, str, int]) -> bool:
        """Whether a workload was run by a contestant in a repeat."""
        return any((run["workload"], run["contestant"], run["repeat"]) == who for run in self.runs)

    def add(self, run: Run) -> None:
        """Write down a run."""
        self.runs.append(run)
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, (*WHO, *WHAT, OTHERS, FAILED), extrasaction="ignore", lineterminator="\n").writerow(
                run
            )


def is_good(run: Run) -> bool:
    """Whether a run ended well, and had the machine to itself."""
    return FAILED not in run and run.get(OTHERS, 0.0) < DISTURBED


def read(path: Path) -> list[Run]:
    """The runs of a table, with figures as numbers; what a run does not have is left out."""
    with path.open(newline="") as file:
        return [{name: _value(name, text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def _value(name: str, text: str) -> str | int | float:
    if name in _TEXT:
        return text
    return int(text) if name in _COUNTS else float(text)

"""Compare published numbers with numbers of this emulator, within tolerances that were set before the comparison.

The file `scenarios/papers/published.csv` contains the published numbers, their sources and their tolerances. For each
paper, a program in the same folder has a function `ours`, which computes our numbers. Published arrays without a
licence are not copied into this package. They are read from the user's clone of the repository that contains them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd

from fednet_emu.errors import FednetError, did_you_mean
from fednet_emu.files.writing import write_text

PAPERS = ("adaptive-tau", "fedl", "completion-time", "analog-aggregation", "joint-learning")
"""Papers whose numbers are compared. The program of a paper has the name of the paper, for example `adaptive_tau.py`.
"""
COLUMNS = ("setting", "published", "source", "ours", "difference", "tolerance", "verdict", "command")
MET, NOT_MET, NOT_COMPARABLE = "met", "not met", "not comparable"
_NOISE = 1e-9


class Sources(NamedTuple):
    """Folders with the inputs of a comparison: the user's clone of a paper's repository, and the data folder.

    If the data folder is None, the value of the environment variable FEDNET_DATA is used.
    """

    clone: Path | None = None
    data_dir: Path | None = None

    def need(self, repository: str, *files: str) -> Path:
        """Return the folder with the user's clone of the GitHub repository `repository` (`owner/name`).

        Raises:
            FednetError: the user has not given the folder, or it lacks one of `files`.
        """
        missing = [file for file in files if self.clone is None or not (self.clone / file).is_file()]
        if self.clone is None or missing:
            lacks = "" if self.clone is None else f", which lacks {missing[0]}"
            what = f"needs a clone of https://github.com/{repository}, whose files have no licence"
            raise FednetError(f"reproduce: {what}, got {self.clone}{lacks}; give its folder by --clone")
        return self.clone


def compared(paper: str, sources: Sources = Sources()) -> pd.DataFrame:  # noqa: B008  # a constant
    """Return a table with the columns `COLUMNS` and one row for each published number or claim of a paper.

    Raises:
        FednetError: the paper is unknown, or an input of the paper's program is missing.
    """
    if paper not in PAPERS:
        what = f"no such paper, got {paper}; known are {', '.join(PAPERS)}{did_you_mean(paper, PAPERS)}"
        raise FednetError(f"reproduce: {what}")
    printed = pd.read_csv(folder() / "published.csv", dtype=str, keep_default_na=False)
    printed = printed[printed["paper"] == paper]
    values: Mapping[str, float] = program(paper).ours(sources)
    rows = [_row(row, values) for row in printed.to_dict("records")]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def folder() -> Path:
    """Return the folder of the programs and of `published.csv`, in the package or in the source checkout."""
    package = Path(__file__).resolve().parents[1]
    inside, around = package / "library/scenarios/papers", package.parent / "scenarios/papers"
    return inside if inside.is_dir() else around


def program(paper: str) -> ModuleType:
    """Import the program that computes our numbers for a paper, and return it as a module."""
    path = folder() / f"{paper.replace('-', '_')}.py"
    name = f"fednet_paper_{path.stem}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def _row(row: Mapping[Any, str], values: Mapping[str, float]) -> tuple[str, ...]:
    """Return a row of the table of a paper, which compares a published number (in `row`) with ours (in `values`)."""
    ours = values[row["key"]]
    difference, verdict = judged(row["check"], row["published"], ours, row["tolerance"])
    setting = f"{row['setting']} ({row['unit']})" if row["unit"] else row["setting"]
    texts = (row["published"], row["source"], number(ours), difference, f"{row['check']} {row['tolerance']}".strip())
    return (setting, *texts, verdict, row["command"])


def judged(check: str, published: str, ours: float, tolerance: str) -> tuple[str, str]:
    """Compare a published number with ours, and return their difference as text and the verdict.

    Args:
        check: the rule of comparison. `within` limits the absolute difference of the two numbers to the tolerance, and
            `relative` limits the relative difference. `at most` and `at least` compare our number with `tolerance`. If
            the rule has another name, the numbers are not comparable.
        published: the published number, or a description in words.
        ours: our number.
        tolerance: the tolerance, as text.
    """
    if check in ("at most", "at least"):
        fits = ours <= float(tolerance) if check == "at most" else ours >= float(tolerance)
        return "", MET if fits else NOT_MET
    if check not in ("within", "relative"):
        return "", NOT_COMPARABLE
    difference = ours - float(published) if check == "within" else ours / float(published) - 1
    fits = abs(difference) <= float(tolerance)  # False for NaN
    return number(difference), MET if fits else NOT_MET


def number(value: float) -> str:
    """Return a number as text with five significant digits.

    If its absolute value is below 1e-9 and not zero, the text is `below 1e-9`, because the value depends on the host.
    """
    if math.isnan(value):
        return "none"
    if value and abs(value) < _NOISE:
        return "below 1e-9"
    return f"{value:.5g}"


def write_compared(paper: str, sources: Sources, out: Path) -> tuple[Path, pd.DataFrame]:
    """Write the table of a paper to the file `out/published/PAPER.csv`.

    The file `counts.csv` in the same folder, which counts the verdicts in all tables, is updated.

    Returns:
        The path of the written file, and the table.
    """
    table = compared(paper, sources)
    path = out / "published" / f"{paper}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, table.to_csv(index=False, lineterminator="\n"))
    tables = {name: pd.read_csv(own) for name in PAPERS if (own := path.with_name(f"{name}.csv")).is_file()}
    write_text(path.with_name("counts.csv"), counts(tables).to_csv(index=False, lineterminator="\n"))
    return path, table


def counts(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a table with the number of comparisons with each verdict, with one row for each paper."""
    rows: list[dict[str, Any]] = [
        {"paper": paper, **{verdict: int((table["verdict"] == verdict).sum()) for verdict in VERDICTS}}
        for paper, table in tables.items()
    ]
    return pd.DataFrame(rows, columns=["paper", *VERDICTS])


VERDICTS = (MET, NOT_MET, NOT_COMPARABLE)

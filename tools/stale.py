"""Reference tables that today's code no longer makes: python tools/stale.py [--cells N] [NAME...].

Plays runs of the first seed in `results/reference/NAME/cells.csv` again without training, to where the row ended, and
compares simulated time, bits and energy with the row, to the digits of the table. A line per study: `as measured`,
`stale` with the columns that changed, or why it was not checked. A study is stale if one of its runs is; the exit code
is then 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import fednet_emu as fe
from fednet_emu.errors import FednetError
from fednet_emu.study.file import StudyFile
from fednet_emu.study.reproduce import DIGITS
from fednet_emu.study.runs import StudyRun, runs_of

REFERENCE = Path(__file__).parents[1] / "results/reference"
EXAMPLES = Path(__file__).parents[1] / "examples"
COMPARED = ("simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "backhaul_bit", "energy_j", "backhaul_j")


def verdict(name: str, cells: int) -> str:
    """What became of a study's table: `as measured`, `stale: ...` or `not checked: ...`.

    Raises:
        FednetError: a library or data that the study needs are not here.
    """
    study, table = (
        StudyFile.read(next(EXAMPLES.glob(f"*/{name}.yaml"), name)),
        pd.read_csv(REFERENCE / name / "cells.csv"),
    )
    runs = [run for run in runs_of(study, ["training.device=cpu"]) if run.scenario.seed == study.all_seeds[0]]
    rows = [(run, row) for run in runs if (row := row_of(run, table)) is not None]
    if not rows:
        return "stale: no run of the study has a row"
    played = [(run, row) for run, row in rows if not run.scenario.events_depend_on_learning]
    if not played:
        return "not checked: its events depend on what is learnt"
    chosen = played[:: max(1, len(played) // cells)][:cells]
    changed = [f"{run.label}: {text}" for run, row in chosen for text in differences(run, row)]
    return f"stale: {'; '.join(changed)}" if changed else "as measured"


def row_of(run: StudyRun, table: pd.DataFrame) -> Mapping[str, float] | None:
    """The row of the table that is of this run; None if there is none."""
    wanted = {**run.columns, "seed": run.scenario.seed}
    for _, row in table.iterrows():
        if all(same(row[name], value) for name, value in wanted.items() if name in table):
            return {str(name): its for name, its in row.items()}
    return None


def same(written: Any, value: Any) -> bool:
    """Whether a table says this value of a column."""
    if isinstance(value, int | float) and isinstance(written, int | float):
        return math.isclose(written, value, rel_tol=2 * 10.0 ** (1 - DIGITS))
    return str(written) == str(value) or (value is None and bool(pd.isna(written)))


def differences(run: StudyRun, row: Mapping[str, float]) -> list[str]:
    """What the run costs otherwise than its row says; it ends where the row's run ended."""
    stop = run.scenario.stop
    by_time = stop.simulated_s is not None and row["simulated_s"] >= stop.simulated_s
    ends = {"rounds": int(row["rounds"]) + by_time, "accuracy": None, "milestones": ()}
    scenario = run.scenario.model_copy(update={"stop": stop.model_copy(update=ends)})
    summary = fe.run(scenario, timing_only=True, progress=False).summary
    pairs = [(name, row[name], summary.get(name)) for name in COMPARED if name in row and not pd.isna(row[name])]
    return [f"{name} {was:g}, now {now:g}" for name, was, now in pairs if now is not None and not same(was, now)]


def main() -> None:
    """Print a line for each study that has a table, or for those that are named."""
    parser = argparse.ArgumentParser(description="Name the reference tables that today's code no longer makes.")
    parser.add_argument("names", nargs="*", help="studies; all by default")
    parser.add_argument("--cells", type=int, default=3, help="runs of each; %(default)s by default")
    chosen = parser.parse_args()
    if chosen.cells < 1:
        parser.error(f"--cells: nothing to play, got {chosen.cells}; give 1 or more")
    names = chosen.names or sorted(path.parent.name for path in REFERENCE.glob("*/cells.csv"))
    found = False
    for name in names:
        try:
            text = verdict(name, chosen.cells)
        except FednetError as error:
            text = f"not checked: {' '.join(str(error).split())}"
        found = found or text.startswith("stale")
        print(f"{name}: {text}", flush=True)
    sys.exit(found)


if __name__ == "__main__":
    main()

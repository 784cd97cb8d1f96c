"""Reference tables that today's code no longer makes: python tools/stale.py [--runs N] [--mend] [NAME...].

Plays runs of the first seed in `results/reference/NAME/runs.csv` again without training, to where the row ended, and
compares simulated time, bits and energy with the row, to the digits of the table. A line per study: `as measured`,
`stale` with the columns that changed, or why it was not checked. A study is stale if one of its runs is; the exit code
is then 1, unless `results/reference/README.md` names it among those of earlier versions. NAME is a study, or the file
of one: `mcmahan_table1/single.csv`; or `published/PAPER`, whose table of published numbers is made again if it needs no
clone.

With `--mend` all rows of a stale table are played, and get the times, bits and energies of today's code; what was
learnt stays, as it does not depend on them. Costs of reaching a target are known where the row says the round, or the
run has ended then.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import fednet_emu as fe
from fednet_emu.errors import FednetError
from fednet_emu.files.writing import csv_text, write_text
from fednet_emu.results.published import PAPERS, compared
from fednet_emu.study.file import StudyFile
from fednet_emu.study.reproduce import DIGITS
from fednet_emu.study.runs import StudyRun, runs_of

REFERENCE = Path(__file__).parents[1] / "results/reference"
EXAMPLES = Path(__file__).parents[1] / "examples"
PEERS = "peers"
"""The folder whose `runs.csv` has runs of other simulators, not of a study."""
Row = Mapping[str, Any]
"""A row of a table by its columns, and its `place` there."""
OLDER = ("before repetition", "before narrowing", "former quickstart")
"""Words of a paragraph of the page about the tables that names tables of earlier versions."""
TO_TARGET = {"time_to_target_s": "simulated_s", "bits_to_target": "total_bit", "energy_to_target_j": "energy_j"}
COMPARED = ("simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "backhaul_bit", "energy_j", "backhaul_j")


def verdict(name: str, count: int, *, mend: bool = False) -> str:
    """What became of a study's table: `as measured`, `stale: ...`, `mended: ...` or `not checked: ...`.

    Raises:
        FednetError: a library or data that the study needs are not here.
    """
    name, _, file = name.partition("/")
    path = REFERENCE / name / (file or "runs.csv")
    study, table = StudyFile.read(next(EXAMPLES.glob(f"*/{name}.yaml"), name)), pd.read_csv(path)
    runs = runs_of(study, ["training.device=cpu"])
    rows = [(run, row) for run in runs if (row := row_of(run, table)) is not None]
    if not rows:
        return "stale: no run of the study has a row"
    played = [(run, row) for run, row in rows if not until(run, 1).events_depend_on_learning]
    if not played:
        return "not checked: its events depend on what is learnt"
    first = [(run, row) for run, row in played if run.scenario.seed == played[0][0].scenario.seed]
    chosen = first[:: max(1, len(first) // count)][:count]
    changed = [f"{run.label}: {text}" for run, row in chosen for text in differences(run, row)]
    if changed and mend:
        if len(played) < len(table):
            return f"stale, and not mended: {len(table) - len(played)} rows are of no run, or depend on what is learnt"
        write_text(path, csv_text(mended(table, played), DIGITS))
    return f"{'mended' if mend else 'stale'}: {'; '.join(changed)}" if changed else "as measured"


def compared_again(paper: str) -> str:
    """What became of a table of published numbers that needs no clone; its command makes it again."""
    path = REFERENCE / "published" / f"{paper}.csv"
    written = pd.read_csv(path, dtype=str, keep_default_na=False)
    now = compared(paper)
    changed = [
        str(row["setting"])
        for row, its in zip(written.to_dict("records"), now.to_dict("records"), strict=True)
        if row != its
    ]
    return f"stale: {'; '.join(changed)}" if changed else "as measured"


def mended(table: pd.DataFrame, played: Sequence[tuple[StudyRun, Row]]) -> pd.DataFrame:
    """The table with the times, bits and energies of today.

    Raises:
        FednetError: other messages arrive now, or a run is ended by its time.
    """
    table = table.copy()
    for run, row in played:
        if by_time(run, row):
            raise FednetError(f"{run.label}: is ended by its time, so that other rounds are learnt now; run it again")
        spent, place = costs(run, int(row["rounds"])), row["place"]
        if any(name in row and not same(row[name], spent[name]) for name in COMPARED if name.endswith("_bit")):
            raise FednetError(f"{run.label}: other messages arrive now, so that other models are learnt; run it again")
        for name in (*COMPARED, "total_bit"):
            if name in table:
                table.loc[place, name] = spent[name]
        at_end = row["rounds"] if row.get("time_to_target_s") == row["simulated_s"] else math.nan
        reached = row.get("rounds_to_target", at_end)
        at = {} if pd.isna(reached) else costs(run, int(reached))
        for name, cost in TO_TARGET.items():
            if name in table:
                table.loc[place, name] = at.get(cost, math.nan)
    return table.dropna(axis="columns", how="all")


def row_of(run: StudyRun, table: pd.DataFrame) -> Row | None:
    """The row of the table that is of this run, with its `place`; None if there is none."""
    wanted = {**run.columns, "seed": run.scenario.seed}
    for place, row in table.iterrows():
        if all(same(row[name], value) for name, value in wanted.items() if name in table):
            return {"place": place, **{str(name): its for name, its in row.items()}}
    return None


def same(written: Any, value: Any) -> bool:
    """Whether a table says this value of a column."""
    if isinstance(value, int | float) and isinstance(written, int | float):
        return math.isclose(written, value, rel_tol=2 * 10.0 ** (1 - DIGITS))
    return str(written) == str(value) or (value is None and bool(pd.isna(written)))


def differences(run: StudyRun, row: Row) -> list[str]:
    """What the run costs otherwise than its row says; it ends where the row's run ended."""
    now = costs(run, int(row["rounds"]) + by_time(run, row))
    pairs = [(name, row[name], now[name]) for name in COMPARED if name in row and not pd.isna(row[name])]
    return [f"{name} {was:g}, now {its:g}" for name, was, its in pairs if not same(was, its)]


def by_time(run: StudyRun, row: Row) -> bool:
    """Whether the run of a row was ended by its simulated time."""
    limit_s = run.scenario.stop.simulated_s
    return limit_s is not None and row["simulated_s"] >= limit_s


def costs(run: StudyRun, rounds: int) -> Mapping[str, float]:
    """What so many rounds of a run take today, by the names of columns."""
    summary = fe.run(until(run, rounds), timing_only=True, progress=False).summary
    spent = {name: float(summary.get(name) or 0.0) for name in COMPARED}
    return spent | {"total_bit": spent["uplink_bit"] + spent["downlink_bit"] + spent["sidelink_bit"]}


def until(run: StudyRun, rounds: int) -> fe.Scenario:
    """The scenario of a run, which ends after so many rounds whatever is learnt."""
    stop = run.scenario.stop.model_copy(update={"rounds": rounds, "accuracy": None, "milestones": ()})
    return run.scenario.model_copy(update={"stop": stop})


def said_to_be_old() -> set[str]:
    """The folders that the text of the page about the tables, above its list, calls older than today's code."""
    text, _, _ = (REFERENCE / "README.md").read_text(encoding="utf-8").partition("\n|")
    parts = [part for part in text.split("\n\n") if any(words in part for words in OLDER)]
    return {name for part in parts for name in re.findall(r"`(\w+)/", part)}


def main() -> None:
    """Print a line for each study that has a table, or for those that are named."""
    parser = argparse.ArgumentParser(description="Name the reference tables that today's code no longer makes.")
    parser.add_argument("names", nargs="*", help="studies, or files of them; all runs.csv by default")
    parser.add_argument("--mend", action="store_true", help="write today's times, bits and energies into stale tables")
    parser.add_argument("--runs", type=int, default=3, help="runs of each; %(default)s by default")
    chosen = parser.parse_args()
    if chosen.runs < 1:
        parser.error(f"--runs: nothing to play, got {chosen.runs}; give 1 or more")
    names = chosen.names or sorted(
        path.parent.name for path in REFERENCE.glob("*/runs.csv") if path.parent.name != PEERS
    )
    names = names if chosen.names else [*names, *(f"published/{paper}" for paper in PAPERS)]
    found, known = False, said_to_be_old()
    for name in names:
        try:
            paper = name.partition("published/")[2]
            text = compared_again(paper) if paper else verdict(name, chosen.runs, mend=chosen.mend)
        except FednetError as error:
            text = f"not checked: {' '.join(str(error).split())}"
        found = found or (text.startswith("stale") and name not in known)
        print(f"{name}: {text}", flush=True)
    sys.exit(found)


if __name__ == "__main__":
    main()

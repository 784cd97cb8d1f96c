"""Result files of a search: tables of the finalists, a table of all trials, and scenario files with the best settings.

The folder of results has the format of a study with the single axis `setting`, whose levels are the remaining
finalists, so that the commands `best`, `compare`, `plot` and `report` can read the folder. In addition, there are
`trials.csv` with one row per tried setting, `search.json` with a summary of the search, and `best/` with scenario
files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.ranked import ENDED
from fednet_emu.analysis.scales import COSTS
from fednet_emu.analysis.searched import SEARCH, TRIALS
from fednet_emu.files.data_folder import checksum
from fednet_emu.files.writing import csv_text, file_errors, write_json, write_text
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.study.search.aim import values_of
from fednet_emu.study.search.proposals import importance
from fednet_emu.study.search.space import SETTING
from fednet_emu.study.search.trials import Dropped, Trial, Trials
from fednet_emu.study.sweep import TABLES, describe, write_tables

BEST = "best"
_WHY = {ENDED: "ended without it", **{cost: f"limit of {cost}" for cost in COSTS}}
"""The text that trials.csv gives for each reason why a run missed the target."""
DIGITS = 9
"""Number of significant digits in trials.csv."""


def write_results(out: Path, trials: Trials, finalists: Sequence[Trial], dropped: Sequence[Dropped]) -> None:
    """Write the results of a search to `out`: tables of all trials and of the finalists, and the dropped finalists."""
    study, parameters = trials.maker.study, trials.parameters
    ended = [trial for trial in trials.all if trials.has_ended(trial)]
    gone = {its.trial.number for its in dropped}
    left = [trial for trial in finalists if trial.number not in gone and trials.has_ended(trial)]
    raced = values_of(trials.aim, list(map(trials.raced, left)))
    left = [left[place] for place in sorted(range(len(left)), key=lambda place: raced[place])]
    places, sweep = [place for trial in left for place in trial.runs.values()], trials.sweep
    write_tables(
        out,
        [sweep.runs[place] for place in places],
        {row: sweep.folder_of[place] for row, place in enumerate(places) if place in sweep.done},
        {row: sweep.failures[place] for row, place in enumerate(places) if place in sweep.failures},
        study.target,
    )
    frame = pd.DataFrame(list(_rows(trials, ended)))
    write_text(out / TRIALS, csv_text(frame, DIGITS))
    _write_best(out / BEST, study.name, left)
    values = values_of(trials.aim, list(map(trials.tried, ended)))
    known = [(trial.point, value) for trial, value in zip(ended, values, strict=True)]
    write_json(
        out / SEARCH,
        {
            "name": study.name,
            "costs": list(trials.aim.costs),
            "limits": dict(trials.aim.limits),
            "target": {trials.aim.measure: trials.aim.level} if trials.aim.measure else {},
            "trials": len(ended),
            "parameters": [parameter.name for parameter in parameters],
            "finalists": [trial.number for trial in left],
            "dropped": [
                {"trial": its.trial.number, "seeds": its.seeds, "p": None if math.isnan(its.p) else its.p}
                for its in dropped
            ],
            "runs": {str(trial.number): _costs(trials, trial) for trial in finalists if trials.has_ended(trial)},
            "importance": importance(parameters, known),
        },
    )
    levels = {SETTING: [trial.label for trial in left]} if left else {}
    describe(study, levels, trials.maker.timing_only, out, {name: checksum(out / name) for name in TABLES})


def _costs(trials: Trials, trial: Trial) -> list[list[float | None]]:
    """Return the costs of each run of a finalist, in ascending order of seeds; None if a run missed the target."""
    return [[cost if math.isfinite(cost) else None for cost in its.costs] for its in trials.raced(trial)]


def _rows(trials: Trials, ended: Sequence[Trial]) -> Iterator[dict[str, Any]]:
    """Yield one table row for each trial: its setting, its outcome, and its mean costs over seeds."""
    names = trials.aim.costs or ("accuracy",)
    sign = 1.0 if trials.aim.costs else -1.0
    for trial in ended:
        runs = trials.tried(trial)
        reached = bool(runs) and all(its.reached for its in runs)
        means = sign * np.mean([its.costs for its in runs], axis=0) if reached else np.full(len(names), math.nan)
        causes = dict.fromkeys(_WHY.get(cause, cause) for its in runs for cause in its.why)
        yield {
            "trial": trial.number,
            SETTING: trial.label,
            **{each.name: trial.columns.get(each.name, "") for each in trials.parameters},
            "runs": len(runs),
            "reached": sum(its.reached for its in runs),
            **dict(zip(names, map(float, means), strict=True)),
            "score": float(np.mean([its.score for its in runs])) if runs else math.nan,
            "why_not": trial.unable or ", ".join(causes),
        }


def _write_best(folder: Path, name: str, left: Sequence[Trial]) -> None:
    """Write the scenarios of the remaining finalists, best first, and remove the scenarios of an earlier search."""
    with file_errors(folder, "written"):
        folder.mkdir(exist_ok=True)
        for path in folder.glob("*.yaml"):
            if path.stem.isdecimal():  # only these names come from a search
                path.unlink()
    for place, trial in enumerate(left, 1):
        if trial.scenario is not None:
            heading = f"# {name}, place {place}: {trial.label}\n"
            write_text(folder / f"{place}.yaml", heading + dump(trial.scenario))

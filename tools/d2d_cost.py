"""The benefit of device-to-device links: costs of reaching a target, relative to those of one setting of the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.statistics import mean_interval
from fednet_emu.analysis.study import StudyRecords
from fednet_emu.files.writing import write_text

PRICES = (0.0, 0.01, 0.1, 0.5)
"""Prices of a push (a transmission between devices), in units of an upload."""
OTHER_COSTS = ("total_bit", "energy_j", "simulated_s")
_PUSHES = ("connectivity", "relaying")
"""Series in which algorithms record the number of their pushes."""


def with_transmissions(view: StudyRecords, folder: Path) -> StudyRecords:
    """Return the study with the columns `uploads` and `pushes` in its evaluations: their numbers up to each evaluation.

    A transmission that is repeated counts once.

    Args:
        view: the study.
        folder: the folder of the study.
    """
    counted = [
        rows.assign(**{name: sums[rows["round"]] for name, sums in _sums(folder / "runs" / str(run)).items()})
        for run, rows in view.evaluations.groupby("run", sort=False)
    ]
    return StudyRecords(view.name, view.axes, view.target, pd.concat(counted), view.runs, view.unfinished)


def _sums(run: Path) -> dict[str, Any]:
    """Return the numbers of uploads and pushes after 0, 1, ... rounds, each [rounds + 1]."""
    invited = pd.read_parquet(run / "rounds.parquet")["invited"].to_numpy()
    found = [run / f"{name}.parquet" for name in _PUSHES if (run / f"{name}.parquet").is_file()]
    pushes = pd.read_parquet(found[0])["d2d_senders"].to_numpy() if found else np.zeros_like(invited)
    return {name: np.concatenate([[0], per.cumsum()]) for name, per in (("uploads", invited), ("pushes", pushes))}


def spent(view: StudyRecords, baseline: Mapping[str, Any], accuracy: float | None) -> pd.DataFrame:
    """Return what each run had spent when it first reached a target accuracy; NaN if it never did.

    Args:
        view: a study from `with_transmissions`.
        baseline: levels of the setting to compare with.
        accuracy: the target; None for the final accuracy of the baseline with the same other levels and the same seed.

    Returns:
        One row for each run: the axes, `seed`, `target_accuracy`, `round`, `uploads`, `pushes` and the other costs.
    """
    place = [*(axis for axis in view.axes if axis not in baseline), "seed"]
    chosen = (view.evaluations[[*baseline]] == pd.Series(baseline)).all(axis="columns")
    ends = view.evaluations[chosen].groupby(place)["accuracy"].last()
    rows = []
    for _, run in view.evaluations.groupby("run", sort=False):
        first = run.iloc[0]
        target = accuracy if accuracy is not None else float(ends[tuple(first[place])])
        reached = run[run["accuracy"] >= target]
        costs = ["round", "uploads", "pushes", *OTHER_COSTS]
        known = reached.iloc[0] if len(reached) else dict.fromkeys(costs, np.nan)
        keys = {name: first[name] for name in [*view.axes, "seed"]}
        rows.append({**keys, "target_accuracy": target, **{name: known[name] for name in costs}})
    return pd.DataFrame(rows)


def multiples(
    table: pd.DataFrame, axes: Sequence[str], baseline: Mapping[str, Any], prices: Sequence[float] = PRICES
) -> pd.DataFrame:
    """Return costs as multiples of a baseline's costs, paired by seed, with 95 % intervals.

    Args:
        table: the result of `spent`, one row for each run.
        axes: the axes of the study.
        baseline: levels of the setting to compare with.
        prices: prices RHO of a push in uploads; the column `cost_RHO` is uploads + RHO x pushes.

    Returns:
        One row for each setting and cost: the axes, `cost`, the number `seeds` that reached the target in both
        settings, and `mean`, `low` and `high` of the ratio over these seeds; no interval for fewer than two seeds.
    """
    costs = {f"cost_{price:g}": table["uploads"] + price * table["pushes"] for price in prices}
    table = table.assign(**costs)
    place = [*(axis for axis in axes if axis not in baseline), "seed"]
    compared = [*costs, *OTHER_COSTS]
    base = table[(table[[*baseline]] == pd.Series(baseline)).all(axis="columns")].set_index(place)[compared]
    rows = []
    for levels, cells in table.groupby([*axes], sort=False):
        ratios = cells.set_index(place)[compared] / base
        for cost in compared:
            known = ratios[cost].dropna().to_numpy(np.float64)
            named = dict(zip(axes, levels, strict=True))
            rows.append({**named, "cost": cost, "seeds": len(known), **mean_interval(known)._asdict()})
    return pd.DataFrame(rows)


def write_costs(
    study: Path, folder: Path, baselines: Sequence[Mapping[str, Any]], targets: Sequence[float | None]
) -> None:
    """Write `uploads.csv`, the costs of each run to reach targets, and `multiples.csv`, these relative to baselines.

    Args:
        study: the folder of a finished study.
        folder: the folder for the tables.
        baselines: the settings to compare with.
        targets: target accuracies; None stands for the final accuracy of the first baseline.
    """
    view = with_transmissions(StudyRecords.opened(study), study)
    tables = {"final" if target is None else f"{target:g}": spent(view, baselines[0], target) for target in targets}
    against = [
        multiples(table, [*view.axes], baseline).assign(target=name, baseline=", ".join(map(str, baseline.values())))
        for name, table in tables.items()
        for baseline in baselines
    ]
    for name, frame in (
        ("uploads", pd.concat([table.assign(target=name) for name, table in tables.items()])),
        ("multiples", pd.concat(against)),
    ):
        write_text(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.4g", lineterminator="\n"))

"""What rank and method cost at other uplink rates: the study is trained once, and timed on each band without training.

fednet sweep examples/adapters/adapters.yaml --data-dir DATA
python examples/adapters/rates.py DATA results/adapters OUT

Every owner takes part in every round, and no upload is lost, so that what is learnt in a round does not depend on the
band. The trained runs say how many rounds the target takes, runs without training what these cost on each band.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import fednet_emu as fe

BANDS_HZ = (1e5, 2.5e5, 1e6, 4e6, 1.6e7)
LABELS = {"time_to_target_s": "time (s)", "energy_to_target_j": "energy of all (J)"}


def timed(study: fe.Study, data_dir: Path) -> pd.DataFrame:
    """What the target costs on each band, for each run of the study that has reached it."""
    rows = []
    for _, cell in study.cells.dropna(subset="rounds_to_target").iterrows():
        scenario = study.folder / "cells" / cell["cell"] / "scenario.yaml"
        for band_hz in BANDS_HZ:
            settings = {"channel.bandwidth_hz": band_hz, "stop.rounds": int(cell["rounds_to_target"])}
            run = fe.run(scenario, settings=settings, data_dir=data_dir, timing_only=True, progress=False)
            rows.append(
                {
                    **cell[["trained", "seed", "rounds_to_target"]],
                    "bandwidth_hz": band_hz,
                    "time_to_target_s": run.summary["simulated_s"],
                    "bits_to_target": run.total_bit,
                    "energy_to_target_j": run.summary["energy_j"],
                }
            )
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> plt.Figure:
    """Time and energy to the target against the band, means over seeds: a column for each method, a line for a rank."""
    means = table.groupby(["trained", "bandwidth_hz"], sort=False)[list(LABELS)].mean()
    names = list(dict.fromkeys(table["trained"]))
    methods = list(dict.fromkeys(name.partition(",")[0] for name in names if "," in name))
    figure, grid = plt.subplots(
        len(LABELS), len(methods), sharex=True, sharey="row", figsize=(7.2, 4.2), layout="constrained"
    )
    for column, method in enumerate(methods):
        own = [name for name in names if name.startswith(method)]
        for cost, axes in zip(LABELS, grid[:, column], strict=True):
            for place, name in enumerate(own):
                values = means.loc[name, cost]
                axes.loglog(
                    values.index / 1e6, values, "o-", ms=3, lw=1, color=f"C{place}", label=name.partition(", ")[2]
                )
            values = means.loc["all weights", cost]
            axes.loglog(values.index / 1e6, values, "k^--", ms=3, lw=1, label="all weights")
            axes.grid(alpha=0.3, which="both", lw=0.4)
        grid[0, column].set_title(method, fontsize=9)
        grid[-1, column].set_xlabel("band of the uplink (MHz)")
    for label, axes in zip(LABELS.values(), grid[:, 0], strict=True):
        axes.set_ylabel(label)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


if __name__ == "__main__":
    data, results, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    costs = timed(fe.Study.opened(results), data)
    costs.to_csv(out / "rates.csv", index=False, float_format="%.6g")
    draw(costs).savefig(out / "rates.png", dpi=200)

"""Cost of rank and method at other uplink rates: the study is trained once, and timed on each band without training.

fednet sweep examples/adapters/adapters.yaml --data-dir DATA
python examples/adapters/rates.py DATA results/adapters OUT

Every owner takes part in every round, and no upload is lost, so the learning in a round does not depend on the band.
The trained runs give the number of rounds to the target; runs without training give the cost of these rounds on each
band.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import LogLocator

import fednet_emu as fe

BANDS_MHZ = (0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
LABELS = {"time_to_target_s": "time (s)", "energy_to_target_j": "energy of all (J)"}


def timed(study: fe.Study, data_dir: Path) -> pd.DataFrame:
    """Return the cost of the target on each band, for each run of the study that reached the target."""
    rows = []
    for _, row in study.runs.dropna(subset="rounds_to_target").iterrows():
        scenario = study.folder / "runs" / row["run"] / "scenario.yaml"
        for band_mhz in BANDS_MHZ:
            settings = {"channel.bandwidth_hz": 1e6 * band_mhz, "stop.rounds": int(row["rounds_to_target"])}
            run = fe.run(scenario, settings=settings, data_dir=data_dir, timing_only=True, progress=False)
            rows.append(
                {
                    **row[["trained", "seed", "rounds_to_target"]],
                    "band_mhz": band_mhz,
                    "time_to_target_s": run.summary["simulated_s"],
                    "bits_to_target": run.total_bit,
                    "energy_to_target_j": run.summary["energy_j"],
                }
            )
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> plt.Figure:
    """Draw mean time and energy to the target against the band, with a column per method and a line per rank."""
    means = table.groupby(["trained", "band_mhz"], sort=False)[list(LABELS)].mean()
    parts = [name.partition(", ") for name in dict.fromkeys(table["trained"])]
    methods, ranks = (list(dict.fromkeys(part[place] for part in parts if part[2])) for place in (0, 2))
    figure, grid = plt.subplots(
        len(LABELS), len(methods), sharex=True, sharey="row", figsize=(7.2, 4.4), layout="constrained"
    )
    for method, column in zip(methods, grid.T, strict=True):
        lines = {
            f"{method}, {rank}": {"fmt": "o-", "color": f"C{place}", "label": rank} for place, rank in enumerate(ranks)
        }
        lines["all weights"] = {"fmt": "k^--", "label": "all weights"}
        for (cost, label), axes in zip(LABELS.items(), column, strict=True):
            for name, look in lines.items():
                if name in means.index:
                    values = means.loc[name, cost]
                    axes.errorbar(values.index, values, ms=3, lw=1, **look)
            axes.set(xscale="log", yscale="log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter("")
            axes.grid(alpha=0.3, which="both", lw=0.4)
            axes.set_ylabel(label if method == methods[0] else "")
        column[0].set_title(method, fontsize=9)
        column[-1].set_xlabel("band (MHz)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


if __name__ == "__main__":
    data, results, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    costs = timed(fe.Study.opened(results), data)
    costs.to_csv(out / "rates.csv", index=False, float_format="%.6g")
    draw(costs).savefig(out / "rates.png", dpi=200)

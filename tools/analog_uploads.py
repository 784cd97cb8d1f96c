"""Mean upload times of the study `analog_latency` relative to a sum: `python tools/analog_uploads.py FOLDER`.

Reads the records of the runs that `fednet sweep analog_latency --timing-only` leaves in FOLDER; writes
`results/reference/analog_latency/uploads.csv`, with the closed forms of `scenarios/papers/analog_aggregation.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from fednet_emu.results.published import program

REFERENCE = Path(__file__).parents[1] / "results/reference/analog_latency"
BANDWIDTH_HZ = 1e6


def main(folder: Path) -> None:
    """Write the table: one row for each number of devices and SNR."""
    analog, rows = program("analog-aggregation"), []
    for run in pd.read_parquet(folder / "runs.parquet").to_dict("records"):
        transfers = pd.read_parquet(folder / "runs" / run["run"] / "transfers.parquet")
        uploads = transfers[transfers["direction"] == "uplink"]
        mean_s = float((uploads["ended_s"] - uploads["started_s"]).mean())
        rows.append({**{key: run[key] for key in ("power", "devices.count", "access")}, "mean_upload_s": mean_s})
    table = pd.DataFrame(rows).pivot(index=["power", "devices.count"], columns="access", values="mean_upload_s")
    table = table.reset_index().rename(
        columns={"over-the-air": "sum_s", "ofdma": "ofdma_s", "devices.count": "devices"}
    )
    table["ratio"] = table["ofdma_s"] / table["sum_s"]
    table["ratio_to_symbols"] = table["ofdma_s"] / (analog.PARAMETERS / BANDWIDTH_HZ)  # without the rounding to slots
    table["closed_form"] = [
        analog.ratio(float(power.split()[0]), devices)
        for power, devices in zip(table["power"], table["devices"], strict=True)
    ]
    REFERENCE.mkdir(parents=True, exist_ok=True)
    table.to_csv(REFERENCE / "uploads.csv", index=False, float_format="%.5g", lineterminator="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

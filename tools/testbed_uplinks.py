"""Uplink and round times of the study `testbed`, one row for each run: `python tools/testbed_uplinks.py FOLDER`.

Reads `FOLDER/runs.parquet` and the records of its runs, as `fednet sweep testbed --timing-only` leaves them; writes
`results/reference/testbed/uplinks.csv`, against which tests/scenario/test_testbed.py and
docs/evidence/fidelity.md are held.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

REFERENCE = Path(__file__).parents[1] / "results" / "reference" / "testbed"


def times(run: Path) -> dict[str, float]:
    """Times of the first round in s: training, from its end until the server has all updates, and all; and the share.

    Args:
        run: the folder of a run whose devices all finish training at the same time.
    """
    transfers = pd.read_parquet(run / "transfers.parquet")
    first = pd.read_parquet(run / "rounds.parquet").iloc[0]
    computes = pd.read_parquet(run / "computes.parquet")
    uploads = transfers[(transfers.direction == "uplink") & (transfers.ended_s <= first.ended_s)]
    uplink_s = uploads.ended_s.max() - uploads.requested_s.min()
    round_s = first.ended_s - first.started_s
    training_s = (computes.ended_s - computes.started_s).iloc[0]
    return {"training_s": training_s, "uplink_s": uplink_s, "round_s": round_s, "uplink_share": uplink_s / round_s}


def main(folder: Path) -> None:
    """Write the table."""
    runs = pd.read_parquet(folder / "runs.parquet")
    rows = [{"link": c.link, "work": c.work, **times(folder / "runs" / c.run)} for c in runs.itertuples()]
    table = pd.DataFrame(rows)
    table.to_csv(REFERENCE / "uplinks.csv", index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A rank-order test on hardware: five methods on three networks, predicted, measured and scored.

    python tools/rank_order.py predict OUT          predictions.csv, works/, and their SHA-256, to be published first
    python tools/rank_order.py play OUT NETWORK     measured.csv with processes of `fednet live`, as root on Linux
    python tools/rank_order.py score OUT            score.csv: Kendall's tau and the error of the times, by network

With boards, start `examples/rank_order/board.py` on each with the files in works/, and write the printed seconds into
OUT/measured.csv (network, method, seconds). `score` refuses predictions that were changed. See
docs/evidence/published/rank-order.md.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import scipy

import fednet_emu as fe

ROOT = Path(__file__).parents[1]
BOARD = ROOT / "examples/rank_order/board.py"
NETWORKS = ("wifi", "ethernet", "5g")
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedavg, 5 epochs": {"algorithm.local_epochs": 5},
    "fedavg, 16 bit": {"network.uplink.compression": "float16"},
    "fedavg, half cohort": {"algorithm.cohort": 2},
    "scaffold": {"algorithm": {"kind": "scaffold", "cohort": 4, "lr": 0.1, "batch_size": 20, "local_epochs": 1}},
}
PREDICTED, DIGEST, MEASURED = "predictions.csv", "predictions.sha256", "measured.csv"


def predicted(network: str, method: str) -> tuple[float, dict[str, Any]]:
    """The simulated seconds of all rounds, and the work of a board: bytes, seconds of computing, cohort, rounds."""
    run = fe.run(f"rank_order_{network}", settings=METHODS[method], timing_only=True, progress=False)
    transfers, computes = run.transfers, run.computes
    size = {
        kind: int(transfers.loc[transfers["direction"] == kind, "size_bit"].iloc[0]) // 8
        for kind in ("downlink", "uplink")
    }
    rounds = len(run.rounds)
    return float(run.rounds["ended_s"].max()), {
        "rounds": rounds,
        "devices": 4,
        "cohort": len(computes) // rounds,
        "down_byte": size["downlink"],
        "up_byte": size["uplink"],
        "compute_s": float((computes["ended_s"] - computes["started_s"]).mean()),
    }


def predict(out: Path) -> str:
    """Write the predictions and the works; return the digest of the predictions."""
    (out / "works").mkdir(parents=True, exist_ok=True)
    rows = []
    for network in NETWORKS:
        for place, method in enumerate(METHODS):
            seconds, work = predicted(network, method)
            rows.append({"network": network, "method": method, "seconds": round(seconds, 6)})
            (out / f"works/{network}-{place}.json").write_text(json.dumps(work), encoding="utf-8")
    pd.DataFrame(rows).to_csv(out / PREDICTED, index=False, lineterminator="\n")
    digest = hashlib.sha256((out / PREDICTED).read_bytes()).hexdigest()
    (out / DIGEST).write_text(f"{digest}\n", encoding="utf-8")
    return digest


def play(out: Path, network: str) -> None:
    """Measure all methods on a network with processes in place of boards, and add them to the measured times."""
    rows = []
    for place, method in enumerate(METHODS):
        work = (out / f"works/{network}-{place}.json").resolve()
        server = f"{sys.executable} {BOARD} server {work}"
        folder = out / f"live-{network}-{place}"
        command = [sys.executable, "-m", "fednet_emu", "live", f"rank_order_{network}", "--server", server]
        command += ["--set", "stop={simulated_s: 300}", "--out", str(folder), "--no-plots", "--force", "--"]
        client = [sys.executable, str(BOARD), "client", "{server}", "{device}", str(work)]
        subprocess.run([*command, *client], check=True)
        lines = (folder / "server.txt").read_text(encoding="utf-8").splitlines()
        rows.append({"network": network, "method": method, "seconds": json.loads(lines[-1])["seconds"]})
    path = out / MEASURED
    old = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["network", "method", "seconds"])
    table = pd.concat([old[old["network"] != network], pd.DataFrame(rows)]) if len(old) else pd.DataFrame(rows)
    table.to_csv(path, index=False, lineterminator="\n")


def score(out: Path) -> pd.DataFrame:
    """Kendall's tau-b between predicted and measured times of the methods, and relative errors, for each network.

    Raises:
        ValueError: the predictions are not those of the digest, or a network was measured in part.
    """
    if hashlib.sha256((out / PREDICTED).read_bytes()).hexdigest() != (out / DIGEST).read_text(encoding="utf-8").strip():
        raise ValueError(f"{PREDICTED}: is not the file of {DIGEST}; predict again, and publish the digest first")
    both = pd.read_csv(out / PREDICTED).merge(
        pd.read_csv(out / MEASURED), on=["network", "method"], suffixes=("", "_measured")
    )
    rows = []
    for network, own in both.groupby("network", sort=False):
        if len(own) < len(METHODS):
            raise ValueError(f"{MEASURED}: {network} has {len(own)} of {len(METHODS)} methods; measure all of them")
        tau = scipy.stats.kendalltau(own["seconds"], own["seconds_measured"])
        error = own["seconds"] / own["seconds_measured"] - 1
        rows.append(
            {
                "network": network,
                "kendall_tau": tau.statistic,
                "p_value": tau.pvalue,
                "mean_error": error.mean(),
                "largest_error": error.abs().max(),
            }
        )
    table = pd.DataFrame(rows)
    table.to_csv(out / "score.csv", index=False, float_format="%.4g", lineterminator="\n")
    return table


COMMANDS: dict[str, Callable[..., Any]] = {"predict": predict, "play": play, "score": score}

if __name__ == "__main__":
    command, folder, *more = sys.argv[1:]
    result = COMMANDS[command](Path(folder), *more)
    if result is not None:
        print(result)

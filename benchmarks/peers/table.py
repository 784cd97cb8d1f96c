"""Medians, spreads, ratios and agreement of all runs, as text."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from peers.workloads import WORKLOADS

Run = Mapping[str, Any]
TOLERANCES = {"W1": 0.005, "W2": 0.01, "W3": 0.15, "W4": 0.05}
"""Relative differences of the training loss that are put down to other batches, cohorts and initial models."""
WHO = ("workload", "kind", "contestant", "repeat")
WHAT = ("round_s", "learning_s", "peak_mb", "steps", "loss", "threads", "mean_wavefront", "version", "jax", "python")


class Row(NamedTuple):
    """The runs of one contestant on one workload: medians, and the extremes of the time."""

    kind: str
    contestant: str
    round_s: float
    least_s: float
    most_s: float
    peak_mb: float
    learning_s: float | None
    loss: float
    steps: int
    version: str


def rows_of(runs: Sequence[Run], workload: str) -> list[Row]:
    """One row per contestant, in the order in which they first ran."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run["workload"] == workload:
            groups.setdefault(run["contestant"], []).append(run)
    return [_row(group) for group in groups.values()]


def _row(runs: Sequence[Run]) -> Row:
    times_s = [run["round_s"] for run in runs]
    learning_s = [run["learning_s"] for run in runs if "learning_s" in run]
    return Row(
        runs[0]["kind"],
        runs[0]["contestant"],
        statistics.median(times_s),
        min(times_s),
        max(times_s),
        statistics.median(run["peak_mb"] for run in runs),
        statistics.median(learning_s) if learning_s else None,
        statistics.median(run["loss"] for run in runs),
        runs[0]["steps"],
        runs[0]["version"],
    )


def agrees(row: Row, rows: Sequence[Row], workload: str) -> bool:
    """Whether a contestant made the steps of the hand-written loops, and has their loss within the tolerance.

    In W4 we may train more than the server's steps: what is still under way at the end.
    """
    loops = [other for other in rows if other.kind == "reference"]
    steps, expected = loops[0].steps, statistics.median(other.loss for other in loops)
    counted = row.steps >= steps if workload == "W4" else row.steps == steps
    return counted and abs(row.loss - expected) <= TOLERANCES[workload] * expected


def told(run: Run) -> str:
    """One run in one line."""
    return (
        f"{run['repeat'] + 1} {run['workload']} {run['contestant']:46} {run['round_s'] * 1e3:9.2f} ms per round "
        f"{run['peak_mb']:6.0f} MB  loss {run['loss']:.4f}  {run['steps']} steps"
    )


def write_csv(runs: Sequence[Run], path: Path) -> None:
    """All runs, one line each."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, WHO + WHAT, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(runs)


def markdown(runs: Sequence[Run], facts: Mapping[str, str]) -> str:
    """Everything for people: the machine, a table per workload, and what follows from it."""
    lines = ["# fednet_emu, its peers and hand-written loops", ""]
    lines += ["`make bench-peers`; what is compared is told in `benchmarks/peers/README.md`.", ""]
    lines += [", ".join(f"{name}: {value}" for name, value in facts.items()), ""]
    for workload in WORKLOADS:
        rows = rows_of(runs, workload)
        if rows:
            lines += [f"## {workload}", "", *_table(rows, workload), "", *verdicts(rows), ""]
    versions = dict.fromkeys(f"{run['contestant'].partition(',')[0]} {run['version']}" for run in runs)
    return "\n".join([*lines, "Versions: " + ", ".join(versions) + "."]) + "\n"


def _table(rows: Sequence[Row], workload: str) -> list[str]:
    ours = [row for row in rows if row.kind == "fednet_emu"]
    lines = [
        "| | ms per round | least to most | relative to fednet_emu | peak PSS MB | training loss | steps |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.round_s):
        ratio = f"{row.round_s / ours[0].round_s:.2f}" if ours else ""
        mark = "" if agrees(row, rows, workload) else " (differs)"
        lines.append(
            f"| {row.contestant} | {row.round_s * 1e3:.4g} | {row.least_s * 1e3:.4g} to {row.most_s * 1e3:.4g} "
            f"| {ratio} | {row.peak_mb:.0f} | {row.loss:.4f}{mark} | {row.steps} |"
        )
    return lines


def verdicts(rows: Sequence[Row]) -> list[str]:
    """What the issue asks: the learning plane against the best loop, the whole against the peers, and the memory."""
    ours = next((row for row in rows if row.kind == "fednet_emu"), None)
    if ours is None:
        return []
    lines = []
    loops = [row for row in rows if row.kind == "reference"]
    if loops and ours.learning_s is not None:
        best = min(loops, key=lambda row: row.round_s)
        lines.append(
            f"- Learning plane {ours.learning_s * 1e3:.4g} ms, {ours.learning_s / best.round_s:.2f} times the best "
            f"loop ({best.contestant.partition(', ')[2]}, {best.round_s * 1e3:.4g} ms); "
            f"{1 / ours.round_s:,.0f} rounds per second in all."
        )
    peers = [row for row in rows if row.kind == "peer"]
    if peers:
        fastest, leanest = min(peers, key=lambda row: row.round_s), min(peers, key=lambda row: row.peak_mb)
        lines.append(
            f"- Fastest peer: {fastest.contestant}, {fastest.round_s / ours.round_s:.2f} times our time; leanest: "
            f"{leanest.contestant}, {leanest.peak_mb:.0f} MB to our {ours.peak_mb:.0f} MB."
        )
    return lines

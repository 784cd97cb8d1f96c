"""Medians, spreads, ratios and agreement of all runs, as text."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from peers.journal import DISTURBED, FAILED, OTHERS, Run
from peers.workloads import WORKLOADS

TOLERANCES = {"W1": 0.005, "W2": 0.01, "W3": 0.15, "W4": 0.05}
"""Relative differences of the training loss that are put down to other batches, cohorts and initial models."""
TITLES = {
    "W1": "softmax regression, 100 of 100 clients, 5 steps of 32 samples",
    "W2": "MLP 784-200-10, 10 of 100 clients, one epoch in batches of 50",
    "W3": "CNN of McMahan et al., 10 of 100 clients, 5 steps of 20 samples",
    "W4": "asynchronous softmax regression, 1000 workers, a round is a step of the server",
}


class Row(NamedTuple):
    """The runs of one contestant on one workload: medians, and the extremes of the time."""

    kind: str
    contestant: str
    runs: int
    round_s: float
    min_s: float
    max_s: float
    peak_mb: float
    learning_s: float | None
    mean_wavefront: float | None
    loss: float
    steps: int

    @property
    def family(self) -> str:
        """Whose configuration this is."""
        return self.contestant.partition(", ")[0]


def rows_of(runs: Sequence[Run], workload: str) -> list[Row]:
    """One row per contestant that ever came to an end, in the order in which they first ran."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run["workload"] == workload and FAILED not in run:
            groups.setdefault(run["contestant"], []).append(run)
    return [_row(group) for group in groups.values()]


def _row(runs: Sequence[Run]) -> Row:
    times_s = [run["round_s"] for run in runs]
    return Row(
        runs[0]["kind"],
        runs[0]["contestant"],
        len(runs),
        statistics.median(times_s),
        min(times_s),
        max(times_s),
        statistics.median(run["peak_mb"] for run in runs),
        _median(runs, "learning_s"),
        _median(runs, "mean_wavefront"),
        statistics.median(run["loss"] for run in runs),
        runs[0]["steps"],
    )


def _median(runs: Sequence[Run], name: str) -> float | None:
    values = [run[name] for run in runs if name in run]
    return statistics.median(values) if values else None


def agrees(row: Row, rows: Sequence[Row], workload: str) -> bool:
    """Whether a contestant made the steps of the hand-written loops, and has their loss within the tolerance.

    In W4 we may train more than the server's steps: what is still under way at the end. Without loops nobody differs.
    """
    loops = [other for other in rows if other.kind == "reference"]
    if not loops:
        return True
    steps, expected = loops[0].steps, statistics.median(other.loss for other in loops)
    counted = row.steps >= steps if workload == "W4" else row.steps == steps
    return counted and abs(row.loss - expected) <= TOLERANCES[workload] * expected


def best_of_families(rows: Sequence[Row]) -> dict[str, Row]:
    """The fastest configuration of everybody, the fastest first."""
    best: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.round_s):
        best.setdefault(row.family, row)
    return best


def told(run: Run) -> str:
    """One run in one line."""
    who = f"{run['repeat'] + 1} {run['workload']} {run['contestant']:46}"
    if FAILED in run:
        return f"{who} failed: {run[FAILED]}"
    return (
        f"{who} {run['round_s'] * 1e3:9.2f} ms per round {run['peak_mb']:6.0f} MB  "
        f"loss {run['loss']:.4f}  {run['steps']} steps" + (f"  others {run[OTHERS]:.2f}" if OTHERS in run else "")
    )


def markdown(runs: Sequence[Run], facts: Mapping[str, str]) -> str:
    """Everything for people: the machine, a table per workload, and what follows from it."""
    lines = ["# fednet_emu, its peers and hand-written loops", ""]
    lines += ["`make bench-peers`; what is compared, and how, is told in `benchmarks/peers/README.md`."]
    lines += ["Times are medians of host time per round, with the least and the most; everybody's best is in bold."]
    lines += ["", ", ".join(f"{name}: {value}" for name, value in facts.items()) + ".", ""]
    for workload in WORKLOADS:
        rows, troubles = rows_of(runs, workload), _troubles(runs, workload)
        if rows or troubles:
            lines += [f"## {workload}: {TITLES[workload]}", "", *_table(rows, workload), "", *verdicts(rows), *troubles]
            lines += [""]
    versions = dict.fromkeys(
        f"{run['contestant'].partition(',')[0]} {run['version']}" + (f" (JAX {run['jax']})" if "jax" in run else "")
        for run in runs
        if FAILED not in run
    )
    return "\n".join([*lines, "Versions: " + ", ".join(versions) + "."]) + "\n"


def _table(rows: Sequence[Row], workload: str) -> list[str]:
    best = best_of_families(rows)
    ours = best.get("fednet_emu")
    lines = [
        "| | ms per round | least to most | relative to fednet_emu | peak PSS MB | training loss | steps | runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.round_s):
        ratio = f"{row.round_s / ours.round_s:.2f}" if ours else ""
        mark, strong = "" if agrees(row, rows, workload) else " (differs)", "**" if row is best[row.family] else ""
        lines.append(
            f"| {strong}{row.contestant}{strong} | {row.round_s * 1e3:.4g} "
            f"| {row.min_s * 1e3:.4g} to {row.max_s * 1e3:.4g} | {strong}{ratio}{strong} | {row.peak_mb:.0f} "
            f"| {row.loss:.4f}{mark} | {row.steps} | {row.runs} |"
        )
    return lines


def _troubles(runs: Sequence[Run], workload: str) -> list[str]:
    lines = []
    for run in runs:
        trouble, others = run.get(FAILED), run.get(OTHERS, 0.0)
        if trouble is None and others >= DISTURBED:
            trouble = f"disturbed, others kept {others:.2f} cores busy"
        if trouble is not None and run["workload"] == workload:
            lines.append(f"- {run['contestant']}, repeat {run['repeat'] + 1}: {trouble}.")
    return lines


def verdicts(rows: Sequence[Row]) -> list[str]:
    """What follows: the learning plane against the best loop, the whole against each peer's best, memory, and apps."""
    ours = best_of_families(rows).get("fednet_emu")
    return [*([] if ours is None else _ours(ours, rows)), *_apps(rows)]


def _ours(ours: Row, rows: Sequence[Row]) -> list[str]:
    lines = []
    loops = [row for row in rows if row.kind == "reference"]
    if loops and ours.learning_s is not None:
        best = min(loops, key=lambda row: row.round_s)
        lines.append(
            f"- Learning plane {ours.learning_s * 1e3:.4g} ms, {ours.learning_s / best.round_s:.2f} times the best "
            f"loop ({best.contestant.partition(', ')[2]}, {best.round_s * 1e3:.4g} ms); "
            f"{1 / ours.round_s:,.0f} rounds per second in all, {ours.mean_wavefront or 0:.0f} jobs per wavefront."
        )
    peers = [row for row in rows if row.kind == "peer"]
    if peers:
        times = [f"{row.contestant} {row.round_s / ours.round_s:.2f}" for row in best_of_families(peers).values()]
        leanest = min(peers, key=lambda row: row.peak_mb)
        lines += [
            f"- Peers at their best, in times of the whole emulated run: {'; '.join(times)}.",
            f"- Leanest peer: {leanest.contestant}, {leanest.peak_mb:.0f} MB to our {ours.peak_mb:.0f} MB.",
        ]
    return lines


def _apps(rows: Sequence[Row]) -> list[str]:
    """A peer's app on the emulated network against the peer's own engine."""
    lines = []
    for row in rows:
        name, found, _ = row.contestant.partition(" app on ")
        engine = next((other for other in rows if other.kind == "peer" and other.family == name), None)
        if row.kind == "app" and found and engine is not None:
            times = f"takes {row.round_s * 1e3:.4g} ms, in {name}'s own engine {engine.round_s * 1e3:.4g} ms"
            lines.append(f"- {row.contestant} {times}, {engine.round_s / row.round_s:.2f} times as long.")
    return lines

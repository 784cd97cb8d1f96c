"""Plot curves of several runs: learning progress against cost, and the distribution of round latency."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednet_emu.analysis.quantities import LONG_TIMES, axis_unit
from fednet_emu.analysis.scales import TRADED, Cost
from fednet_emu.draw.style import (
    CURVE_HEIGHT_IN,
    TARGET_LINE,
    add_line_legend,
    finish_axes,
    fit_scale,
    fit_share_scale,
    line_style,
    new_figure,
)

MARKERS_PER_CURVE = 8
EVALUATION_COLUMNS = ("simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "energy_j", "loss", "accuracy")
SHARES = ("accuracy", "worst_accuracy", "attack_success")
ROUND_COLUMNS = ("started_s", "ended_s")

Labelled = Sequence[tuple[str, pd.DataFrame]]
"""Pairs of a run's label and one table of the run. The position of a run in the sequence determines its line style."""


def progress_figures(evaluations: Labelled, target: float | None = None) -> dict[str, Figure]:
    """Plot the accuracy against time, bits and energy, and the loss against time.

    If a run has no accuracy, only the loss is plotted.

    Args:
        evaluations: the evaluations of each run.
        target: an accuracy, marked by a horizontal line.

    Returns:
        The figures by name. A cost that is zero in all runs has no figure. If no run has evaluations, there are no
        figures.
    """
    evaluated = [rows for _, rows in evaluations if len(rows)]
    measure = "accuracy" if all(np.isfinite(rows["accuracy"]).any() for rows in evaluated) else "loss"
    wanted = [(measure, name) for name in TRADED]
    if measure == "accuracy" and all(np.isfinite(rows["loss"]).any() for rows in evaluated):
        wanted.append(("loss", "time"))
    drawn = {}
    for what, name in wanted:
        known, cost = [(label, rows[np.isfinite(rows[what])]) for label, rows in evaluations], TRADED[name]
        if any((cost.of(rows) > 0).any() for _, rows in known):
            level = target if what == "accuracy" else None
            drawn[f"{what}-{name}"] = progress_figure(known, what, cost, target=level)
    return drawn


def latency_figure(rounds: Labelled) -> Figure | None:
    """Plot the cumulative distribution of round durations, one curve per run. Return None if no round has ended."""
    latencies = [(label, (rows["ended_s"] - rows["started_s"]).dropna().to_numpy()) for label, rows in rounds]
    together_s = np.concatenate([latency_s for _, latency_s in latencies]) if latencies else np.empty(0)
    if not together_s.size:
        return None
    unit = axis_unit(float(np.median(together_s)), LONG_TIMES)  # the maximum may be an outlier
    figure = new_figure(CURVE_HEIGHT_IN)
    axes = figure.add_subplot()
    for index, (label, latency_s) in enumerate(latencies):
        if latency_s.size:
            axes.ecdf(latency_s / unit.size, label=label, **line_style(index) | {"marker": "none"})
    fit_scale(axes, "x")
    axes.set(xlabel=f"Round latency ({unit.symbol})", ylabel="Share of rounds", ylim=(0.0, 1.02))
    _complete(figure, axes)
    return figure


def progress_figure(curves: Labelled, measure: str, cost: Cost, title: str = "", target: float | None = None) -> Figure:
    """Plot a score against a cost, one line per run. Several lines are distinguished by markers.

    Args:
        curves: the evaluations of each run.
        measure: a column of the evaluations.
        cost: the cost on the horizontal axis.
        title: label of the vertical axis; by default the capitalized `measure`.
        target: a value of the score, marked by a horizontal line.
    """
    unit = cost.unit(max(float(cost.of(rows).max()) for _, rows in curves if len(rows)))
    figure = new_figure(CURVE_HEIGHT_IN)
    axes = figure.add_subplot()
    for index, (label, rows) in enumerate(curves):
        if len(rows):
            every = max(1, len(rows) // MARKERS_PER_CURVE)
            style = line_style(index) if len(curves) > 1 else line_style(index) | {"marker": "none"}
            axes.plot(cost.of(rows) / unit.size, rows[measure], label=label, markevery=every, **style)
    fit_scale(axes, "x")
    if target is not None:
        axes.axhline(target, label=f"target {target:g}", **TARGET_LINE)
    if measure in SHARES:
        fit_share_scale(axes)
    else:
        fit_scale(axes, "y")
    axes.set(xlabel=cost.label(unit), ylabel=title or measure.capitalize())
    _complete(figure, axes)
    return figure


def _complete(figure: Figure, axes: Axes) -> None:
    finish_axes(axes)
    add_line_legend(figure, axes)

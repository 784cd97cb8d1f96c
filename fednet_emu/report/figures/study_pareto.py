"""The Pareto front of a study: which settings give the most accuracy for their time and bits."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fednet_emu.arrays import Array, Mask
from fednet_emu.report.figures.study_curves import combinations, levels_text, rows_of
from fednet_emu.report.quantities import BITS, LONG_TIMES, axis_unit
from fednet_emu.report.style import add_grid, add_legend, finish_axes, line_style, new_figure, round_ticks
from fednet_emu.report.views.study import StudyView

HEIGHT_IN = 2.0
DOMINATED = {"color": "0.8", "marker": "o", "markersize": 1.5, "linestyle": "none", "markeredgewidth": 0.0}


def on_front(costs: Array) -> Mask:
    """Find the Pareto front of points.

    Args:
        costs: the points [n, costs].

    Returns:
        Mask [n] of the points that no other point beats; a point beats another if none of its costs is higher and at
        least one is lower.
    """
    return np.array(
        [not ((costs <= point).all(axis=1) & (costs < point).any(axis=1)).any() for point in costs], dtype=bool
    )


def mean_progress(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the means over seeds of time, bits and accuracy, for each round that was evaluated with every seed."""
    rounds = evaluations.groupby("round")
    means = rounds[["simulated_s", "total_bit", "accuracy"]].mean()
    return means[rounds["seed"].nunique() == evaluations["seed"].nunique()]


def pareto_figure(view: StudyView) -> Figure | None:
    """Draw accuracy against time and against bits for all evaluated rounds, and mark the Pareto front of all three.

    Returns:
        None if no accuracy was measured.
    """
    spent = view.evaluations["simulated_s"] > 0  # the initial model costs nothing
    known = view.evaluations[spent & np.isfinite(view.evaluations["accuracy"])]
    if not len(known):
        return None
    settings = combinations(view, list(view.axes))
    progress = [mean_progress(rows_of(known, levels)) for levels in settings]
    points = pd.concat(progress, keys=range(len(settings)), names=["setting"]).reset_index("setting")
    costs = points[["simulated_s", "total_bit", "accuracy"]].to_numpy(np.float64) * [1.0, 1.0, -1.0]
    front = points[on_front(costs)]
    figure = new_figure(HEIGHT_IN)
    left, right = figure.subplots(1, 2, sharey=True)
    shown = sorted(set(front["setting"]))
    handles = []
    for axes, column, title, units in (
        (left, "simulated_s", "Simulated time", LONG_TIMES),
        (right, "total_bit", "Transmitted data", BITS),
    ):
        unit = axis_unit(float(points[column].max()), units)
        axes.plot(points[column] / unit.size, points["accuracy"], **DOMINATED)
        for setting in shown:
            part = front[front["setting"] == setting]
            style = {**line_style(setting), "linestyle": "none"}
            handles += axes.plot(part[column] / unit.size, part["accuracy"], **style)
        axes.set_xlabel(f"{title} ({unit.symbol})")
        round_ticks(axes.xaxis, 4)
        add_grid(axes)
        finish_axes(axes)
    left.set_ylabel("Accuracy")
    (dominated,) = left.plot([], [], **DOMINATED)
    names = [levels_text(settings[setting], names=True) or view.name for setting in shown]
    add_legend(figure, [*handles[: len(shown)], dominated], [*names, "not on the front"], handle_em=1.2)
    return figure

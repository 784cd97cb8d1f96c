"""The ranking of a study's settings: what the target cost each run, and who may be the best."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fednet_emu.analysis.quantities import Unit
from fednet_emu.analysis.ranked import Ranked, RankedSettings
from fednet_emu.analysis.scales import limits_text
from fednet_emu.analysis.settings import Names
from fednet_emu.analysis.study import target_text
from fednet_emu.draw.figures.intervals import DOT, MEAN, draw_interval, interval_entry
from fednet_emu.draw.figures.study_bars import CROSS
from fednet_emu.draw.figures.study_curves import name_rows
from fednet_emu.draw.palette import BLUE, GREY
from fednet_emu.draw.style import (
    SMALL_PT,
    PaperFigure,
    add_grid,
    add_legend,
    finish_axes,
    new_figure,
    round_ticks,
    wrapped,
)

ROW_IN, FRAME_IN = 0.2, 0.55
LABEL_IN = 2.2
"""Width of the label below the axes, which the names of settings leave."""


def best_figure(ranking: RankedSettings, rename: Mapping[str, str] | None = None) -> PaperFigure:
    """Draw the cost of each run, with its setting's mean and 95 % interval, a row for each setting, the cheapest first.

    Blue settings may be the best, grey ones are not. A run that did not reach the target is a cross at
    the cost that it counts as, and the row says how many did.

    Raises:
        FednetError: `rename` has another name for an axis or level that the ranking does not have.
    """
    unit = ranking.cost.unit(ranking.horizon)
    figure = new_figure(FRAME_IN + ROW_IN * len(ranking.settings))
    axes = figure.subplots()
    cut = [_draw(axes, its, row, unit) for row, its in enumerate(ranking.settings)]
    levels = [its.setting.levels for its in ranking.settings]
    known = {axis: list(dict.fromkeys(each[axis] for each in levels)) for axis in levels[0]}
    name_rows(axes, levels, Names.of(known, rename))
    axes.set_xlim(left=0.0)
    label = ranking.cost.label(unit, target_text(ranking.target)), limits_text(ranking.limits).strip()
    axes.set_xlabel("\n".join(wrapped(text, LABEL_IN) for text in label if text))
    round_ticks(axes.xaxis)
    add_grid(axes)
    finish_axes(axes)
    axes.tick_params(axis="y", length=0.0)
    handles = [Line2D([], [], **DOT, color="0.4", label="run"), *_entries(ranking)]
    if any(np.isfinite(its.cost.low) for its in ranking.settings):
        handles.append(interval_entry(cut=any(cut)))
    add_legend(figure, handles, [str(handle.get_label()) for handle in handles], handle_em=1.6)
    figure.numbers = ranking.frame
    return figure


def _draw(axes: Axes, its: Ranked, row: int, unit: Unit) -> bool:
    """Draw a setting, and return whether its interval was cut at zero."""
    colour, costs = BLUE if its.may_be_best else GREY, its.costs / unit.size
    reached, failed = costs[its.got_there], costs[~its.got_there]
    axes.plot(reached, np.full(len(reached), row), **DOT, color=colour, label="runs")
    axes.plot(failed, np.full(len(failed), row), **CROSS, zorder=3, label="failed")
    interval = its.cost._replace(**{name: value / unit.size for name, value in its.cost._asdict().items()})
    cut = interval.high > interval.low and draw_interval(axes, interval, row, least=0.0)
    if its.got_there.any():
        axes.plot(interval.mean, row, **MEAN, color=colour, zorder=4, label="mean")
    if len(failed):
        axes.annotate(
            f"{len(reached)} of {len(costs)}",
            (1.0, row),
            (3, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT - 1,
        )
    return bool(cut)


def _entries(ranking: RankedSettings) -> list[Line2D]:
    found = [Line2D([], [], **MEAN, color=BLUE, label="mean, may be the best")]
    if not all(its.may_be_best for its in ranking.settings):
        found.append(Line2D([], [], **MEAN, color=GREY, label="mean, not the best"))
    if not all(its.got_there.all() for its in ranking.settings):
        found.append(Line2D([], [], **CROSS, label="run that never got there"))
    return found

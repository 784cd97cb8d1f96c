"""Fit the width and title of a figure to a page, and export the plotted numbers as CSV and LaTeX tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from fednet_emu.analysis.statistics import Interval
from fednet_emu.draw.figures.tex import escaped
from fednet_emu.draw.style import POINTS_PER_IN, SIZES, PaperFigure, add_legend, paper_style, wrapped
from fednet_emu.errors import require_known

TITLE_PT = 8.0
DIGITS, LATEX_DIGITS = 6, 3
"""Significant digits of numbers in CSV tables and in LaTeX tables."""
LOPSIDED = 0.1
"""Maximum asymmetry of an interval that is written as `mean ± half width`. The asymmetry is the distance between the
mean and the middle of the interval, divided by the width of the interval."""


def fit_to_page(figure: Figure, size: str | None = None, title: str | None = None) -> None:
    """Set the width of a figure, rearrange its legend, and add a title.

    Args:
        size: a key of `SIZES`; None keeps the width.

    Raises:
        FednetError: the size does not exist.
    """
    require_known("size: no such width of a figure", size, SIZES)
    with paper_style():
        if size is not None:
            figure.set_figwidth(SIZES[size])
            _arrange_legend(figure)
        if title:
            _set_title(figure, wrapped(title, figure.get_figwidth()))


def numbers_of(figure: Figure) -> pd.DataFrame:
    """Return the plotted numbers of a figure as a table.

    This is the table `numbers` of the figure if it has one. Otherwise the table has one row for each point of each
    line. Its columns are then `panel` (title or vertical axis of the panel), `series` (label of the line), and the two
    coordinates. The coordinates are named like the axes, or `x` and `y` if panels have different axes.
    """
    if isinstance(figure, PaperFigure) and figure.numbers is not None:
        return figure.numbers
    drawn = [axes for axes in figure.axes if axes.get_lines()]
    names = {(axes.get_xlabel(), axes.get_ylabel()) for axes in drawn}
    x, y = names.pop() if len(names) == 1 else ("x", "y")
    parts = [
        pd.DataFrame({
            "panel": axes.get_title() or axes.get_title("left") or axes.get_ylabel(),
            "series": str(line.get_label()),
            x or "x": line.get_xdata(),
            y or "y": line.get_ydata(),
        })
        for axes in drawn
        for line in axes.get_lines()
        if len(line.get_xdata())  # type: ignore[arg-type]
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["panel", "series", "x", "y"])


def latex_text(numbers: pd.DataFrame) -> str:
    r"""Return a table of numbers as a LaTeX table for the package booktabs. Unknown numbers (NaN) become dashes.

    A mean and its interval share one column, as `mean \pm half width`, or `mean (low to high)` for an asymmetric
    interval.
    """
    whole, numbers = numbers, _with_intervals(numbers)
    right = [pd.api.types.is_numeric_dtype(whole[name]) for name in numbers]
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if numeric else 'l' for numeric in right)}}}",
        r"\toprule",
        _row(map(escaped, map(str, numbers.columns))),
        r"\midrule",
        *(_row(map(_cell, row)) for row in numbers.itertuples(index=False)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    r"""Return a row of a LaTeX table.

    A leading `[` or `*` is put in braces, because LaTeX would read it as an option.
    """
    return re.sub(r"^[\[*]", r"{\g<0>}", " & ".join(cells)) + r" \\"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "--" if math.isnan(value) else _digits(value)
    return _interval_text(value) if isinstance(value, Interval) else escaped(str(value))


def _digits(value: float) -> str:
    return f"{float(f'{value:.{LATEX_DIGITS}g}'):g}"


def _with_intervals(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which each mean and its interval are merged into one column of text.

    The column of the mean must directly precede the column of the lower limit.
    """
    names, table = list(map(str, numbers.columns)), numbers.copy()
    for place, low in enumerate(names):
        high = re.sub(r"low(?=$| \()", "high", low)
        if place and high != low and high in names:
            mean = names[place - 1]
            rows = numbers[[mean, low, high]].astype(float).itertuples(index=False)
            table[mean] = pd.Series([Interval(*row) for row in rows], numbers.index, dtype=object)
            table = table.drop(columns=[low, high])
    return table


def _interval_text(its: Interval) -> str:
    if not (math.isfinite(its.low) and math.isfinite(its.high)):
        return _cell(its.mean)
    if abs((its.high + its.low) / 2 - its.mean) > LOPSIDED * (its.high - its.low):
        return f"{_digits(its.mean)} ({_digits(its.low)} to {_digits(its.high)})"
    return rf"${_digits(its.mean)} \pm {_digits((its.high - its.low) / 2)}$"


def _arrange_legend(figure: Figure) -> None:
    if isinstance(figure, PaperFigure) and figure.entries is not None:
        for legend in figure.legends:
            legend.remove()
        given = figure.entries
        figure.set_figheight(figure.get_figheight() - given.height_in)
        add_legend(figure, given.handles, given.handle_em, given.heading)


def _set_title(figure: Figure, title: str) -> None:
    lines = title.count("\n") + 1
    figure.set_figheight(figure.get_figheight() + (lines * 1.2 + 0.4) * TITLE_PT / POINTS_PER_IN)
    if figure.legends:
        above = figure.legends[0].get_title()
        above.set_multialignment("center")
        heading = above.get_text()
        figure.legends[0].set_title(f"{title}\n{heading}" if heading else title, prop=FontProperties(size=TITLE_PT))
    else:
        figure.suptitle(title, fontsize=TITLE_PT)

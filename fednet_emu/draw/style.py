"""The common style of figures, which fits a two-column paper and is readable in greyscale and with colour blindness."""

from __future__ import annotations

import base64
import io
import math
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from fednet_emu.draw.palette import LINE_COLOURS

if TYPE_CHECKING:
    import pandas as pd

WIDTH_IN, PAGE_WIDTH_IN = 3.5, 7.16
"""Width of one column and width of the text area of a two-column paper, in inches."""
SIZES = {"one-column": WIDTH_IN, "two-column": PAGE_WIDTH_IN}
CURVE_HEIGHT_IN = 2.2
SMALL_PT = 7.0
SCREEN_DPI = 150
POINTS_PER_IN = 72.0
CLOSE_TO_1 = 0.97
LOGIT_TICKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.97, 0.99, 0.997, 0.999)
LABEL_LENGTH = 52
"""Maximum number of characters per line of a run's label. Such a line fits next to a legend handle in 7 pt text."""

TARGET_LINE: dict[str, Any] = {"color": "0.35", "linewidth": 0.7, "linestyle": (0, (2, 2)), "zorder": 1.5}

_LEGEND_PADS: dict[str, float] = {"borderaxespad": 0.3, "borderpad": 0.1, "handletextpad": 0.6, "columnspacing": 1.2}
_DASHES = ("-", (0, (4, 1.5)), (0, (5, 1.2, 1, 1.2)), (0, (1, 1)), (0, (6, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

_SETTINGS = {
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": SMALL_PT,
    "legend.fontsize": SMALL_PT,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.2,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelspacing": 0.35,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fednet_emu",
    "pgf.rcfonts": False,  # PGF figures use the fonts of the including document
}


_ALONE = threading.RLock()
"""Lock that allows only one thread to plot at a time, because Matplotlib's settings apply to the whole process."""


@contextmanager
def paper_style() -> Iterator[None]:
    """Context manager that replaces the user's Matplotlib settings; only one thread at a time can enter it."""
    with _ALONE, style.context(["default", _SETTINGS]):
        yield


class Entries(NamedTuple):
    """The entries of a legend: labelled handles, handle width, height of the legend, and heading."""

    handles: Sequence[Artist]
    handle_em: float
    height_in: float
    heading: str


class PaperFigure(Figure):
    """A figure that a notebook displays without pyplot, in the same style as when it is saved to a file.

    Attributes:
        numbers: the plotted numbers as a table. None if they can be read from the lines of the figure.
        entries: the entries of the legend. None if the figure has no legend.
    """

    numbers: pd.DataFrame | None = None
    entries: Entries | None = None

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        with paper_style():
            self.savefig(picture, format="png", dpi=SCREEN_DPI)
        return picture.getvalue()

    def _repr_html_(self) -> str | None:
        """Return the figure as HTML for documentation galleries. A notebook gets None and uses `_repr_png_` instead."""
        if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
            return None
        return f'<img alt="figure" src="data:image/png;base64,{base64.b64encode(self._repr_png_()).decode()}">'


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> PaperFigure:
    """Return an empty figure whose layout reserves space for labels and legends. By default it is one column wide."""
    return PaperFigure(figsize=(width_in, height_in), layout="constrained")


def new_axes(height_in: float) -> tuple[PaperFigure, Axes]:
    """Return an empty figure with a single plot, and the axes of the plot."""
    figure = new_figure(height_in)
    return figure, figure.add_subplot()


def finish_axes(axes: Axes, *, grid: bool = True) -> None:
    """Set a light grid (if `grid` is True), thin ticks and small tick labels, also for ticks that are created later."""
    axes.tick_params(which="major", labelsize=SMALL_PT, width=0.5, length=2.5, pad=2.0)
    axes.tick_params(which="minor", width=0.4, length=1.5)
    if grid:
        axes.grid(visible=True, linewidth=0.3, color="0.85")
        axes.set_axisbelow(True)


def line_style(index: int) -> dict[str, Any]:
    """Return the colour, dash pattern and marker of the line with the number `index` in a figure.

    Colours repeat after 9 lines, dash patterns after 5 lines, and markers after 8 lines, so the styles of 360 lines
    differ.
    """
    return {
        "color": LINE_COLOURS[index % len(LINE_COLOURS)],
        "linestyle": _DASHES[index % len(_DASHES)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "markeredgewidth": 0.0,
    }


def wrapped(label: str, width_in: float = WIDTH_IN) -> str:
    """Return the label of a run with escaped dollar signs, broken into lines that fit the width of a figure."""
    return "\n".join(textwrap.wrap(label, round(LABEL_LENGTH * width_in / WIDTH_IN))).replace("$", r"\$")


def add_legend(figure: Figure, handles: Sequence[Artist], handle_em: float = 2.2, heading: str = "") -> None:
    """Add a legend of labelled handles above the axes, where it covers no data, and increase the figure's height.

    Long labels are broken into lines. `handle_em` is the width of the handles as a multiple of the font size, and
    `heading` is a text above the entries.
    """
    width_in = figure.get_figwidth()
    texts = [wrapped(str(handle.get_label()), width_in) for handle in handles]
    columns = _legend_columns(texts, handle_em, width_in)
    rows = math.ceil(len(texts) / columns)
    lines = sum(sorted((text.count("\n") + 1 for text in texts), reverse=True)[:rows])
    height_in = ((lines + bool(heading)) * 1.2 + rows * 0.35) * SMALL_PT / POINTS_PER_IN
    figure.set_figheight(figure.get_figheight() + height_in)
    legend = figure.legend(
        handles, texts, loc="outside upper center", ncols=columns, handlelength=handle_em, **_LEGEND_PADS
    )
    if heading:
        legend.set_title(heading, prop=FontProperties(size=SMALL_PT))
    if isinstance(figure, PaperFigure):
        figure.entries = Entries(handles, handle_em, height_in, heading)


def finish_lines(figure: Figure, axes: Axes) -> None:
    """Finish the axes of a figure with a single plot, and add a legend if there are several lines."""
    finish_axes(axes)
    add_line_legend(figure, axes)


def add_line_legend(figure: Figure, axes: Axes) -> None:
    """Add a legend of the labelled lines in `axes` if there are several lines."""
    lines = axes.get_lines()
    if len(lines) > 1:
        add_legend(figure, lines)


def _legend_columns(texts: Sequence[str], handle_em: float, width_in: float) -> int:
    """Return a number of legend columns that fits the width of the figure and gives rows of nearly equal length.

    Matplotlib fills columns one after another. A layout with two entries in the first row and one in the second row is
    avoided.
    """
    widths_in = [
        max(map(_width_in, text.splitlines())) + (handle_em + 1.8) * SMALL_PT / POINTS_PER_IN for text in texts
    ]
    for columns in range(len(texts), 1, -1):
        if sum(max(column) for column in np.array_split(widths_in, columns)) <= width_in:
            rows = math.ceil(len(texts) / columns)
            even = math.ceil(len(texts) / rows)
            return 1 if rows == 2 and len(texts) % even == 1 else even
    return 1


def _width_in(line: str) -> float:
    extent = TextPath((0.0, 0.0), line, size=SMALL_PT).get_extents() if line.strip() else None
    return float(extent.width) / POINTS_PER_IN if extent is not None else 0.0


def fit_scale(axes: Axes, direction: Literal["x", "y"]) -> None:
    """Make an axis logarithmic if all plotted values are positive and span more than a factor of 100, else linear."""
    smallest, largest = (float(limit) for limit in getattr(axes.dataLim, f"interval{direction}"))
    axis = axes.xaxis if direction == "x" else axes.yaxis
    if smallest > 0 and largest > 100.0 * smallest:
        axes.set(**{f"{direction}scale": "log"})
        axis.set_minor_formatter(NullFormatter())
    else:
        round_ticks(axis)


def fit_share_scale(axes: Axes) -> None:
    """Set a logit y axis, which spreads values near 1, if a value exceeds 0.97. Otherwise set a linear y axis."""
    smallest, largest = (float(limit) for limit in axes.dataLim.intervaly)
    if smallest > 0.0 and CLOSE_TO_1 < largest < 1.0:
        axes.set_yscale("logit")
        axes.yaxis.set_major_locator(FixedLocator(LOGIT_TICKS))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        round_ticks(axes.yaxis)


def round_ticks(axis: Axis, most: int = 6) -> None:
    """Place ticks at round numbers that divide the axis into at most `most` intervals."""
    axis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]))

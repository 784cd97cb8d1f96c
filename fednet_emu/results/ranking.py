"""The answer to which setting of a study is best, with its figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fednet_emu.analysis.ranked import RankedSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Ranking(RankedSettings):
    """The settings of a study by what reaching the target costs them, the cheapest first, to read and to draw."""

    def plot(self, *, rename: Mapping[str, str] | None = None) -> Figure:
        """Draw the costs of all runs, with the mean and the 95 % interval of each setting.

        Args:
            rename: other names for axes and levels, as for `Study.plot`.
        """
        from fednet_emu.draw.figures.study_rows import best_figure
        from fednet_emu.draw.style import paper_style

        with paper_style():
            return best_figure(self, rename)

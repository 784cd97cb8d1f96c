"""The answer to which setting of a study is best, as text, as a table and as a figure."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fednet_emu.analysis.ranking import Ranking as Ranked
from fednet_emu.analysis.ranking import rank
from fednet_emu.analysis.ranking_words import frame, lines
from fednet_emu.analysis.study import StudyView
from fednet_emu.errors import FednetError
from fednet_emu.results.comparison import Condition, Within, conditions, limits_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Ranking:
    """The settings of a study by what reaching the target costs them, the cheapest first.

    Attributes:
        view: the places, costs and limits behind the text.
    """

    view: Ranked

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each setting: levels, runs, costs, differences to the cheapest, p-value, and what limits it."""
        return frame(self.view)

    @property
    def best(self) -> list[dict[str, Any]]:
        """The levels of the settings that may be the best, the cheapest first."""
        return [dict(its.setting.levels) for its in self.view.settings if its.may_be_best]

    def lines(self) -> list[str]:
        """The ranking as lines of text."""
        return list(lines(self.view))

    def plot(self, *, rename: Mapping[str, str] | None = None) -> Figure:
        """Draw the costs of all runs, with the mean and the 95 % interval of each setting.

        Args:
            rename: other names for axes and levels, as for `Study.plot`.
        """
        from fednet_emu.draw.figures.study_best import best_figure
        from fednet_emu.draw.style import paper_style

        with paper_style():
            return best_figure(self.view, rename)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def ranked(
    view: StudyView,
    *,
    accuracy: float | None = None,
    within: Within = (),
    minimise: str = "time",
    where: Condition | None = None,
) -> Ranking:
    """Rank the settings of a study; see `Study.best`.

    Raises:
        FednetError: a limit is no positive number or is given twice, or see `rank`.
    """
    if accuracy is not None and not 0 < accuracy <= 1:
        raise FednetError(f"accuracy: must be above 0 and at most 1, got {accuracy:g}; for example 0.9")
    limits: dict[str, float] = {}
    for cost, most in limits_of(within):
        if cost in limits:
            raise FednetError(f"--within: {cost} is limited twice, got {limits[cost]:g} and {most:g}; limit it once")
        if not (most > 0 and math.isfinite(most)):
            raise FednetError(
                f"--within: a limit must be a number above 0, got {cost}={most:g}; for example time=60 or bits=2e8"
            )
        limits[cost] = most
    part = view.where(conditions(where or {}, "where"))
    return Ranking(rank(part if accuracy is None else part.aiming_at(accuracy), minimise, limits))

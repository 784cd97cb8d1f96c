"""The two sides of a comparison: two runs, two studies, or two settings of one study."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fednet_emu.analysis.compare import Difference, compare
from fednet_emu.analysis.difference_words import QUESTION, lines, sentence
from fednet_emu.analysis.study import StudyView, level_text
from fednet_emu.errors import FednetError

if TYPE_CHECKING:
    import pandas as pd

Condition = str | Mapping[str, Any]
"""The levels of some axes: `axis=level`, several of them separated by commas, or `{axis: level}`."""
CONDITION = re.compile(r",(?=[^,=]+=)")
"""Separator of conditions: a comma followed by `axis=`; other commas belong to a level."""

Within = Mapping[str, float] | Iterable[str]
"""Upper limits of what both sides may spend, as `{"time": 60}` or as texts `time=60`."""


@dataclass(frozen=True)
class Comparison:
    """The differences B - A between two sides, paired by seed, as text and as a table.

    Attributes:
        names: the names of A and B.
        differences: one for each quantity and each combination of the remaining axes, and one over all combinations.
        target: measure and level of the target that both sides share; empty if they share none.
        of_one_study: whether A and B are settings of one study, which may have more of them.
    """

    names: tuple[str, str]
    differences: Sequence[Difference]
    target: Mapping[str, float]
    of_one_study: bool = False

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each difference: means of A and B, mean of B - A, its 95 % interval, p, and the sentence.

        p is the chance of means so far apart if A and B could be exchanged within each seed.
        """
        import pandas as pd

        rows = [
            {
                "where": its.where,
                "quantity": its.quantity.column,
                "pairs": its.pairs,
                "a": its.means[0],
                "b": its.means[1],
                "difference": its.paired.mean,
                "low": its.paired.low,
                "high": its.paired.high,
                "p": its.p,
                "sentence": sentence(its, ("A", "B"), self.target),
            }
            for its in self.differences
        ]
        return pd.DataFrame(rows)

    def lines(self) -> list[str]:
        """The comparison as lines of text."""
        told = lines(self.differences, self.names, self.target)
        return [*told, *(["", QUESTION] if self.of_one_study else [])]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def between(
    view: StudyView, settings: tuple[Condition, Condition], *, accuracy: float | None = None, within: Within = ()
) -> Comparison:
    """Compare two settings of one study.

    Args:
        view: the study.
        settings: A and B.
        accuracy: a target accuracy, instead of the study's target.
        within: upper limits of what both sides may spend.

    Raises:
        FednetError: a condition or cost is malformed, or there is no such axis, level or cost.
    """
    first, second = (conditions(each, "compare") for each in settings)
    names = _text(first), _text(second)
    found = side_by_side((view.where(first), view.where(second)), names, accuracy=accuracy, within=within)
    return replace(found, of_one_study=True)


def side_by_side(
    sides: tuple[StudyView, StudyView], names: tuple[str, str], *, accuracy: float | None = None, within: Within = ()
) -> Comparison:
    """Compare two studies, or two parts of studies.

    Args:
        sides: A and B.
        names: the names of A and B in the text.
        accuracy: a target accuracy for both sides, instead of their own targets.
        within: upper limits of what both sides may spend.

    Raises:
        FednetError: there is no such cost, or nothing to pair.
    """
    first, second = sides
    if accuracy is not None:
        first, second = first.aiming_at(accuracy), second.aiming_at(accuracy)
    for cost, amount in limits_of(within):
        first, second = first.within(cost, amount), second.within(cost, amount)
    return Comparison(names, compare(first, second), first.target if first.target == second.target else {})


def limits_of(within: Within) -> list[tuple[str, float]]:
    """Return upper limits as pairs of a cost and an amount.

    Raises:
        FednetError: a text is not of the form `cost=amount`.
    """
    return list(within.items()) if isinstance(within, Mapping) else [_spending(text) for text in within]


def _spending(text: str) -> tuple[str, float]:
    cost, _, amount = (part.strip() for part in text.partition("="))
    try:
        return cost, float(amount)
    except ValueError:
        raise FednetError(f"--within: expected cost=amount, got '{text}'; for example time=60 or bits=2e8") from None


def conditions(given: Condition, option: str) -> dict[str, str]:
    """Return the level of each axis that is named, as text.

    Raises:
        FednetError: a text is malformed; `option` is what it was given to.
    """
    if isinstance(given, Mapping):
        return {axis: level_text(level) for axis, level in given.items()}
    pairs = [part.partition("=") for part in CONDITION.split(given)]
    if not all(equals and axis.strip() for axis, equals, _ in pairs):
        raise FednetError(f"{option}: expected axis=level, got '{given}'; for example access=tdma")
    return {axis.strip(): level.strip() for axis, _, level in pairs}


def _text(levels: Mapping[str, str]) -> str:
    return ",".join(f"{axis}={level}" for axis, level in levels.items())

"""The two sides of a comparison: two runs, two studies, or two settings of one study."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fednet_emu.errors import FednetError
from fednet_emu.report.views.study import StudyView, is_study, open_study, study_of_run

CONDITION = re.compile(r",(?=[^,=]+=)")
"""What separates conditions: a comma before the next `axis=`; levels may have commas of their own."""

Sides = tuple[tuple[str, str], tuple[StudyView, StudyView]]


def sides(
    folders: Sequence[Path], between: tuple[str, str] | None, accuracy: float | None, within: Sequence[str]
) -> Sides:
    """Names and views of what is compared.

    Args:
        folders: one folder of a study with `between`, else two of runs or studies.
        between: conditions `axis=level`, several with commas.
        accuracy: a target accuracy for both sides.
        within: the most that both sides may spend, each a `cost=amount`; all of them hold.

    Raises:
        FednetError: a condition or cost is malformed, or there is no such axis, level or cost.
        DataError: a folder is none of a run or study.
    """
    if between:
        view = open_study(folders[0])
        first, second = (view.where(_conditions(text)) for text in between)
        names = between
    else:
        first, second = (open_study(folder) if is_study(folder) else study_of_run(folder) for folder in folders)
        names = (str(folders[0]), str(folders[1]))
    if accuracy is not None:
        first, second = first.aiming_at(accuracy), second.aiming_at(accuracy)
    for cost, amount in map(_spending, within):
        first, second = first.within(cost, amount), second.within(cost, amount)
    return names, (first, second)


def _spending(text: str) -> tuple[str, float]:
    cost, _, amount = (part.strip() for part in text.partition("="))
    try:
        return cost, float(amount)
    except ValueError:
        raise FednetError(f"--within: expected cost=amount, got '{text}'; for example time=60 or bits=2e8") from None


def _conditions(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in CONDITION.split(text)]
    if not all(equals and axis.strip() for axis, equals, _ in pairs):
        raise FednetError(f"--between: expected axis=level, got '{text}'; for example access=tdma")
    return {axis.strip(): level.strip() for axis, _, level in pairs}

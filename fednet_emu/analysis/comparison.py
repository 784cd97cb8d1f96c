"""Two runs, two studies, or two settings of one study, compared: numbers, and one sentence for each difference.

The sentence is the same for the command line, Python and the page of a study.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from typing_extensions import override

from fednet_emu.analysis.compare import EVERYWHERE, TO_TARGET, Difference, compare
from fednet_emu.analysis.quantities import TextResult, counted
from fednet_emu.analysis.study import Condition, StudyRecords, Within, conditions, level_text, limits_of, target_text
from fednet_emu.errors import FednetError

ROUNDING = 1e-12
"""Part of the larger mean that a mean difference of nothing may have by rounding."""
HEADING = "differences B - A, paired by seed: mean, 95 % interval, and p of exchanging A and B within seeds"
QUESTION = (
    "Each line asks about these two settings alone, chosen before the runs; `fednet best` asks which of all settings "
    "may be the best."
)


@dataclass(frozen=True, repr=False)
class Comparison(TextResult):
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

    @override
    def lines(self) -> list[str]:
        told = [f"A: {self.names[0]}", f"B: {self.names[1]}"]
        told += [f"target: {target_text(self.target)}"] if self.target else []
        told.append(HEADING)
        for where in dict.fromkeys(its.where for its in self.differences):
            told.append(f"\n{where}" if where else "")
            told += [line for its in self.differences if its.where == where for line in self._block(its)]
        return [*told, *(["", QUESTION] if self.of_one_study else [])]

    def _block(self, its: Difference) -> Iterator[str]:
        yield f"  {its.quantity.title}: {sentence(its, ('A', 'B'), self.target)}"
        if its.pairs:
            yield f"    {_numbers(its)}"


def between(
    study: StudyRecords, settings: tuple[Condition, Condition], *, accuracy: float | None = None, within: Within = ()
) -> Comparison:
    """Compare the settings A and B of one study; the arguments are those of `Study.compare`.

    Raises:
        FednetError: a condition or cost is malformed, or there is no such axis, level or cost.
    """
    first, second = (conditions(each, "compare") for each in settings)
    names = tuple(",".join(f"{axis}={level_text(level)}" for axis, level in its.items()) for its in (first, second))
    found = side_by_side(
        (study.where(first), study.where(second)), (names[0], names[1]), accuracy=accuracy, within=within
    )
    return replace(found, of_one_study=True)


def side_by_side(
    sides: tuple[StudyRecords, StudyRecords],
    names: tuple[str, str],
    *,
    accuracy: float | None = None,
    within: Within = (),
) -> Comparison:
    """Compare two studies, or two parts of studies, under these names; for the others see `Study.compare`.

    Raises:
        FednetError: there is no such cost, or nothing to pair.
    """
    first, second = sides
    if accuracy is not None:
        first, second = first.aiming_at(accuracy), second.aiming_at(accuracy)
    for cost, amount in limits_of(within):
        first, second = first.within(cost, amount), second.within(cost, amount)
    return Comparison(names, compare(first, second), first.target if first.target == second.target else {})


def sentence(difference: Difference, names: tuple[str, str], target: Mapping[str, float]) -> str:
    """Return a difference in words: by how much B differs from A, on how many seeds, and whether zero is possible."""
    its, mean, (low, high) = difference.quantity, difference.paired.mean, difference.paired[1:]
    if not difference.pairs:
        return _no_pair(difference, names, target)
    if difference.is_none:
        return f"{its.title} is the same with {' and '.join(names)} on every seed{_lacking(difference, names)}"
    if abs(mean) <= ROUNDING * max(map(abs, difference.means)):
        return f"{its.title} is the same with {' and '.join(names)} on average{_lacking(difference, names)}"
    phrase = its.phrase.replace("{target}", target_text(target))
    words = phrase.format(its.show(abs(mean)), its.more if mean > 0 else its.less)
    text = f"with {names[1]}, {words} than with {names[0]}"
    if not np.isfinite(low):
        return f"{text} on one seed, which does not show how much seeds vary{_lacking(difference, names)}"
    on = f"on {difference.signs[mean > 0]} of {difference.pairs} seeds"
    by = f"mean {'+' if mean > 0 else ''}{its.show(mean)}, 95 % {its.show(low)} to {its.show(high)}"
    verdict = f"the interval {'excludes' if difference.paired.excludes_zero else 'includes'} zero"
    return f"{text}, {on} ({by}): {verdict}{_lacking(difference, names)}"


def _numbers(difference: Difference) -> str:
    show = difference.quantity.show
    mean_a, mean_b = map(show, difference.means)
    text = f"A {mean_a}, B {mean_b}, pairs: {difference.pairs}"
    if difference.is_none or not np.isfinite(difference.paired.low):
        return text
    _, low, high = difference.unpaired
    return f"{text}; as if unpaired {show(low)} to {show(high)}; p = {difference.p:.2g}"


def _no_pair(difference: Difference, names: tuple[str, str], target: Mapping[str, float]) -> str:
    """Say why there is no pair: one side or both never have the quantity, or never on the same seed."""
    if difference.quantity not in TO_TARGET:
        return f"no seed has the {difference.quantity.title} with both {' and '.join(names)}"
    never = [name for name, known in zip(names, difference.known, strict=True) if not known]
    if difference.where == EVERYWHERE:
        return f"no seed reaches {target_text(target)} with both {' and '.join(names)} in every place"
    if never:
        return f"{target_text(target)} is never reached with {' or '.join(never)}"
    return f"no seed reaches {target_text(target)} with both {' and '.join(names)}"


def _lacking(difference: Difference, names: tuple[str, str]) -> str:
    """Say why not every seed counts; empty if all do."""
    if difference.pairs == difference.of:
        return ""
    verb, of = "reached it" if difference.quantity in TO_TARGET else "have it", counted(difference.of, "seed")
    if difference.where == EVERYWHERE:
        return f"; of {of}, {difference.pairs} {verb} with both in every place, and only they count"
    known = " and ".join(f"{number} with {name}" for name, number in zip(names, difference.known, strict=True))
    return f"; of {of}, {known} {verb}, and only seeds with both count"


ALL_PAIRS = 5
"""Most levels of an axis that are compared each with each; of more, each is compared with the first and the next."""
MOST = 300
"""Most comparisons of two levels in one place; an axis that would need more is left out, which its page says."""


def level_pairs(levels: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of levels of an axis that are compared."""
    if len(levels) <= ALL_PAIRS:
        return list(itertools.combinations(levels, 2))
    return list(dict.fromkeys([*itertools.pairwise(levels), *((levels[0], level) for level in levels[1:])]))


def differences(view: StudyRecords) -> Iterator[dict[str, Any]]:
    """Yield the paired differences between levels of each axis, in each place of the remaining grid and all together.

    Pairs without a common seed are left out.
    """
    for axis in compared_axes(view):
        for first, second in level_pairs(view.axes[axis]):
            names = tuple(f"{axis} = {level_text(level)}" for level in (first, second))
            try:
                found = compare(*(view.where({axis: level_text(level)}) for level in (first, second)))
            except FednetError:
                continue
            for its in found:
                yield {
                    "axis": axis,
                    "a": level_text(first),
                    "b": level_text(second),
                    "where": its.where or "everywhere",
                    "quantity": its.quantity.column,
                    "title": its.quantity.title,
                    "pairs": its.pairs,
                    "of": its.of,
                    "a_mean": its.means[0],
                    "b_mean": its.means[1],
                    "mean": its.paired.mean,
                    "low": its.paired.low,
                    "high": its.paired.high,
                    "certain": its.paired.excludes_zero,
                    "sentence": sentence(its, (names[0], names[1]), view.target),
                }


def compared_axes(view: StudyRecords) -> list[str]:
    """Return the axes whose levels are compared: those with several levels, unless there is too much to compare."""
    cells = len(view.cells) / max(1, view.cells["seed"].nunique())
    return [
        axis
        for axis, levels in view.axes.items()
        if len(levels) > 1 and len(level_pairs(levels)) * cells / len(levels) <= MOST
    ]

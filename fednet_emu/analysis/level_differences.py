"""Paired differences between the levels of a study's axes, as sentences and as rows of a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from fednet_emu.analysis.compare import compare
from fednet_emu.analysis.comparison import sentence
from fednet_emu.analysis.study import StudyRecords, level_text
from fednet_emu.errors import FednetError

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

"""Paired differences between the levels of a study's axes, as sentences and as rows of a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fednet_emu.errors import FednetError
from fednet_emu.report.quantities import counted
from fednet_emu.report.views.compare import EVERYWHERE, ROUNDING, TO_TARGET, Difference, compare
from fednet_emu.report.views.study import StudyView, level_text, target_text

PHRASES = {
    "accuracy": "the run ends with an accuracy {} {}",
    "loss": "the run ends with a loss {} {}",
    "simulated_s": "the run takes {} {}",
    "total_bit": "the run sends {} {}",
    "energy_j": "the run spends {} {}",
    "time_to_target_s": "{target} is reached {} {}",
    "bits_to_target": "{target} is reached with {} {}",
    "energy_to_target_j": "{target} is reached with {} {}",
    "rounds_to_target": "{target} is reached in {} {}",
}
"""What happens with B, by how much, and whether that is more or less."""
ALL_PAIRS = 5
"""Most levels of an axis that are compared each with each; of more, each is compared with the first and the next."""
MOST = 300
"""Most comparisons of two levels in one place; an axis that would need more is left out, which its page says."""


def level_pairs(levels: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of levels of an axis that are compared."""
    if len(levels) <= ALL_PAIRS:
        return list(itertools.combinations(levels, 2))
    return list(dict.fromkeys([*itertools.pairwise(levels), *((levels[0], level) for level in levels[1:])]))


def differences(view: StudyView) -> Iterator[dict[str, Any]]:
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


def compared_axes(view: StudyView) -> list[str]:
    """Return the axes whose levels are compared: those with several levels, unless there is too much to compare."""
    cells = len(view.cells) / max(1, view.cells["seed"].nunique())
    return [
        axis
        for axis, levels in view.axes.items()
        if len(levels) > 1 and len(level_pairs(levels)) * cells / len(levels) <= MOST
    ]


def sentence(difference: Difference, names: tuple[str, str], target: Mapping[str, float]) -> str:
    """Return a difference in words: by how much B differs from A, on how many seeds, and whether that is noise.

    Args:
        difference: B minus A.
        names: how A and B are called.
        target: the target of the study.
    """
    its, mean = difference.quantity, difference.paired.mean
    if not difference.pairs:
        return nobody(difference, names, target)
    if difference.is_none:
        return f"{its.title} is the same with {' and '.join(names)} on every seed{_lacking(difference, names)}"
    if abs(mean) <= ROUNDING * max(map(abs, difference.means)):
        return f"{its.title} is the same with {' and '.join(names)} on average{_lacking(difference, names)}"
    phrase = PHRASES[its.column].replace("{target}", target_text(target))
    words = phrase.format(its.show(abs(mean)), its.more if mean > 0 else its.less)
    text = f"with {names[1]}, {words} than with {names[0]}"
    if not np.isfinite(difference.paired.low):
        return f"{text} on one seed, which cannot tell that from noise{_lacking(difference, names)}"
    on = f"on {difference.signs[mean > 0]} of {difference.pairs} seeds"
    by = f"mean {'+' if mean > 0 else ''}{its.show(mean)}"
    spread = f"95 % {its.show(difference.paired.low)} to {its.show(difference.paired.high)}"
    verdict = f"{'more' if difference.paired.excludes_zero else 'no more'} than noise"
    return f"{text}, {on} ({by}, {spread}): {verdict}{_lacking(difference, names)}"


def nobody(difference: Difference, names: tuple[str, str], target: Mapping[str, float]) -> str:
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
    if difference.pairs == difference.of:
        return ""
    verb = "reached it" if difference.quantity in TO_TARGET else "have it"
    known = " and ".join(f"{number} with {name}" for name, number in zip(names, difference.known, strict=True))
    return f"; of {counted(difference.of, 'seed')}, {known} {verb}, and only seeds with both count"

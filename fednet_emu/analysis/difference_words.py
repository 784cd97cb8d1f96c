"""A difference between two settings in words: one sentence for the command line, Python and the page of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fednet_emu.analysis.compare import EVERYWHERE, TO_TARGET, Difference
from fednet_emu.analysis.quantities import counted
from fednet_emu.analysis.study import target_text

ROUNDING = 1e-12
"""Part of the larger mean that a mean difference of nothing may have by rounding."""
HEADING = "differences B - A, paired by seed: mean, 95 % interval, and p of exchanging A and B within seeds"
QUESTION = (
    "Each line asks about these two settings alone, chosen before the runs; `fednet best` asks which of all settings "
    "may be the best."
)


def lines(differences: Sequence[Difference], names: tuple[str, str], target: Mapping[str, float]) -> Iterator[str]:
    """The differences as text: A and B, then a block for each place."""
    yield f"A: {names[0]}"
    yield f"B: {names[1]}"
    if target:
        yield f"target: {target_text(target)}"
    yield HEADING
    for where in dict.fromkeys(difference.where for difference in differences):
        yield f"\n{where}" if where else ""
        for difference in differences:
            if difference.where == where:
                yield f"  {difference.quantity.title}: {sentence(difference, ('A', 'B'), target)}"
                if difference.pairs:
                    yield f"    {_numbers(difference)}"


def sentence(difference: Difference, names: tuple[str, str], target: Mapping[str, float]) -> str:
    """Return a difference in words: by how much B differs from A, on how many seeds, and whether zero is possible.

    Args:
        difference: B minus A.
        names: how A and B are called.
        target: the target of the study.
    """
    its, mean, (low, high) = difference.quantity, difference.paired.mean, difference.paired[1:]
    if not difference.pairs:
        return _nobody(difference, names, target)
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


def _nobody(difference: Difference, names: tuple[str, str], target: Mapping[str, float]) -> str:
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

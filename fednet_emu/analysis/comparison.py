"""Compare two runs, two studies or two settings of a study, paired by seed.

Each difference is given in numbers and as a sentence. The command line, Python and report pages use the same sentences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from typing_extensions import override

from fednet_emu.analysis.quantities import TextResult, counted, joined
from fednet_emu.analysis.ranking import positive_limits
from fednet_emu.analysis.scales import COSTS, RECORDED, TRADED, limits_text, measured
from fednet_emu.analysis.settings import Names
from fednet_emu.analysis.statistics import Paired, fewest_seeds, gaps, paired_difference
from fednet_emu.analysis.study import (
    DATA_SET,
    UNCOUNTED,
    Condition,
    StudyRecords,
    Within,
    conditions,
    level_text,
    limit_like_energies,
    require_finished,
    target_text,
)
from fednet_emu.arrays import Array
from fednet_emu.errors import FednetError

EVERYWHERE = "all together"
FLAGS = ("untrained", "unmeasured", "unpowered")
"""Columns, with the suffix `_a` or `_b`, that are True if the untrained model of this side meets the target, if its
metric was not measured, and if the energy of this side excludes the computing of a larger share of devices."""
ENERGIES = (COSTS["energy"].column, COSTS["energy"].to_target)


@dataclass(frozen=True)
class Quantity:
    """A quantity of runs that is compared, and the words that describe a difference.

    `row` formats several values in one unit. `less` and `more` are the words for a lower and a higher value, such as
    `sooner` and `later`. `phrase` is a format string for a sentence about setting B in comparison with setting A. Its
    two placeholders are the amount of the difference and one of these words.
    """

    column: str
    title: str
    row: Callable[[Sequence[float]], list[str]]
    less: str
    more: str
    phrase: str

    def show(self, amount: float) -> str:
        """Return a value as text."""
        return self.row([amount])[0]


def _scores(values: Sequence[float]) -> list[str]:
    return [f"{value:.4g}" for value in values]


SCORES = (
    Quantity("accuracy", "final accuracy", _scores, "lower", "higher", "the run ends with an accuracy {} {}"),
    Quantity("loss", "final loss", _scores, "lower", "higher", "the run ends with a loss {} {}"),
)
TOTALS = tuple(
    Quantity(its.column, f"{its.name} of the run", its.row, "less", "more", its.run) for its in TRADED.values()
)
TO_TARGET = tuple(
    Quantity(its.to_target, f"{its.name} to target", its.row, its.less, its.more, its.reached)
    for its in RECORDED.values()
)


def _quantities(limits: Collection[str]) -> tuple[Quantity, ...]:
    """Return the scores and total costs, in words for runs within limits of the given costs if there are any.

    The totals of limited costs are omitted, because they are the limits, up to the interval of evaluations.
    """
    if not limits:
        return SCORES + TOTALS
    limit, limited = "the limit" if len(limits) == 1 else "the limits", {COSTS[name].column for name in limits}
    last = f"the last evaluation within {limit}"
    return (
        *(
            replace(its, title=f"{its.column} within {limit}", phrase=f"the {its.column} at {last} is {{}} {{}}")
            for its in SCORES
        ),
        *(
            replace(its, title=its.title.replace("of the run", f"within {limit}"), phrase=f"up to {last}, {its.phrase}")
            for its in TOTALS
            if its.column not in limited
        ),
    )


@dataclass(frozen=True)
class Difference:
    """The difference B - A of one quantity between the settings A and B, for one combination of the other settings."""

    where: str
    """The levels of the axes in which A and B do not differ, as text. It is `all together` if the difference is
    computed from the mean of each seed over all combinations of these levels."""
    quantity: Quantity
    values: Array
    """The values of A and B [pairs, 2], for the seeds with which both A and B have a value."""
    known: tuple[int, int]
    """Number of seeds with a value in A, and number of seeds with a value in B; `all together`, with a value in every
    combination."""
    of: int
    """Number of seeds with which both A and B were run, even if the quantity has no value."""
    paired: Paired
    """Mean difference, paired by seed, with its 95 % interval and the p-value of the sign-change test."""
    untrained: tuple[int, int] = (0, 0)
    """Number of seeds of A and of B with which the untrained model meets the target."""
    unmeasured: tuple[int, int] = (0, 0)
    """Number of seeds of A and of B with which the metric of the target was not measured."""
    unpowered: tuple[int, int] = (0, 0)
    """Number of seeds with which the energy of A, and of B, excludes the computing of a larger share of devices; 0 for
    other quantities."""
    averaged: Sequence[str] = ()
    """The axes with several levels over which the difference is an average; empty unless it is `all together`."""
    parts: Mapping[str, Difference] = field(default_factory=dict)
    """The averaged differences, one for each combination of levels, by the levels of the axes `averaged`."""

    @property
    def pairs(self) -> int:
        """Number of seeds with values of both A and B."""
        return len(self.values)

    @property
    def means(self) -> tuple[float, float]:
        """Means of A and B over the pairs of runs with equal seeds; NaN if there are no pairs."""
        mean_a, mean_b = self.values.mean(axis=0) if self.pairs else (np.nan, np.nan)
        return float(mean_a), float(mean_b)

    @property
    def signs(self) -> tuple[int, int]:
        """Number of pairs in which B is lower than A, and number of pairs in which B is higher than A."""
        apart = gaps(*self.values.T)
        return int((apart < 0).sum()), int((apart > 0).sum())

    @property
    def is_none(self) -> bool:
        """True if A and B are equal in every pair, up to a relative difference of a millionth."""
        return self.signs == (0, 0)

    @property
    def sign(self) -> int:
        """Sign of the mean difference; 0 if the means of A and B are equal up to rounding, or unknown."""
        if self.is_none or abs(self.paired.mean) <= ROUNDING * max(map(abs, self.means)):
            return 0
        return 1 if self.paired.mean > 0 else -1

    @property
    def is_partial(self) -> bool:
        """True if A and B reached the target with different numbers of seeds, so that some runs have no counterpart."""
        return self.quantity in TO_TARGET and self.known[0] != self.known[1]

    @property
    def is_untrained(self) -> bool:
        """True if costs to reach the target are compared, although the untrained model of a run meets the target."""
        return self.quantity in TO_TARGET and any(self.untrained)

    @property
    def has_no_verdict(self) -> bool:
        """True if neither the interval nor the p-value allows a conclusion."""
        return self.is_partial or self.is_untrained or any(self.unpowered)

    @property
    def is_certain(self) -> bool:
        """True if the interval excludes zero, A and B reach the target on equally many seeds, and only by training."""
        return self.paired.excludes_zero and not self.has_no_verdict


def compare(first: StudyRecords, second: StudyRecords, limits: Mapping[str, float] | None = None) -> list[Difference]:
    """Return the differences of scores and costs between two studies, `second` minus `first`, paired by seed.

    There is a difference for each combination of levels that the studies have in common, and one over all combinations,
    unless they differ in the data set. Quantities that neither study measured are omitted. Costs to reach the target
    are omitted if the targets differ. `limits` are upper limits of costs, by which both studies are limited.

    Raises:
        FednetError: no seed and combination is common to both studies, or a study has several runs for a combination
            and seed, or energy is limited and excludes the computing of more devices on one side.
    """
    limits, axes = limits or {}, [axis for axis in first.axes if axis in second.axes]
    lacks = [not set(its.target) <= set(measured([its.evaluations])) for its in (first, second)]
    for cost, amount in limits.items():
        first, second = first.within(cost, amount), second.within(cost, amount)
    for view in (first, second):
        if view.runs.duplicated([*axes, "seed"]).any():
            own = ", ".join(axis for axis in view.axes if axis not in axes)
            raise FednetError(
                f"{view.name}: several runs for each seed, got the axis {own} on one side; name its level"
            )
    pairs = _cells(first, second, axes, lacks[0]).merge(
        _cells(second, first, axes, lacks[1]), on=[*axes, "seed"], suffixes=("_a", "_b"), sort=False
    )
    if not len(pairs):
        both = ", ".join(dict.fromkeys([first.name, second.name]))
        raise FednetError(f"{both}: nothing to pair, got no common seed; sweep the same seeds")
    one, other = pairs["uncounted_a"], pairs["uncounted_b"]
    pairs = pairs.assign(unpowered_a=one > other, unpowered_b=other > one)
    limit_like_energies([*one, *other], limits)
    quantities = _quantities(limits) + (TO_TARGET if first.target == second.target else ())
    aims = set(first.target) & set(measured([first.evaluations, second.evaluations]))  # the target may be missed
    known = [
        its
        for its in quantities
        if pairs[[f"{its.column}_a", f"{its.column}_b"]].notna().any(axis=None) or (aims and its is TO_TARGET[0])
    ]
    places = dict(_places(pairs, axes))
    found = [_difference(where, part, its) for where, part in places.items() for its in known]
    if len(places) == 1 or pairs.filter(regex=f"^{DATA_SET}(_[ab])?$").nunique().gt(1).any():
        return found
    averaged = [axis for axis in axes if pairs[axis].nunique() > 1]
    names = [", ".join(f"{axis} = {level_text(part[axis].iloc[0])}" for axis in averaged) for part in places.values()]
    seeds = pairs.groupby("seed", sort=False)
    flags = seeds[[f"{flag}_{side}" for flag in FLAGS for side in "ab"]].any()
    for its in known:  # for each side, one mean for each seed with values in all combinations
        parts = dict(zip(names, (each for each in found if each.quantity is its), strict=False))
        values = seeds[[f"{its.column}_a", f"{its.column}_b"]]
        means = values.mean().where(values.count() == len(places))
        whole = _difference(EVERYWHERE, means.join(flags), its)
        found.append(replace(whole, averaged=averaged, parts=parts))
    return found


def _cells(view: StudyRecords, other: StudyRecords, axes: Sequence[str], unmeasured: bool) -> pd.DataFrame:
    """Return the table of runs of the study `view`, in a form that can be joined with that of the study `other`.

    If an axis has numeric levels in one study and text in the other study, the numbers become text. Columns are added:
    `untrained` (the untrained model meets the target), `unmeasured`, and `uncounted` (the share of devices whose
    computing is not in the energy).
    """
    mixed = [axis for axis in axes if len({is_numeric_dtype(runs[axis]) for runs in (view.runs, other.runs)}) > 1]
    texts = {axis: view.runs[axis].map(level_text) for axis in mixed}
    first = view.runs["run"].map(view.evaluations.drop_duplicates("run").set_index("run")["simulated_s"])
    untrained = (view.runs["rounds_to_target"] == 0) & (view.runs["time_to_target_s"] == first)
    uncounted = view.runs.get(UNCOUNTED, 0.0)
    return view.runs.assign(**texts, untrained=untrained, unmeasured=unmeasured, uncounted=uncounted)


def _places(pairs: pd.DataFrame, axes: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    if not axes:
        yield "", pairs
        return
    for levels, part in pairs.groupby(list(axes), sort=False):
        yield ", ".join(f"{axis}={level_text(level)}" for axis, level in zip(axes, levels, strict=True)), part


def _difference(where: str, values: pd.DataFrame, quantity: Quantity) -> Difference:
    a, b = (values[f"{quantity.column}_{side}"].to_numpy(np.float64) for side in "ab")
    both = np.isfinite(a) & np.isfinite(b)
    flagged = {flag: (int(values[f"{flag}_a"].sum()), int(values[f"{flag}_b"].sum())) for flag in FLAGS}
    return Difference(
        where,
        quantity,
        values=np.stack([a[both], b[both]], axis=1),
        known=(int(np.isfinite(a).sum()), int(np.isfinite(b).sum())),
        of=len(values),
        paired=paired_difference(a[both], b[both]),
        untrained=flagged["untrained"],
        unmeasured=flagged["unmeasured"],
        unpowered=flagged["unpowered"] if quantity.column in ENERGIES else (0, 0),
    )


ROUNDING = 1e-12
"""Mean difference, relative to the compared values, up to which the difference counts as a rounding error."""
HEADING = "differences B - A, paired by seed: mean, 95 % interval, and p of the same test, the exchange of A and B"
QUESTION = (
    "Each line compares these two settings, chosen before the runs; `fednet best` finds which of all settings "
    "may be the best."
)


@dataclass(frozen=True, repr=False)
class Comparison(TextResult):
    """The differences B - A of two sides, paired by seed, as text and as a table.

    Attributes:
        names: the names of A and B.
        differences: for each quantity, one difference for each combination of the other settings, and one over all
            combinations.
        target: the metric of the common target and the value it must reach; empty if there is no common target.
        of_one_study: True if A and B are settings of the same study, which may have further settings.
        limits: the upper limits of costs up to which runs are compared, by the name of the cost.
        unpaired: the number of seeds of A that B has not finished, and of seeds of B that A has not finished.
        diverged: the number of runs of A, and of runs of B, that diverged.
    """

    names: tuple[str, str]
    differences: Sequence[Difference]
    target: Mapping[str, float]
    of_one_study: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    unpaired: tuple[int, int] = (0, 0)
    diverged: tuple[int, int] = (0, 0)

    @property
    def frame(self) -> pd.DataFrame:
        """The differences as a table, with one row per difference.

        Columns include the means of A and B, the mean of B - A with its 95 % confidence interval, the p-value `p`, and
        a sentence.

        The p-value is that of a permutation test. It is the probability of a mean difference at least as far from zero
        under the null hypothesis that the values of A and B with the same seed are exchangeable.
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
                "p": its.paired.p,
                "sentence": sentence(its, ("A", "B"), self.target, self.limits),
            }
            for its in self.differences
        ]
        return pd.DataFrame(rows)

    @override
    def lines(self) -> list[str]:
        lines = [f"A: {self.names[0]}", f"B: {self.names[1]}"]
        lines += [f"target: {target_text(self.target)}"] if self.target else []
        lines += [f"each run counts up to its last evaluation{limits_text(self.limits)}"] if self.limits else []
        for number, its, other in zip(self.unpaired, "AB", "BA", strict=True):
            does = "does" if number == 1 else "do"
            lines += [f"{counted(number, 'seed')} of {its} that {other} has not finished {does} not count"][:number]
        for number, its in zip(self.diverged, "AB", strict=True):
            lines += [f"{counted(number, 'run')} of {its} diverged, which counts as missing every target"][:number]
        lines.append(HEADING)
        for where in dict.fromkeys(its.where for its in self.differences):
            lines.append(f"\n{where}" if where else "")
            lines += [line for its in self.differences if its.where == where for line in self._block(its)]
        lines += [] if self.differences else ["\n  no run of A or B has an evaluation within the limits"]
        return [*lines, *(["", QUESTION] if self.of_one_study else [])]

    def _block(self, its: Difference) -> Iterator[str]:
        yield f"  {its.quantity.title}: {sentence(its, ('A', 'B'), self.target, self.limits)}"
        if its.pairs:
            yield f"    {_numbers(its)}"


def between(study: StudyRecords, settings: tuple[Condition, Condition], within: Within = ()) -> Comparison:
    """Compare the settings A and B of one study; see `Study.compare` for `within`.

    Raises:
        FednetError: a condition or cost is malformed, or an axis, level or cost does not exist.
    """
    first, second = (conditions(each, "compare", study.axes) for each in settings)
    names = tuple(",".join(f"{axis}={level_text(level)}" for axis, level in its.items()) for its in (first, second))
    sides = study.where(first), study.where(second)
    return replace(side_by_side(sides, (names[0], names[1]), within), of_one_study=True)


def side_by_side(sides: tuple[StudyRecords, StudyRecords], names: tuple[str, str], within: Within = ()) -> Comparison:
    """Compare two studies, or two subsets of studies. In the result, these are called by the given names.

    See `Study.compare` for `within`.

    Raises:
        FednetError: a cost does not exist, a limit is no positive number or is given twice, or the two studies have no
            seed in common.
    """
    (first, second), limits = sides, positive_limits(within)
    for side, name in zip(sides, names, strict=True):
        require_finished(side, name)
    target = first.target if first.target == second.target else {}
    seeds = [set(side.runs["seed"]) for side in sides]
    unpaired = len(seeds[0] - seeds[1]), len(seeds[1] - seeds[0])
    found, diverged = compare(first, second, limits), (len(first.diverged), len(second.diverged))
    return Comparison(names, found, target, limits=limits, unpaired=unpaired, diverged=diverged)


def sentence(
    difference: Difference,
    names: tuple[str, str],
    target: Mapping[str, float],
    limits: Mapping[str, float] | None = None,
) -> str:
    """Return a sentence with the mean difference, the number of seeds, and whether the interval includes zero."""
    its, mean, aim = difference.quantity, difference.paired.mean, f"{target_text(target)}{limits_text(limits or {})}"
    if difference.is_untrained:
        met = [f"{number} with {name}" for number, name in zip(difference.untrained, names, strict=True) if number]
        harder, of = "raise" if "accuracy" in target else "lower", counted(difference.of, "seed")
        return f"of {of}, the untrained model meets {aim} on {' and '.join(met)}; {harder} the target"
    if not difference.pairs or any(difference.unpowered):
        return _not_compared(difference, names, aim, " and ".join(target))
    lead, end = "", _lacking(difference, names) + _directions(difference)
    alike = all(part.is_none for part in difference.parts.values())
    over = "" if alike else f" on average over {joined(difference.averaged)}"
    if difference.is_partial:
        first, second = difference.known
        shares = f"{first} of {counted(difference.of, 'seed')} with {names[0]} and on {second} with {names[1]}"
        reached = f"{aim} is reached{' in every place' if difference.where == EVERYWHERE else ''}"
        lead = f"{reached} on {shares}, and only {counted(difference.pairs, 'seed')} with both "
        lead, end = f"{lead}{'counts' if difference.pairs == 1 else 'count'}: ", _directions(difference)
    if not difference.sign:
        on = "" if difference.is_none or over else " on average"
        seeds = "every seed" if difference.pairs == difference.of else counted(difference.pairs, "seed")
        every = f"{',' if over else ''} on {seeds}" if difference.is_none and not lead else ""
        verb = "are" if its.title.startswith(("bits", "rounds")) else "is"
        return f"{lead}{its.title} {verb} the same with {' and '.join(names)}{over}{on}{every}{end}"
    phrase = its.phrase.replace("{target}", aim)
    amount, interval = _amounts(difference)
    words = phrase.format(amount, its.more if mean > 0 else its.less)
    text = f"{lead}with {names[1]}, {words} than with {names[0]}{over}"
    if difference.pairs == 1:
        return f"{text} on one seed, which does not show how much seeds vary{end}"
    if difference.is_partial:
        return f"{text} ({interval}){end}"
    on = f"on {difference.signs[mean > 0]} of {difference.pairs} seeds"
    return f"{text}, {on} ({interval}): {_verdict(difference)}{end}"


MOST_PLACES = 4
"""Maximum number of places that a sentence names if the direction of a difference is not the same in all places."""


def _directions(difference: Difference) -> str:
    """Return a clause that names the directions of the differences in single places; empty if all are the same."""
    its = difference.quantity
    fewer, more = ([place for place, part in difference.parts.items() if part.sign == sign] for sign in (-1, 1))
    if not (fewer and more):
        return ""
    if len(difference.averaged) > 1 or len(fewer + more) > MOST_PLACES:
        return "; the direction differs between places"
    return f"; {its.less} at {joined(fewer)}, {its.more} at {joined(more)}"


def _amounts(difference: Difference) -> tuple[str, str]:
    """Return the absolute mean difference, and the mean difference with its interval if it has one, in one unit."""
    mean, *ends = difference.paired[:3]
    ends = [] if difference.is_partial or np.isnan(ends).any() else ends
    amount, text, *limits = difference.quantity.row([abs(mean), mean, *ends])
    signed = f"mean {'+' if mean > 0 else ''}{text}"
    return amount, f"{signed}, 95 % {' to '.join(limits)}" if limits else signed


def _verdict(difference: Difference) -> str:
    if difference.pairs < fewest_seeds():
        return f"{difference.pairs} seeds cannot show it, {fewest_seeds()} are the fewest that can"
    return f"the interval {'excludes' if difference.paired.excludes_zero else 'includes'} zero"


MOST_APART = 1000
"""Maximum ratio of the means of A and B that are shown in one unit."""


def _numbers(difference: Difference) -> str:
    low, high = sorted(map(abs, difference.means))
    apart = high > MOST_APART * low > 0
    row, means = difference.quantity.row, difference.means
    mean_a, mean_b = (row([mean])[0] for mean in means) if apart else row(means)
    text = f"A {mean_a}, B {mean_b}, pairs: {difference.pairs}"
    silent = difference.is_none or difference.has_no_verdict or difference.pairs < fewest_seeds()
    return text if silent else f"{text}; p = {difference.paired.p:.2g}"


def _not_compared(difference: Difference, names: tuple[str, str], aim: str, measure: str) -> str:
    if difference.pairs:
        more, fewer = names if difference.unpowered[0] else names[::-1]
        why = f"with {more}, it excludes the computing of a larger share of devices than with {fewer}"
        return f"{difference.quantity.title} is not comparable: {why}, as the power is unknown"
    if difference.quantity not in TO_TARGET:
        return f"no seed has the {difference.quantity.title} with both {' and '.join(names)}"
    unmeasured = [name for number, name in zip(difference.unmeasured, names, strict=True) if number]
    if unmeasured:
        return f"the {measure} was not measured with {' or '.join(unmeasured)}"
    parts = difference.parts.values() or [difference]
    never = [name for side, name in enumerate(names) if not any(part.known[side] for part in parts)]
    if never:
        return f"{aim} is never reached with {' or '.join(never)}"
    place = " in every place" if difference.where == EVERYWHERE else ""
    return f"no seed reaches {aim} with both {' and '.join(names)}{place}"


def _lacking(difference: Difference, names: tuple[str, str]) -> str:
    """Return a clause that states how many seeds are excluded from the comparison and why; empty if none is."""
    if difference.pairs == difference.of:
        return ""
    verb, of = "reached it" if difference.quantity in TO_TARGET else "have it", counted(difference.of, "seed")
    if difference.where == EVERYWHERE:
        return f"; of {of}, {difference.pairs} {verb} with both in every place, and only they count"
    known = " and ".join(f"{number} with {name}" for name, number in zip(names, difference.known, strict=True))
    return f"; of {of}, {known} {verb}, and only seeds with both count"


ALL_PAIRS = 5
"""Maximum number of levels of an axis for which all pairs of levels are compared. With more levels, each level is only
compared with the first level and with the next level."""
MOST = 300
"""Maximum number of comparisons of the levels of one axis. An axis with more comparisons is omitted, with a note on the
page."""


def level_pairs(levels: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of levels of an axis that are compared with each other; see `ALL_PAIRS`."""
    if len(levels) <= ALL_PAIRS:
        return list(itertools.combinations(levels, 2))
    return list(dict.fromkeys([*itertools.pairwise(levels), *((levels[0], level) for level in levels[1:])]))


def differences(view: StudyRecords) -> Iterator[dict[str, Any]]:
    """Yield the differences between pairs of levels of each axis of a study, paired by seed, as rows of a table.

    Differences are computed for each combination of levels of the other axes, and over all combinations. Pairs of
    levels without a common seed are omitted.
    """
    called = Names(view.axes)
    for axis in compared_axes(view):
        for first, second in level_pairs(view.axes[axis]):
            names = tuple(called.whole({axis: level}) for level in (first, second))
            a, b = (view.where({axis: level_text(level)}) for level in (first, second))
            try:
                found = compare(a, b)
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
                    "certain": its.is_certain,
                    "sentence": sentence(its, (names[0], names[1]), view.target),
                }


def compared_axes(view: StudyRecords) -> list[str]:
    """Return the names of the axes of a study that have several levels and at most `MOST` comparisons of levels."""
    runs = len(view.runs) / max(1, view.runs["seed"].nunique())
    return [
        axis
        for axis, levels in view.axes.items()
        if len(levels) > 1 and len(level_pairs(levels)) * runs / len(levels) <= MOST
    ]

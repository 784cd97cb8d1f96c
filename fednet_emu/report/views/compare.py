"""Differences between two settings, with the seeds paired: the same seed has the same channel, data and stragglers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fednet_emu.errors import FednetError
from fednet_emu.report.quantities import counted, format_bits, format_energy, format_seconds
from fednet_emu.report.views.statistics import Interval, paired_difference, unpaired_difference
from fednet_emu.report.views.study import StudyView, level_text, target_text

EVERYWHERE = "all together"
ROUNDING = 1e-12
"""Part of the larger mean that a mean difference of nothing may have by rounding."""


@dataclass(frozen=True)
class Quantity:
    """What is compared: its column, its name, how it is written, and the words for less and for more of it."""

    column: str
    title: str
    show: Callable[[float], str]
    less: str
    more: str
    words: str = "B takes {} {}"


def _score(value: float) -> str:
    return f"{value:.4g}"


def _rounds(value: float) -> str:
    return f"{value:.4g} rounds"


QUANTITIES = (
    Quantity("accuracy", "final accuracy", _score, "lower", "higher", "B is {} {}"),
    Quantity("loss", "final loss", _score, "lower", "higher", "B is {} {}"),
    Quantity("simulated_s", "time of the run", format_seconds, "less", "more"),
    Quantity("total_bit", "bits of the run", format_bits, "less", "more"),
    Quantity("energy_j", "energy of the run", format_energy, "less", "more"),
)
TO_TARGET = (
    Quantity("time_to_target_s", "time to target", format_seconds, "sooner", "later", "B is {} {}"),
    Quantity("bits_to_target", "bits to target", format_bits, "less", "more"),
    Quantity("energy_to_target_j", "energy to target", format_energy, "less", "more"),
    Quantity("rounds_to_target", "rounds to target", _rounds, "fewer", "more"),
)


@dataclass(frozen=True)
class Difference:
    """B minus A of one quantity in one place of the remaining grid.

    Attributes:
        where: the levels of the remaining axes, or `all together`: each seed's mean over all places.
        quantity: what is compared.
        pairs: how many seeds have it on both sides.
        known: how many have it in A and in B.
        of: how many there are.
        means: of A and B, over the pairs.
        paired: mean difference and 95 % interval, seed by seed.
        unpaired: the same as if the seeds had nothing in common.
        signs: in how many pairs B has less of it than A, and in how many it has more.
    """

    where: str
    quantity: Quantity
    pairs: int
    known: tuple[int, int]
    of: int
    means: tuple[float, float]
    paired: Interval
    unpaired: Interval
    signs: tuple[int, int]

    @property
    def is_none(self) -> bool:
        """Whether A and B are equal in every pair."""
        return self.paired.mean == 0 and not self.paired.low < 0

    @property
    def verdict(self) -> str:
        """The difference in words."""
        if not self.pairs:
            return "no pair has it on both sides"
        if self.is_none:
            return "the same in every pair"
        quantity, mean = self.quantity, self.paired.mean
        if abs(mean) <= ROUNDING * max(map(abs, self.means)):
            return "the same on average, with differences of both signs: no more than noise"
        words = quantity.words.format(quantity.show(abs(mean)), quantity.more if mean > 0 else quantity.less)
        if not np.isfinite(self.paired.low):
            return f"{words}; one pair cannot tell that from noise"
        return f"{words}: {'more' if self.paired.excludes_zero else 'no more'} than noise"


def compare(first: StudyView, second: StudyView) -> list[Difference]:
    """The differences second - first for each place of the grid that both have, and then all together.

    What was measured on neither side is left out, and so is the way to different targets.

    Raises:
        FednetError: there is no seed and place in common, or one side has several cells for them.
    """
    axes = [axis for axis in first.axes if axis in second.axes]
    for view in (first, second):
        _refuse_repeats(view, axes)
    pairs = _cells(first, second, axes).merge(
        _cells(second, first, axes), on=[*axes, "seed"], suffixes=("_a", "_b"), sort=False
    )
    if not len(pairs):
        raise FednetError(f"{first.name}, {second.name}: nothing to pair, got no common seed; sweep the same seeds")
    quantities = QUANTITIES + (TO_TARGET if first.target == second.target else ())
    measured = [its for its in quantities if pairs[[f"{its.column}_a", f"{its.column}_b"]].notna().any(axis=None)]
    found = [_difference(where, part, its) for where, part in _places(pairs, axes) for its in measured]
    places = pairs[axes].drop_duplicates() if axes else pairs[:1]
    if len(places) > 1:
        found += [_difference(EVERYWHERE, _seed_means(pairs, its, len(places)), its) for its in measured]
    return found


def lines(differences: Sequence[Difference], names: tuple[str, str], target: Mapping[str, float]) -> Iterator[str]:
    """The differences as text: A and B, then a block for each place."""
    yield f"A: {names[0]}"
    yield f"B: {names[1]}"
    if target:
        yield f"target: {target_text(target)}"
    yield "differences B - A, mean and 95 % interval, paired by seed and as if unpaired"
    for where in dict.fromkeys(difference.where for difference in differences):
        yield f"\n{where}" if where else ""
        for difference in differences:
            if difference.where == where:
                yield from _lines(difference)


def _lines(difference: Difference) -> Iterator[str]:
    show, (mean_a, mean_b) = difference.quantity.show, difference.means
    means = f" (A {show(mean_a)}, B {show(mean_b)}, pairs: {difference.pairs})" if difference.pairs else ""
    yield f"  {difference.quantity.title}: {difference.verdict}{means}"
    if np.isfinite(difference.paired.low) and not difference.is_none:
        paired, unpaired = (f"{show(low)} to {show(high)}" for _, low, high in (difference.paired, difference.unpaired))
        yield f"    paired {paired}; unpaired {unpaired}"
    if difference.pairs < difference.of:
        yield f"    {_gaps(difference)}"


def _gaps(difference: Difference) -> str:
    """Why not every seed counts."""
    (known_a, known_b), of = difference.known, difference.of
    if difference.where == EVERYWHERE:
        have = "seed has" if of == 1 else "seeds have"
        return f"{difference.pairs} of {of} {have} it on both sides in every place; only they count"
    verb = "reached" if difference.quantity in TO_TARGET else "measured"
    times_a, times_b = counted(known_a, "time"), counted(known_b, "time")
    return f"{verb} {times_a} in A and {times_b} in B of {of}; pairs of both count"


def _refuse_repeats(view: StudyView, axes: Sequence[str]) -> None:
    if view.cells.duplicated([*axes, "seed"]).any():
        own = ", ".join(axis for axis in view.axes if axis not in axes)
        raise FednetError(f"{view.name}: several cells for each seed, got the axis {own} on one side; name its level")


def _cells(view: StudyView, other: StudyView, axes: Sequence[str]) -> pd.DataFrame:
    """The cells of a view; an axis that has numbers in one view and text in the other is text in both."""
    mixed = [axis for axis in axes if len({is_numeric_dtype(cells[axis]) for cells in (view.cells, other.cells)}) > 1]
    return view.cells.assign(**{axis: view.cells[axis].map(level_text) for axis in mixed})


def _places(pairs: pd.DataFrame, axes: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    if not axes:
        yield "", pairs
        return
    for levels, part in pairs.groupby(list(axes), sort=False):
        yield ", ".join(f"{axis}={level_text(level)}" for axis, level in zip(axes, levels, strict=True)), part


def _seed_means(pairs: pd.DataFrame, quantity: Quantity, places: int) -> pd.DataFrame:
    """Each seed's mean over the places; NaN unless the seed has it everywhere: seeds, not cells, are repetitions."""
    seeds = pairs.groupby("seed")[[f"{quantity.column}_a", f"{quantity.column}_b"]]
    return seeds.mean()[seeds.count().min(axis=1) == places].reindex(pairs["seed"].unique())


def _difference(where: str, values: pd.DataFrame, quantity: Quantity) -> Difference:
    a, b = (values[f"{quantity.column}_{side}"].to_numpy(np.float64) for side in "ab")
    both = np.isfinite(a) & np.isfinite(b)
    return Difference(
        where,
        quantity,
        pairs=int(both.sum()),
        known=(int(np.isfinite(a).sum()), int(np.isfinite(b).sum())),
        of=len(values),
        means=(float(a[both].mean()), float(b[both].mean())) if both.any() else (np.nan, np.nan),
        paired=paired_difference(a[both], b[both]),
        unpaired=unpaired_difference(a[np.isfinite(a)], b[np.isfinite(b)]),
        signs=(int((b < a)[both].sum()), int((b > a)[both].sum())),
    )

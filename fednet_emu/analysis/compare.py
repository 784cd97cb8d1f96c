"""Differences between two settings, with the seeds paired: the same seed has the same channel, data and stragglers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fednet_emu.analysis.confidence_set import chance_of_range
from fednet_emu.analysis.scales import RECORDED, TRADED
from fednet_emu.analysis.statistics import Interval, paired_difference, unpaired_difference
from fednet_emu.analysis.study import StudyRecords, level_text
from fednet_emu.arrays import Array
from fednet_emu.errors import FednetError

EVERYWHERE = "all together"


@dataclass(frozen=True)
class Quantity:
    """What is compared: its column, its name, how it is written, and the words for less and for more of it.

    `phrase` says what happens with B, by how much, and whether that is less or more than with A.
    """

    column: str
    title: str
    show: Callable[[float], str]
    less: str
    more: str
    phrase: str


def _score(value: float) -> str:
    return f"{value:.4g}"


QUANTITIES = (
    Quantity("accuracy", "final accuracy", _score, "lower", "higher", "the run ends with an accuracy {} {}"),
    Quantity("loss", "final loss", _score, "lower", "higher", "the run ends with a loss {} {}"),
    *(Quantity(its.column, f"{its.name} of the run", its.show, "less", "more", its.run) for its in TRADED.values()),
)
TO_TARGET = tuple(
    Quantity(its.to_target, f"{its.name} to target", its.show, its.less, its.more, its.reached)
    for its in RECORDED.values()
)


@dataclass(frozen=True)
class Difference:
    """B minus A of one quantity in one place of the remaining grid.

    Attributes:
        where: the levels of the remaining axes, or `all together`: each seed's mean over all places.
        quantity: what is compared.
        values: those of A and B on the seeds that have it on both sides, [pairs, 2].
        known: how many have it in A and in B.
        of: how many there are.
        paired: mean difference and 95 % interval, seed by seed.
        unpaired: the same as if the seeds had nothing in common.
    """

    where: str
    quantity: Quantity
    values: Array
    known: tuple[int, int]
    of: int
    paired: Interval
    unpaired: Interval

    @property
    def pairs(self) -> int:
        """How many seeds have it on both sides."""
        return len(self.values)

    @property
    def means(self) -> tuple[float, float]:
        """The means of A and B over the pairs; NaN without any."""
        mean_a, mean_b = self.values.mean(axis=0) if self.pairs else (np.nan, np.nan)
        return float(mean_a), float(mean_b)

    @property
    def signs(self) -> tuple[int, int]:
        """In how many pairs B has less of it than A, and in how many it has more."""
        a, b = self.values.T
        return int((b < a).sum()), int((b > a).sum())

    @property
    def is_none(self) -> bool:
        """Whether A and B are equal in every pair."""
        return self.paired.mean == 0 and not self.paired.low < 0

    @property
    def p(self) -> float:
        """The chance of means so far apart if A and B could be exchanged within each seed, as in a ranking of both."""
        return chance_of_range(self.values) if self.pairs else np.nan


def compare(first: StudyRecords, second: StudyRecords) -> list[Difference]:
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


def _refuse_repeats(view: StudyRecords, axes: Sequence[str]) -> None:
    if view.cells.duplicated([*axes, "seed"]).any():
        own = ", ".join(axis for axis in view.axes if axis not in axes)
        raise FednetError(f"{view.name}: several cells for each seed, got the axis {own} on one side; name its level")


def _cells(view: StudyRecords, other: StudyRecords, axes: Sequence[str]) -> pd.DataFrame:
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
        values=np.stack([a[both], b[both]], axis=1),
        known=(int(np.isfinite(a).sum()), int(np.isfinite(b).sum())),
        of=len(values),
        paired=paired_difference(a[both], b[both]),
        unpaired=unpaired_difference(a[np.isfinite(a)], b[np.isfinite(b)]),
    )

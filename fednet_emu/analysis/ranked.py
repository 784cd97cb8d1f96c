"""A ranking of settings: its places and costs, as a table and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from typing_extensions import override

from fednet_emu.analysis.confidence_set import ALPHA, fewest_seeds, smallest_p
from fednet_emu.analysis.quantities import TextResult, counted
from fednet_emu.analysis.scales import COSTS, Cost, limits_text
from fednet_emu.analysis.settings import Setting
from fednet_emu.analysis.statistics import Interval
from fednet_emu.analysis.study import level_text, target_text
from fednet_emu.arrays import Array, Mask

MOST_NAMED = 4
"""Most settings that a sentence names."""
QUESTION = (
    "p: the chance of means so far apart if all settings up to this one were equally good; "
    "intervals are of one setting, or of two, alone"
)
ENDED, DIVERGED = "ended", "diverged"
"""Why a run did not reach the target, beside the limit of a cost: it ended with budget left, or it diverged."""


@dataclass(frozen=True)
class Ranked:
    """A setting in its place."""

    setting: Setting
    """Its levels and its label."""
    costs: Array
    """The restricted cost of each seed, [seeds]."""
    got_there: Mask
    """Which seeds reached the target within the limits, [seeds]."""
    cost: Interval
    """Mean of the costs, and its 95 % interval."""
    difference: Interval
    """What it costs more than the cheapest setting, paired by seed, with its 95 % interval."""
    p: float
    """The chance that all settings up to this one differ so much if they are equally good; the smallest level at which
    it is not the best."""
    may_be_best: bool
    """Whether it may be the best of all settings."""
    seeds_needed: float
    """How many seeds would drop it, or the cheapest, if these two differ as it seems."""
    limited_by: Mapping[str, int]
    """How many runs did not get there for which reason."""

    @property
    def reached(self) -> str:
        """How many runs reached the target, in words."""
        return f"{int(self.got_there.sum())} of {len(self.costs)}"

    @property
    def limits(self) -> str:
        """What kept runs from the target, in words; empty if all reached it."""
        causes = {
            cause: "never reached it" if cause == ENDED else cause if cause == DIVERGED else f"limit of {cause}"
            for cause in self.limited_by
        }
        return ", ".join(f"{causes[cause]}: {counted(runs, 'run')}" for cause, runs in self.limited_by.items())

    @property
    def more_seeds(self) -> int:
        """How many more seeds would decide between this setting and the cheapest."""
        return max(1, int(self.seeds_needed) - len(self.costs))


@dataclass(frozen=True, repr=False)
class RankedSettings(TextResult):
    """The settings of a study by what reaching the target costs them, the cheapest first."""

    name: str
    """The study."""
    target: Mapping[str, float]
    """Measure and level that runs have to reach."""
    minimised: str
    """The cost that is compared, a key of `COSTS`."""
    limits: Mapping[str, float]
    """The largest amount of each limited cost."""
    seeds: Sequence[int]
    """The seeds that all settings have."""
    settings: Sequence[Ranked]
    """The settings in their places."""
    horizon: float
    """The largest cost that counts."""
    first_ended: tuple[str, int] | None
    """The setting and the seed of the run that set the horizon because it ended with budget left."""
    late: int
    """How many runs reached the target beyond the horizon."""
    left_out: Sequence[str]
    """Labels of settings that have no finished run."""
    more_seeds: int
    """How many seeds are left out, because some settings do not have them."""

    @property
    def cost(self) -> Cost:
        """The cost that is compared."""
        return COSTS[self.minimised]

    @property
    def best(self) -> list[dict[str, Any]]:
        """The levels of the settings that may be the best, the cheapest first."""
        return [dict(its.setting.levels) for its in self.settings if its.may_be_best]

    @property
    def undecided(self) -> list[Ranked]:
        """The settings that may be the best, too, beside the cheapest."""
        return [its for its in self.settings[1:] if its.may_be_best]

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each setting: levels, runs, costs, differences to the cheapest, p-value, and what limits it."""
        rows = []
        for place, its in enumerate(self.settings, start=1):
            rows.append(
                {
                    "place": place,
                    **{axis: level_text(level) for axis, level in its.setting.levels.items()},
                    "runs": len(its.costs),
                    "reached": int(its.got_there.sum()),
                    **_interval(self.cost.to_target, its.cost),
                    **_interval("difference", its.difference if place > 1 else (math.nan,) * 3),
                    "p": its.p if place > 1 else math.nan,
                    "may_be_best": its.may_be_best,
                    "seeds_needed": its.seeds_needed if place > 1 and its.may_be_best else math.nan,
                    "limited_by": its.limits,
                }
            )
        return pd.DataFrame(rows)

    @property
    def headline(self) -> str:
        """The answer in short: what is best, and what may be the best, too."""
        return " ".join([self._first(), *(self._rest() if len(self.settings) > 1 else ())])

    @property
    def words(self) -> list[str]:
        """The answer in sentences: what is best, what is as good, how sure that is, and how runs were counted."""
        sentences = [self._first(), *self._rest(), *self._more_seeds(), *self._counted()]
        if self.left_out:
            sentences.append(f"Left out, because no run has finished: {_named(self.left_out)}.")
        if self.more_seeds:
            count = "does" if self.more_seeds == 1 else "do"
            sentences.append(
                f"{counted(self.more_seeds, 'seed')} that not every setting has finished {count} not count."
            )
        return sentences

    @override
    def lines(self) -> list[str]:
        title = f"{self.cost.title.lower()} to target"
        lines = [*self.words, f"\n{title}: mean and 95 % interval over {counted(len(self.seeds), 'seed')}"]
        lines += [QUESTION] if len(self.settings) > 1 else []
        return [*lines, *(line for place, its in enumerate(self.settings, start=1) for line in self._block(place, its))]

    def against_best(self, its: Ranked) -> str:
        """Return in words what a setting costs more than the cheapest, and whether it may be the best of all."""
        show, difference = self.cost.show, its.difference
        text = f"{show(difference.mean)} {self.cost.more}" if difference.mean > 0 else "the same on average"
        if np.isfinite(difference.low) and difference.high > difference.low:
            text += f" ({show(difference.low)} to {show(difference.high)})"
        verdict = f"may be the best of {len(self.settings)}" if its.may_be_best else "not the best"
        text += f": {verdict}, p = {its.p:.2g}"
        if its.may_be_best and math.isfinite(its.seeds_needed):
            text += f"; {_about(its.more_seeds)} would probably decide"
        return text

    def _first(self) -> str:
        its, show = self.settings[0], self.cost.show
        best = self.cost.best.format(show(its.cost.mean), within=limits_text(self.limits))
        text = f"{its.setting.label} reaches {target_text(self.target)} {best}"
        if np.isfinite(its.cost.low):
            text += f" on average (95 % {self._ends(its)})"
        if not its.got_there.all():
            text += f", in {int(its.got_there.sum())} of {counted(len(its.costs), 'run')}"
        return f"{text}."

    def _ends(self, its: Ranked) -> str:
        """The ends of the interval of a setting's mean cost, which is not below zero."""
        return f"{self.cost.show(max(its.cost.low, 0.0))} to {self.cost.show(its.cost.high)}"

    def _rest(self) -> Iterator[str]:
        undecided, others = self.undecided, [its for its in self.settings if not its.may_be_best]
        if len(self.settings) == 1:
            yield "There is no other setting to compare it with."
            return
        if undecided:
            yield f"{_named([its.setting.label for its in undecided])} may be the best, too."
        if others:
            names = _named([its.setting.label for its in others])
            yield f"Not the best: {names} (p at most {max(its.p for its in others):.2g})."

    def _more_seeds(self) -> Iterator[str]:
        undecided, seeds = self.undecided, len(self.seeds)
        if not undecided:
            return
        left = len(undecided) + 1
        if seeds == 1:
            least = f"at least {fewest_seeds()} can decide between two settings"
            yield f"One seed does not show how much seeds vary; {least}."
            return
        if smallest_p(left, seeds) > ALPHA:
            yield (
                f"Between the {left} that are left, {seeds} seeds cannot decide, however they differ (p is at least "
                f"{smallest_p(left, seeds):.3g}); {fewest_seeds(left)} can."
            )
        known = {its.setting.label: its.more_seeds for its in undecided if math.isfinite(its.seeds_needed)}
        if known:
            least, most = min(known, key=lambda name: known[name]), max(known.values())
            all_of = "these" if len(known) < len(undecided) else "them"
            rest = f", and {most} about all of {all_of}" if most > known[least] else ""
            yield f"If they differ as it seems, {_about(known[least])} would probably decide about {least}{rest}."
        endless = [its.setting.label for its in undecided if its.setting.label not in known]
        if endless:
            yield f"No reasonable number of seeds would decide about {_named(endless)}: take them as equally good."

    def _counted(self) -> Iterator[str]:
        failed = sum(int((~its.got_there).sum()) for its in self.settings)
        if not failed:
            return
        text = f"{counted(failed, 'run')} did not reach it and {_count(failed)} as {self.cost.show(self.horizon)}"
        if self.first_ended is None:
            own = self.minimised in self.limits
            yield f"{text}, {'the limit' if own else 'the most that any run spent within the limits'}."
            return
        label, seed = self.first_ended
        yield f"{text}, where {label} with seed {seed} ended with budget left."
        if self.late:
            late = f"{counted(self.late, 'run')} that reached it later {_count(self.late)} as that, too"
            yield f"{late}: let runs go on for longer to tell more."

    def _block(self, place: int, its: Ranked) -> Iterator[str]:
        show = self.cost.show
        spread = f" ({self._ends(its)})" if np.isfinite(its.cost.low) else ""
        least = "at least " if not its.got_there.any() else ""
        yield f"{place:2}. {its.setting.label}: {least}{show(its.cost.mean)}{spread}, reached by {its.reached}"
        if place > 1:
            yield f"    {self.against_best(its)}"
        if its.limited_by:
            yield f"    {its.limits}"


def _interval(name: str, values: Sequence[float]) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _count(runs: int) -> str:
    return "counts" if runs == 1 else "count"


def _about(more: int) -> str:
    return f"{more} more seed{'s' if more > 1 else ''}"


def _named(labels: Sequence[str]) -> str:
    if len(labels) > MOST_NAMED:
        return f"{len(labels)} others"
    return f"{', '.join(labels[:-1])} and {labels[-1]}" if len(labels) > 1 else labels[0]

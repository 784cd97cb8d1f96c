"""The ranking of the settings of a study by the cost (such as time or energy) to reach a target, as table and text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from typing_extensions import override

from fednet_emu.analysis.quantities import TextResult, counted, joined
from fednet_emu.analysis.scales import COSTS, PER_RUN, Cost, limits_text
from fednet_emu.analysis.settings import Setting
from fednet_emu.analysis.statistics import ALPHA, Interval, Paired, fewest_seeds, smallest_p
from fednet_emu.analysis.study import level_text, target_text
from fednet_emu.arrays import Array, Mask

MOST_NAMED = 4
"""Maximum number of settings that a sentence names."""
MARGIN = 0.05
"""Margin of equivalence. A setting counts as equally good as the first setting of the ranking if the 95 % interval of
their cost difference lies within plus or minus this fraction of the first setting's mean cost."""
QUESTION = (
    "p: the chance of means so far apart if all settings up to this one were equally good; "
    "intervals are of the mean of one setting"
)
ENDED, DIVERGED, MISSED, UNKNOWN = "ended", "diverged", "missed", "unknown"
"""Reasons for which a run missed the target, apart from exceeded limits: it ended within all limits, it diverged, it
ended and settings are compared by a cost of the whole run, or a limited cost is unknown."""
_CAUSES = {ENDED: "never reached it", MISSED: "never reached it", DIVERGED: DIVERGED, UNKNOWN: "limited cost unknown"}


@dataclass(frozen=True)
class Ranked:
    """A setting of a study with its costs, its rank statistics and the comparison with the best-ranked setting."""

    setting: Setting
    costs: Array
    """Cost of each run [seeds] up to the time at which the run reached the target or ended. If a run diverged or
    exceeded a limit, it is the cost `RankedSettings.most`."""
    got_there: Mask
    """Mask [seeds] of runs that reached the target within the limits."""
    median: float
    """Kaplan-Meier median of the cost to reach the target. NaN unless more than half of the runs reached the target."""
    limited_by: Mapping[str, int]
    """Number of runs that missed the target, for each reason."""
    lower_bounds: int
    """Number of runs that reached the target and whose costs are lower bounds."""
    cost: Interval = field(default_factory=Interval)
    """Mean cost to reach the target, with its 95 % interval. NaN unless all runs reached the target."""
    difference: Paired = field(default_factory=Paired)
    """Difference of the cost from that of the first setting of the ranking, paired by seed. If a run of a pair ended
    early, the costs of the pair are compared only up to the cost at which this run ended.
    """
    restricted: tuple[float, float] = (math.nan, math.nan)
    """Mean costs of this setting and of the first setting, over the pairs of runs that `difference` compares."""
    horizon: tuple[float, float] = (math.nan, math.nan)
    """Minimum and maximum cost at which runs of the compared pairs ended early. NaN if no run ended early."""
    p: float = math.nan
    """The p-value: the probability of mean costs at least as far apart under the hypothesis that all settings up to
    this rank are equally good. If it is at most 0.05, the setting is not in the set of settings that may be the best.
    NaN if the setting is not ranked, or if it is in this set only because more of its runs reached the target.
    """
    may_be_best: bool = False
    seeds_needed: float = math.nan
    """Number of seeds with which a test shows with a probability of 80 % whether this setting or the first setting is
    better, if the true difference equals the observed one."""
    is_same: bool = False
    """True if each run reached the target at the same cost as the first setting's run with the same seed."""
    is_known: bool = True
    """False if the cost of a run of this setting or of the first setting is a lower bound."""
    not_ranked: str = ""
    """The reason why the setting is not ranked. Empty if it is ranked."""

    @property
    def share(self) -> int:
        """Number of runs that reached the target."""
        return int(self.got_there.sum())

    @property
    def reached(self) -> str:
        """Number of runs that reached the target and total number of runs, as text such as `3 of 5`."""
        return f"{self.share} of {len(self.costs)}"

    @property
    def is_whole(self) -> bool:
        """True if all runs reached the target."""
        return bool(self.got_there.all())

    @property
    def is_kept_by_share(self) -> bool:
        """True if the setting costs more than the first setting, but is kept because more runs reached the target."""
        return self.may_be_best and math.isnan(self.p)

    @property
    def is_equal(self) -> bool:
        """True if all runs reached the target, and the setting is equivalent to the first setting of the ranking.

        Two settings are equivalent if the interval of their cost difference lies within 5 % of the first one's mean.
        """
        within = MARGIN * self.restricted[1]
        return self.is_known and self.is_whole and -within <= self.difference.low and self.difference.high <= within

    @property
    def limits(self) -> str:
        """Number of runs that missed the target by reason, as text. Empty if all runs reached the target."""
        return ", ".join(
            f"{_CAUSES.get(cause, f'limit of {cause}')}: {counted(runs, 'run')}"
            for cause, runs in self.limited_by.items()
        )

    @property
    def more_seeds(self) -> int:
        """Number of additional seeds that are required for a total of `seeds_needed` seeds; at least 1."""
        return max(1, int(self.seeds_needed) - len(self.costs))


@dataclass(frozen=True, repr=False)
class RankedSettings(TextResult):
    """The settings of a study in ascending order of the cost to reach the target."""

    name: str
    target: Mapping[str, float]
    """The metric of the target (`accuracy` or `loss`) and the value that it must reach."""
    minimised: str
    """Name of the cost by which settings are ranked, a key of `COSTS`, such as `time`."""
    limits: Mapping[str, float]
    """The upper limits of costs, by the name of the cost."""
    seeds: Sequence[int]
    """The seeds with which every setting was run."""
    settings: Sequence[Ranked]
    """The settings in order of rank. Settings that are not ranked are last."""
    most: float
    """Cost that is assigned to runs that diverged or exceeded a limit. It is the limit of the cost `minimised` if there
    is one, and otherwise twice the highest cost of any run."""
    first_ended: tuple[str, int, float] | None
    """Setting, seed and cost of the run that ended at the lowest cost without reaching the target or a limit. None if
    there is no such run among the ranked settings."""
    left_out: Sequence[str]
    """Labels of settings without finished runs."""
    more_seeds: int
    """Number of seeds that are ignored because some settings have no run with these seeds."""
    uncounted: float = 0.0
    """Share of devices whose computing is not in the compared or limited energies, because its power is unknown."""

    @property
    def cost(self) -> Cost:
        return COSTS[self.minimised]

    @property
    def per_run(self) -> bool:
        """True if settings are ranked by a cost of the whole run, such as the delay of other users."""
        return self.minimised in PER_RUN

    @property
    def ranked(self) -> list[Ranked]:
        """The ranked settings, best first; there is at least one."""
        return [its for its in self.settings if not its.not_ranked]

    @property
    def best(self) -> list[dict[str, Any]]:
        """The settings that may be the best, best first, each as a mapping from axes of the study to levels."""
        return [dict(its.setting.levels) for its in self.settings if its.may_be_best]

    @property
    def undecided(self) -> list[Ranked]:
        """The settings after the first one whose costs are not significantly higher, in order of rank."""
        return [its for its in self.settings[1:] if its.may_be_best and not its.is_kept_by_share]

    @property
    def frame(self) -> pd.DataFrame:
        """Table with one row for each setting: levels, runs, costs, difference from the first setting, and p-value."""
        rows = []
        for place, its in enumerate(self.settings, start=1):
            other = place > 1 and not its.not_ranked
            rows.append(
                {
                    "place": place,
                    **{axis: level_text(level) for axis, level in its.setting.levels.items()},
                    "runs": len(its.costs),
                    "reached": its.share,
                    **_interval(self.cost.to_target, its.cost),
                    "median": its.median,
                    **({"lower_bounds": its.lower_bounds} if self.per_run else {}),
                    "difference": its.difference.mean if other else math.nan,
                    "p": its.p if other else math.nan,
                    "may_be_best": its.may_be_best,
                    "seeds_needed": its.seeds_needed if other and its.may_be_best else math.nan,
                    "limited_by": its.limits,
                    "not_ranked": its.not_ranked,
                }
            )
        return pd.DataFrame(rows)

    @property
    def headline(self) -> str:
        """Text about the best setting, the settings that are not significantly worse, and settings without a rank."""
        return " ".join([*self._diverged(), *self._first(), *self._rest(), *self._not_ranked()])

    @property
    def words(self) -> list[str]:
        """Sentences about the best setting, the significance of this result, and the treatment of unsuccessful runs."""
        sentences = [*self._diverged(), *self._first(), *self._rest(), *self._not_ranked()]
        sentences += [*self._more_seeds(), *self._counted()]
        if self.left_out:
            sentences.append(left_out_text(self.left_out))
        if self.more_seeds:
            count = "does" if self.more_seeds == 1 else "do"
            sentences.append(
                f"{counted(self.more_seeds, 'seed')} that not every setting has finished {count} not count."
            )
        return sentences

    @override
    def lines(self) -> list[str]:
        lines = [*self.words, f"\n{self._ranked_by}: mean and 95 % interval over {counted(len(self.seeds), 'seed')}"]
        lines += [QUESTION] if len(self.ranked) > 1 else []
        return [*lines, *(line for place, its in enumerate(self.settings, start=1) for line in self._block(place, its))]

    @property
    def _ranked_by(self) -> str:
        return f"{self.cost.title.lower()} {'over the whole run' if self.per_run else 'to target'}"

    def against_best(self, its: Ranked) -> str:
        """Return a phrase: how much the cost of a setting differs from the first setting, and whether significantly."""
        if its.not_ranked:
            return f"not ranked: {its.not_ranked}"
        if its.is_same:
            return "the same on every seed"
        mean, text = its.difference.mean, "the same on average"
        apart, own, first, least, most = self.cost.row([abs(mean), *its.restricted, *its.horizon])
        is_cut = math.isfinite(its.horizon[0])
        if mean:
            text = f"{apart if is_cut else self.cost.show(abs(mean))} {self.cost.more if mean > 0 else self.cost.less}"
        if is_cut:
            text = "no difference shown" if not mean and not its.is_known else text
            until = least if least == most else f"{least} to {most}"
            where = "where a run ended" if its.is_known else "where a delay is a lower bound"
            text += f" ({own} against {first}, restricted to {until} {where})"
        if its.is_kept_by_share:
            return f"{text}, but reached in more runs"
        verdict = "not separated" if its.may_be_best else "not the best"
        text += f": {verdict}, p = {its.p:.2g}"
        if its.may_be_best and its.is_equal:
            text += f"; equally good within {MARGIN:.0%}"
        elif its.may_be_best and math.isfinite(its.seeds_needed):
            text += f"; {_about(its.more_seeds)} would probably decide"
        return text

    def _share(self, its: Ranked) -> str:
        costs, missed = its.costs[its.got_there], its.costs[~its.got_there]
        if its.is_whole:
            known = f"{self.cost.name} unknown" if np.isnan(costs).any() else ""
            return f", {known or self.cost.after.format(_least(its) + self._range(costs))}"
        if math.isfinite(its.median):
            return f", median {self.cost.show(its.median)}"
        if self.minimised in its.limited_by:
            return f" within {self.cost.show(self.most)}"
        if ENDED not in its.limited_by:
            return ""
        ends = self._range(missed[missed < self.most])
        return f", the others ended {self.cost.after.format(ends)}" if len(costs) else f" within {ends}"

    def _range(self, costs: Array) -> str:
        return " to ".join(dict.fromkeys(self.cost.row([costs.min(), costs.max()])))

    def _first(self) -> Iterator[str]:
        ranked = self.ranked
        its, target = ranked[0], target_text(self.target)
        if not all(other.is_whole for other in ranked):
            shares = "; ".join(
                f"{other.setting.label} in {other.share} of {counted(len(other.costs), 'run')}{self._share(other)}"
                for other in ranked[:MOST_NAMED]
            )
            rest = ranked[MOST_NAMED:]
            runs = counted(sum(len(other.costs) for other in rest), "run")
            more = f"; {counted(len(rest), 'other')} in {sum(other.share for other in rest)} of {runs}" if rest else ""
            yield f"{target[0].upper()}{target[1:]}{limits_text(self.limits)} was reached by {shares}{more}."
            return
        after = self.cost.after.format(_least(its) + self.cost.show(its.cost.mean))
        after += " on average" if its.lower_bounds and len(its.costs) > 1 else ""
        if np.isfinite(its.cost.low):
            mean, low, high = self.cost.row(its.cost)
            after = f"{self.cost.after.format(mean)} on average (95 % {low} to {high})"
        best = f" {self.cost.best}" if len(ranked) > 1 and not any(other.may_be_best for other in ranked[1:]) else ""
        comma = "," if best else ""
        yield f"{its.setting.label} reaches {target}{best}{limits_text(self.limits)}{comma} {after}."

    def _rest(self) -> Iterator[str]:
        first, *others = self.ranked
        if not others:
            alone = "There is no other setting to compare it with."
            yield alone if len(self.settings) == 1 else "No other setting can be compared with it."
            return
        same = [its.setting.label for its in others if its.is_same]
        apart = [its.setting.label for its in self.undecided if not its.is_same]
        more = [its.setting.label for its in others if its.is_kept_by_share]
        worse = [its for its in others if not its.may_be_best]
        if same:
            yield f"{_named([first.setting.label, *same])} have the same {self._ranked_by} on every seed."
        if apart:
            yield f"Not separated from {first.setting.label}: {_named(apart)}."
        if more:
            yield (
                f"{_named(more)} reached it in more runs than {first.setting.label}, but {self.cost.more}: "
                "which is better depends on which of the two counts."
            )
        elif not same and not apart and not all(its.is_whole for its in self.ranked):
            yield f"{first.setting.label} reaches it {self.cost.best}, and no setting in more runs."
        if worse:
            names = _named([its.setting.label for its in worse])
            yield f"Not the best: {names} (p at most {max(its.p for its in worse):.2g})."

    def _diverged(self) -> Iterator[str]:
        runs = {its.setting.label: its.limited_by[DIVERGED] for its in self.settings if DIVERGED in its.limited_by}
        told = [f"{label}: diverged in {number} of {len(self.seeds)}" for label, number in runs.items()]
        if told:
            rest = f"; and runs of {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
            yield f"{'; '.join(told[:MOST_NAMED])}{rest}."

    def _not_ranked(self) -> Iterator[str]:
        reasons: dict[str, list[str]] = {}
        for its in self.settings:
            if its.not_ranked and its.limited_by.get(DIVERGED) != len(its.costs):
                reasons.setdefault(its.not_ranked, []).append(its.setting.label)
        for reason, labels in reasons.items():
            yield f"Not ranked: {_named(labels)}: {reason}."

    def _more_seeds(self) -> Iterator[str]:
        undecided, seeds = [its for its in self.undecided if not its.is_same], len(self.seeds)
        if not undecided:
            return
        left = len(self.undecided) + 1
        if seeds == 1:
            least = f"at least {fewest_seeds()} can decide between two settings"
            yield f"One seed does not show how much seeds vary; {least}."
            return
        if smallest_p(left, seeds) > ALPHA:
            yield (
                f"{seeds} seeds cannot separate {left} settings, however they differ (p is at least "
                f"{smallest_p(left, seeds):.3g}); {fewest_seeds(left)} are the fewest that can."
            )
        equal = [its.setting.label for its in undecided if its.is_equal]
        if equal:
            yield f"Equally good as {self.settings[0].setting.label} within {MARGIN:.0%}: {_named(equal)}."
        known = {
            its.setting.label: its.more_seeds
            for its in undecided
            if math.isfinite(its.seeds_needed) and not its.is_equal
        }
        if known:
            least, most = min(known, key=lambda name: known[name]), max(known.values())
            all_of = "these" if len(known) < len(undecided) else "them"
            rest = f", and {most} about all of {all_of}" if most > known[least] else ""
            yield f"If they differ as it seems, {_about(known[least])} would probably decide about {least}{rest}."

    def _counted(self) -> Iterator[str]:
        ranked = self.ranked
        bounds, runs = sum(its.lower_bounds for its in ranked), sum(its.share for its in ranked)
        if bounds:
            yield (
                f"The delay is a lower bound in {bounds} of {counted(runs, 'run')} that reached it, because files of "
                "other users were unfinished at the end: two runs are compared up to this bound. Run longer."
            )
        ended = sum(its.limited_by.get(ENDED, 0) for its in ranked)
        unknown = sum(its.limited_by.get(UNKNOWN, 0) for its in ranked)
        failed = sum(len(its.costs) - its.share for its in ranked) - ended
        if failed:
            within = " within the limits" if self.limits else ""
            spent = "the highest of any run" if self.per_run else "the most that any run spent"
            own = "the limit" if self.minimised in self.limits else f"twice {spent}{within}"
            count = "counts" if failed == 1 else "count"
            yield f"{counted(failed, 'run')} did not reach it and {count} as {self.cost.show(self.most)}, {own}."
        if self.uncounted:
            whose = "" if self.uncounted == 1.0 else f" of {self.uncounted:.0%} of the devices"
            yield f"Energies exclude computing{whose}, whose power is unknown."
        if unknown:
            yield f"In {unknown} of these runs, a limited cost is unknown: they may have reached it within the limits."
        if ended and self.first_ended is not None and len(ranked) > 1:
            label, seed, cost = self.first_ended
            text = (
                f"{counted(ended, 'run')} ended with budget left, {label} with seed {seed} first, "
                f"{self.cost.after.format(self.cost.show(cost))}: two runs are compared up to where the first ended."
            )
            if self.minimised != "rounds":
                text += " Runs that stop by rounds end the sooner the faster they are: `stop.simulated_s` is fairer."
            yield text

    def _block(self, place: int, its: Ranked) -> Iterator[str]:
        text = f"reached by {its.reached}{self._share(its)}"
        if its.is_whole and not its.not_ranked:
            mean, low, high = self.cost.row(its.cost)
            spread = f" ({low} to {high})" if np.isfinite(its.cost.low) else ""
            text = f"{_least(its)}{mean if spread else self.cost.show(its.cost.mean)}{spread}, reached by {its.reached}"
        yield f"{place:2}. {its.setting.label}: {text}"
        if place > 1 or its.not_ranked:
            yield f"    {self.against_best(its)}"
        if its.limited_by:
            yield f"    {its.limits}"


def _interval(name: str, values: Sequence[float]) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _least(its: Ranked) -> str:
    return "at least " if its.lower_bounds else ""


def _about(more: int) -> str:
    return f"{more} more seed{'s' if more > 1 else ''}"


def left_out_text(labels: Sequence[str]) -> str:
    """Return a sentence that names settings without finished runs."""
    return f"Left out, because no run has finished: {_named(labels)}."


def _named(labels: Sequence[str]) -> str:
    return f"{len(labels)} settings" if len(labels) > MOST_NAMED else joined(labels)

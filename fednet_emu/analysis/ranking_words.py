"""A ranking of settings in words, and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.confidence_set import ALPHA, fewest_seeds, smallest_p
from fednet_emu.analysis.quantities import counted
from fednet_emu.analysis.ranking import DIVERGED, ENDED, Ranked, Ranking, limits_text
from fednet_emu.analysis.study import level_text, target_text

MOST_NAMED = 4
"""Most settings that a sentence names."""
QUESTION = (
    "p: the chance of means so far apart if all settings up to this one were equally good; "
    "intervals are of one setting, or of two, alone"
)
PHRASES = {
    "time": "{} reaches {target} soonest{within}, after {}",
    "bits": "{} reaches {target} with the fewest bits{within}, {}",
    "energy": "{} reaches {target} with the least energy{within}, {}",
    "device-energy": "{} reaches {target} with the least energy{within}, {} per device",
    "rounds": "{} reaches {target} in the fewest rounds{within}, {}",
}


def words(ranking: Ranking) -> list[str]:
    """Return the answer in sentences: what is best, what is as good, how sure that is, and how runs were counted."""
    told = [_first(ranking), *_rest(ranking), *_more_seeds(ranking), *_counted(ranking)]
    if ranking.left_out:
        told.append(f"Left out, because no run has finished: {_named(ranking.left_out)}.")
    if ranking.more_seeds:
        count = "does" if ranking.more_seeds == 1 else "do"
        told.append(f"{counted(ranking.more_seeds, 'seed')} that not every setting has finished {count} not count.")
    return told


def headline(ranking: Ranking) -> str:
    """Return the answer in short: what is best, and what may be the best, too."""
    return " ".join([_first(ranking), *(_rest(ranking) if len(ranking.settings) > 1 else ())])


def lines(ranking: Ranking) -> Iterator[str]:
    """The ranking as text: the answer in sentences, then a block for each setting."""
    yield from words(ranking)
    yield f"\n{ranking.quantity.title}: mean and 95 % interval over {counted(len(ranking.seeds), 'seed')}"
    if len(ranking.settings) > 1:
        yield QUESTION
    for place, its in enumerate(ranking.settings, start=1):
        yield from _block(ranking, place, its)


def frame(ranking: Ranking) -> pd.DataFrame:
    """One row for each setting, the cheapest first: its levels, how many runs got there, costs, and what limits it."""
    column = ranking.quantity.column
    rows = []
    for place, its in enumerate(ranking.settings, start=1):
        rows.append(
            {
                "place": place,
                **{axis: level_text(level) for axis, level in its.setting.levels.items()},
                "runs": len(its.costs),
                "reached": int(its.got_there.sum()),
                **_interval(column, its.cost),
                **_interval("difference", its.difference if place > 1 else (math.nan,) * 3),
                "p": its.p if place > 1 else math.nan,
                "may_be_best": its.may_be_best,
                "seeds_needed": its.seeds_needed if place > 1 and its.may_be_best else math.nan,
                "limited_by": limited_text(its),
            }
        )
    return pd.DataFrame(rows)


def _interval(name: str, values: Sequence[float]) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def limited_text(its: Ranked) -> str:
    """Return in words what kept runs of a setting from the target; empty if all reached it."""
    causes = {
        cause: "never reached it" if cause == ENDED else cause if cause == DIVERGED else f"limit of {cause}"
        for cause in its.limited_by
    }
    return ", ".join(f"{causes[cause]}: {counted(runs, 'run')}" for cause, runs in its.limited_by.items())


def _first(ranking: Ranking) -> str:
    its, show = ranking.best, ranking.quantity.show
    target, within = target_text(ranking.target), limits_text(ranking.limits)
    text = PHRASES[ranking.minimised].format(its.setting.label, show(its.cost.mean), target=target, within=within)
    if np.isfinite(its.cost.low):
        text += f" on average (95 % {show(its.cost.low)} to {show(its.cost.high)})"
    if not its.got_there.all():
        text += f", in {int(its.got_there.sum())} of {counted(len(its.costs), 'run')}"
    return f"{text}."


def _rest(ranking: Ranking) -> Iterator[str]:
    rivals, others = ranking.rivals, [its for its in ranking.settings if not its.may_be_best]
    if len(ranking.settings) == 1:
        yield "There is no other setting to compare it with."
        return
    if rivals:
        yield f"{_named([its.setting.label for its in rivals])} may be the best, too."
    if others:
        names = _named([its.setting.label for its in others])
        yield f"Not the best: {names} (p at most {max(its.p for its in others):.2g})."


def _more_seeds(ranking: Ranking) -> Iterator[str]:
    rivals, seeds = ranking.rivals, len(ranking.seeds)
    if not rivals:
        return
    left = len(rivals) + 1
    if seeds == 1:
        yield f"One seed does not show how much seeds vary; at least {fewest_seeds()} can decide between two settings."
        return
    if smallest_p(left, seeds) > ALPHA:
        yield (
            f"Between the {left} that are left, {seeds} seeds cannot decide, however they differ (p is at least "
            f"{smallest_p(left, seeds):.3g}); {fewest_seeds(left)} can."
        )
    known = {its.setting.label: more_seeds(its) for its in rivals if math.isfinite(its.seeds_needed)}
    if known:
        least, most = min(known, key=lambda name: known[name]), max(known.values())
        all_of = "these" if len(known) < len(rivals) else "them"
        rest = f", and {most} about all of {all_of}" if most > known[least] else ""
        yield f"If they differ as it seems, {_about(known[least])} would probably decide about {least}{rest}."
    endless = [its.setting.label for its in rivals if its.setting.label not in known]
    if endless:
        yield f"No reasonable number of seeds would decide about {_named(endless)}: take them as equally good."


def more_seeds(its: Ranked) -> int:
    """Return how many more seeds would decide between a setting and the cheapest."""
    return max(1, int(its.seeds_needed) - len(its.costs))


def _about(more: int) -> str:
    return f"{more} more seed{'s' if more > 1 else ''}"


def _counted(ranking: Ranking) -> Iterator[str]:
    show, failed = ranking.quantity.show, sum(int((~its.got_there).sum()) for its in ranking.settings)
    if not failed:
        return
    text = f"{counted(failed, 'run')} did not reach it and {_count(failed)} as {show(ranking.horizon)}"
    if ranking.first_ended is None:
        own = ranking.minimised in ranking.limits
        yield f"{text}, {'the limit' if own else 'the most that any run spent within the limits'}."
        return
    label, seed = ranking.first_ended
    yield f"{text}, where {label} with seed {seed} ended with budget left."
    if ranking.late:
        late = f"{counted(ranking.late, 'run')} that reached it later {_count(ranking.late)} as that, too"
        yield f"{late}: let runs go on for longer to tell more."


def _count(runs: int) -> str:
    return "counts" if runs == 1 else "count"


def _block(ranking: Ranking, place: int, its: Ranked) -> Iterator[str]:
    show = ranking.quantity.show
    spread = f" ({show(its.cost.low)} to {show(its.cost.high)})" if np.isfinite(its.cost.low) else ""
    least = "at least " if not its.got_there.any() else ""
    yield f"{place:2}. {its.setting.label}: {least}{show(its.cost.mean)}{spread}, reached by {_reached(its)}"
    if place > 1:
        yield f"    {against_best(ranking, its)}"
    if its.limited_by:
        yield f"    {limited_text(its)}"


def against_best(ranking: Ranking, its: Ranked) -> str:
    """Return in words what a setting costs more than the cheapest, and whether it may be the best of all settings."""
    show, quantity, difference = ranking.quantity.show, ranking.quantity, its.difference
    text = f"{show(difference.mean)} {quantity.more}" if difference.mean > 0 else "the same on average"
    if np.isfinite(difference.low) and difference.high > difference.low:
        text += f" ({show(difference.low)} to {show(difference.high)})"
    verdict = f"may be the best of {len(ranking.settings)}" if its.may_be_best else "not the best"
    text += f": {verdict}, p = {its.p:.2g}"
    if its.may_be_best and math.isfinite(its.seeds_needed):
        text += f"; {_about(more_seeds(its))} would probably decide"
    return text


def _reached(its: Ranked) -> str:
    return f"{int(its.got_there.sum())} of {len(its.costs)}"


def _named(labels: Sequence[str]) -> str:
    if len(labels) > MOST_NAMED:
        return f"{len(labels)} others"
    return f"{', '.join(labels[:-1])} and {labels[-1]}" if len(labels) > 1 else labels[0]


def table(ranking: Ranking) -> dict[str, list[Any]]:
    """Return the ranking as columns of texts and numbers for a page."""
    settings = ranking.settings
    return {
        "Setting": [its.setting.label for its in settings],
        "Reached": [_reached(its) for its in settings],
        ranking.quantity.column: [its.cost.mean for its in settings],
        "low": [its.cost.low for its in settings],
        "high": [its.cost.high for its in settings],
        "p": [math.nan if place == 0 else float(f"{its.p:.2g}") for place, its in enumerate(settings)],
        "Against the best": ["" if place == 0 else against_best(ranking, its) for place, its in enumerate(settings)],
        "Limited by": [limited_text(its) for its in settings],
    }

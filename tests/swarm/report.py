"""What a swarm has done: seeds per hour, events, how runs ended, laws checked, and the coverage of pairs of kinds."""

from __future__ import annotations

import time
from collections import Counter

from tests.swarm.pairs import Pair, pairs_of, places, possible
from tests.swarm.recipes import ELSEWHERE
from tests.swarm.trial import Trial


class Report:
    """Sums over the trials of a swarm; as text, the report."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seeds = self.events = 0
        self.failures: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.checked: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.pairs: set[Pair] = set()
        self.kinds: set[tuple[str, str]] = set()

    def add(self, trial: Trial) -> None:
        """Count one trial."""
        self.seeds += 1
        self.events += trial.events
        self.ended[trial.ended] += 1
        self.failures.update(failure.law for failure in trial.failures)
        self.faults[trial.fault or "none"] += 1
        self.known.update(trial.known)
        self.checked.update(trial.checked)
        self.refused.update(trial.refused)
        self.kinds.update(trial.picks.items())
        self.pairs.update(pairs_of(trial.picks))

    def __str__(self) -> str:
        took_s = time.monotonic() - self.began
        per_hour = 3600 * self.seeds / took_s
        draws = sum(self.refused.values())
        pairs, kinds = self.pairs & possible(), self.kinds & places().keys()
        return "\n".join(
            [
                f"swarm: {self.seeds} seeds in {took_s:.0f} s ({per_hour:.0f} an hour), {self.events} events",
                f"ended: {_counts(self.ended)}",
                f"faults: {_counts(self.faults)}",
                f"laws checked: {_counts(self.checked)}",
                f"laws broken: {_counts(self.failures) or 'none'}",
                f"known faults: {_counts(self.known) or 'none'}",
                f"kinds: {len(kinds)} of {len(places())} places; left out, for lack of data: {len(ELSEWHERE)} kinds",
                f"pairs of kinds: {len(pairs)} of {len(possible())} ({len(pairs) / len(possible()):.1%})",
                f"redrawn: {draws}, most of all for {_counts(Counter(dict(self.refused.most_common(8))))}",
            ]
        )


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common() if count)

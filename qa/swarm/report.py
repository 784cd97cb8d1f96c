"""What a swarm has done: seeds per hour, events, how runs ended, laws checked, and the coverage of pairs of kinds."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from qa.swarm.pairs import pairs_of, places, possible
from qa.swarm.recipes import ELSEWHERE
from qa.swarm.trial import Trial

Counts = Counter[str]


@dataclass
class Report:
    """Sums over the trials of a swarm; as text, the report.

    Attributes:
        seeds: how many seeds were tried.
        mixtures: how many of them had a mixture of the newer kinds as well, and how many mixtures were refused.
        cpu_s: processor time that this took.
        events: transfers and computations of their plain runs.
        failures: broken laws.
        broken: seeds whose scenarios broke a law.
        faults: what was put into the scenarios.
        ended: how the plain runs ended.
        checked: laws that were checked.
        refused: draws that were refused, by the setting.
        pairs: pairs of kinds that met, each two places in `places`.
    """

    seeds: int = 0
    mixtures: Counts = field(default_factory=Counter)
    cpu_s: float = 0.0
    events: int = 0
    failures: Counts = field(default_factory=Counter)
    broken: list[int] = field(default_factory=list)
    faults: Counts = field(default_factory=Counter)
    ended: Counts = field(default_factory=Counter)
    checked: Counts = field(default_factory=Counter)
    refused: Counts = field(default_factory=Counter)
    pairs: Counts = field(default_factory=Counter)

    @classmethod
    def read(cls, path: Path) -> Report:
        """The report that a swarm has kept in a file; an empty one if there is none yet."""
        if not path.exists():
            return cls()
        kept = json.loads(path.read_text())
        return cls(**{name: Counter(value) if isinstance(value, dict) else value for name, value in kept.items()})

    def write(self, path: Path) -> None:
        """Keep the report, so that a swarm can go on from here."""
        fresh = path.with_suffix(".fresh")
        fresh.write_text(json.dumps(vars(self)))
        fresh.replace(path)

    def add(self, seed: int, trial: Trial) -> None:
        """Count one trial."""
        self.seeds += not trial.mixed
        self.mixtures.update({"played": 1, "refused": trial.refused.total()} if trial.mixed else {})
        self.cpu_s += trial.cpu_s
        self.events += trial.events
        self.ended[trial.ended] += 1
        self.failures.update(failure.law for failure in trial.failures)
        self.broken += [seed] if trial.failures else []
        self.faults[trial.fault or "none"] += 1
        self.checked.update(trial.checked)
        self.refused.update(trial.refused)
        self.pairs.update(json.dumps(pair) for pair in pairs_of(trial.picks))

    def __str__(self) -> str:
        met = {tuple(map(tuple, json.loads(pair))) for pair in self.pairs} & possible()
        kinds = {place for pair in met for place in pair}
        hours, redrawn = self.cpu_s / 3600, Counter(dict(self.refused.most_common(8)))
        return "\n".join(
            [
                f"swarm: {self.seeds} seeds in {hours:.2f} h of processor time ({self.seeds / hours:.0f} an hour)",
                f"mixtures of newer kinds: {_counts(self.mixtures) or 'none'}",
                f"events: {self.events}",
                f"ended: {_counts(self.ended)}",
                f"faults: {_counts(self.faults)}",
                f"laws checked: {_counts(self.checked)}",
                f"laws broken: {_counts(self.failures) or 'none'}",
                f"seeds that broke them: {', '.join(map(str, self.broken)) or 'none'}",
                f"kinds: {len(kinds)} of {len(places())} places; left out, for lack of data: {len(ELSEWHERE)} kinds",
                f"pairs of kinds: {len(met)} of {len(possible())} ({len(met) / len(possible()):.1%})",
                f"redrawn: {self.refused.total()}, most of all for {_counts(redrawn)}",
            ]
        )


def _counts(counts: Counts) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common() if count)

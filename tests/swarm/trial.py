"""The trial of one seed: a scenario is drawn, and judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.swarm.draw import Picks, Settings, drawn
from tests.swarm.judge import Failure, judged


@dataclass(frozen=True)
class Trial:
    """What came of a seed.

    Attributes:
        settings: the scenario.
        picks: the kind in each slot.
        refused: draws before it that were refused, by the setting.
        failures: laws that do not hold.
        known: faults that wait to be mended.
        checked: how often each law was applied.
        ended: how the plain run ended.
        events: transfers and computations of the plain run.
    """

    settings: Settings
    picks: Picks
    refused: Counter[str]
    failures: list[Failure]
    known: Counter[str]
    checked: Counter[str]
    ended: str
    events: int


def tried(seed: int) -> Trial:
    """Draw the scenario of a seed and judge it."""
    draw = drawn(seed)
    found, ended, events = judged(draw.settings), "broke down", 0
    if found.whole is not None:
        ledger = found.whole.ledger
        ended, events = found.whole.ended, len(ledger.transfers) + len(ledger.computes)
    return Trial(draw.settings, draw.picks, draw.refused, found.failures, found.known, found.checked, ended, events)

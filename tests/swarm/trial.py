"""The trial of one seed: a scenario is drawn, disturbed and judged."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from random import Random

from fednet_emu.errors import FednetError
from tests.swarm.draw import Picks, Settings, drawn
from tests.swarm.faults import faulted
from tests.swarm.judge import Failure, Verdict, judged
from tests.swarm.plays import tasks_kept

FAULTY = 0.7
"""Share of the scenarios that get a fault."""


@dataclass(frozen=True)
class Trial:
    """What came of a seed.

    Attributes:
        settings: the scenario.
        fault: what was put into it; empty for none.
        picks: the kind in each slot.
        refused: draws before it that were refused, by the setting.
        failures: laws that do not hold.
        checked: how often each law was applied.
        ended: how the plain run ended.
        events: transfers and computations of the plain run.
        cpu_s: processor time of the whole trial.
    """

    settings: Settings
    fault: str
    picks: Picks
    refused: Counter[str]
    failures: list[Failure]
    checked: Counter[str]
    ended: str
    events: int
    cpu_s: float


def tried(seed: int) -> Trial:
    """Draw the scenario of a seed, put a fault into most of them, and judge it."""
    began_s = time.process_time()
    with tasks_kept():
        draw, rng = drawn(seed), Random(f"fault {seed}")
        settings, fault = draw.settings, ""
        if draw.ledger is not None and rng.random() < FAULTY:
            settings, fault = faulted(settings, draw.ledger, rng)
        found, ended, events = _judged(settings), "broke down", 0
    if found.whole is not None:
        ledger = found.whole.ledger
        ended, events = found.whole.ended, len(ledger.transfers) + len(ledger.computes)
    took_s = time.process_time() - began_s
    return Trial(settings, fault, draw.picks, draw.refused, found.failures, found.checked, ended, events, took_s)


def _judged(settings: Settings) -> Verdict:
    """The verdict; a scenario that was played without training must not be refused when it trains."""
    try:
        return judged(settings)
    except FednetError as error:
        return Verdict([Failure("accepted without training, accepted with", str(error))])

"""The trial of one seed: a scenario is drawn, disturbed and judged."""

from __future__ import annotations

import faulthandler
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from fednet_emu.errors import FednetError
from qa.swarm.draw import Picks, Settings, drawn
from qa.swarm.faults import faulted
from qa.swarm.judge import LAWS, OF_THEIR_OWN, Failure, Verdict, judged
from qa.swarm.plays import tasks_kept

FAULTY = 0.7
"""Share of the scenarios that get a fault."""
MIXED_EVERY = 4
"""Every so many seeds there is a mixture of the newer kinds as well, judged by all laws."""
LONGEST_S = 1800.0
"""Time in s on the host after which a seed, which takes about a second, is taken to hang."""


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
        mixed: whether it is a mixture of the newer kinds.
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
    mixed: bool = False


@contextmanager
def watched() -> Iterator[None]:
    """End this process, which then prints the stack of each thread, if the block takes more than `LONGEST_S`."""
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def watched_trials(seed: int) -> list[Trial]:
    """The trials of a seed, in a process that ends if they hang."""
    with watched():
        return trials(seed)


def trials(seed: int) -> list[Trial]:
    """The trial of a seed, and that of its mixture, if it has one."""
    return [tried(seed)] + ([tried(seed, mixed=True)] if seed % MIXED_EVERY == 0 else [])


def tried(seed: int, *, mixed: bool = False) -> Trial:
    """Draw the scenario of a seed, or its mixture, put a fault into most of them, and judge it."""
    began_s = time.process_time()
    laws = [law for law in LAWS if law not in OF_THEIR_OWN] if mixed else []
    with tasks_kept():
        draw, rng = drawn(seed, mixed=mixed), Random(f"fault {seed}")
        settings, fault = draw.settings, ""
        if draw.ledger is not None and rng.random() < FAULTY:
            settings, fault = faulted(settings, draw.ledger, rng)
        found, ended, events = _judged(settings, *laws), "broke down", 0
    if found.whole is not None:
        ledger = found.whole.ledger
        ended, events = found.whole.ended, len(ledger.transfers) + len(ledger.computes)
    took_s = time.process_time() - began_s
    return Trial(settings, fault, draw.picks, draw.refused, found.failures, found.checked, ended, events, took_s, mixed)


def _judged(settings: Settings, *laws: str) -> Verdict:
    """The verdict; a scenario that was played without training must not be refused when it trains."""
    try:
        return judged(settings, *laws)
    except FednetError as error:
        return Verdict([Failure("accepted without training, accepted with", str(error))])

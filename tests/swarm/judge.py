"""The laws by which a scenario is judged; each plays it in another way and compares."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fednet_emu.errors import FednetError
from fednet_emu.network.availability import Always
from fednet_emu.scenario.model import Scenario
from tests.swarm.metamorphic import METAMORPHIC
from tests.swarm.plays import Play, played, resumed, scenario_of

Settings = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """A law that does not hold.

    Attributes:
        law: its name.
        text: what was seen.
    """

    law: str
    text: str


KNOWN = {
    "Expected more than 1 value per channel when training": "a batch of one sample for a model with batch norm",
    "The function 'native_batch_norm' is not differentiable": "frank-wolfe-clustering of a model with batch norm",
}
"""Faults that were found and wait to be mended, by a part of what was seen; they are counted, and fail no swarm."""


@dataclass
class Case:
    """A scenario on trial.

    Attributes:
        settings: what its file would hold.
        scenario: the same, checked.
        whole: its plain run.
        rng: the random numbers of the judge.
    """

    settings: Settings
    scenario: Scenario
    whole: Play
    rng: Random


Law = Callable[[Case], str | None]
"""Returns an empty text if the law holds, else what was seen; None where it does not apply."""


def conserved(case: Case) -> str | None:
    """Every law of records/verify.py holds, however the run has ended."""
    return "; ".join(f"{law}: {text}" for law, text in case.whole.broken.items())


def ends(case: Case) -> str | None:
    """Nobody waits for ever where nothing is lost and nobody leaves."""
    lost = case.whole.ledger.transfers.column("lost").any() or case.whole.ledger.receptions.column("lost").any()
    if lost or not isinstance(case.scenario.devices.availability, Always):
        return None
    return case.whole.why


def repeats(case: Case) -> str | None:
    """The same seed writes the same books, to the last bit."""
    return _differ(case.whole, played(case.scenario), "ended", "events", "books", "statistics")


def timing_only(case: Case) -> str | None:
    """A run without training has the same events, where these do not depend on learning."""
    if case.scenario.events_depend_on_learning or case.whole.ended == "diverged":
        return None
    return _differ(case.whole, played(case.scenario, timing_only=True), "ended", "events")


def engines(case: Case) -> str | None:
    """Training in batches and in two threads has the same events, where these do not depend on learning."""
    if case.scenario.events_depend_on_learning or case.whole.ended == "diverged":
        return None
    other = played(scenario_of(case.settings, engine="batched", threads=2))
    return _differ(case.whole, other, "ended", "events")


def resumes(case: Case) -> str | None:
    """A run that is interrupted at the end of a round and goes on from a checkpoint writes the same books."""
    if case.whole.rounds < 2:
        return None
    after_round = case.rng.randint(1, case.whole.rounds - 1)
    differ = _differ(case.whole, resumed(case.scenario, after_round), "ended", "events", "books", "statistics")
    return differ and f"cut after round {after_round}: {differ}"


def _differ(one: Play, other: Play, *names: str) -> str:
    seen = [(name, getattr(one, name), getattr(other, name)) for name in names]
    return "; ".join(f"{name} {before} and {after}" for name, before, after in seen if before != after)


def _of_settings(law: Callable[[Settings], str | None]) -> Law:
    """A metamorphic law, which does not apply where the changed scenario is refused."""

    def holds(case: Case) -> str | None:
        try:
            return law(case.settings)
        except FednetError:
            return None

    return holds


LAWS: dict[str, Law] = {
    "conservation": conserved,
    "no deadlock without a loss": ends,
    "the same seed": repeats,
    "timing-only": timing_only,
    "engines and threads": engines,
    "resumed": resumes,
    **{name: _of_settings(law) for name, law in METAMORPHIC.items()},
}


@dataclass
class Verdict:
    """What was found out about a scenario.

    Attributes:
        failures: laws that do not hold.
        known: faults that wait to be mended.
        checked: how often each law was applied.
        whole: the plain run; None if the scenario was refused or broke down.
    """

    failures: list[Failure] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    whole: Play | None = None


def judged(settings: Settings, only: str = "") -> Verdict:
    """Judge a scenario by every law, or by one.

    Raises:
        FednetError: the scenario is refused before or while it is played for the first time.
    """
    verdict, law = Verdict(), "no traceback"
    rng = Random(f"judge {settings['seed']}")
    try:
        scenario = scenario_of(settings)
        verdict.whole = played(scenario)
        for law, holds in LAWS.items():
            if only in ("", law):
                seen = holds(Case(settings, scenario, verdict.whole, rng))
                verdict.checked[law] += seen is not None
                if seen:
                    verdict.failures.append(Failure(law, seen))
    except Exception as error:
        if isinstance(error, FednetError) and verdict.whole is None:
            raise
        where = "".join(traceback.format_exception(error)[-4:])
        verdict.failures.append(Failure(f"{law}: {type(error).__name__}", f"{error}\n{where}"))
    return _without_known(verdict)


def _without_known(verdict: Verdict) -> Verdict:
    for failure in list(verdict.failures):
        for part, fault in KNOWN.items():
            if part in failure.text:
                verdict.failures.remove(failure)
                verdict.known[fault] += 1
    return verdict

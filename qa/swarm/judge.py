"""The laws by which a scenario is judged; each plays it in another way and compares."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings

from fednet_emu.devices.availability import Always
from fednet_emu.errors import FednetError
from fednet_emu.records.ledger import TABLES
from fednet_emu.scenario.model import Scenario
from qa.oracle.federation.scenes import scene
from qa.oracle.federation.test_second_rounds import assert_same_rounds
from qa.oracle.network.script import Script, World
from qa.oracle.network.test_second_emulator import assert_same_books
from qa.oracle.network.worlds import plays
from qa.swarm.killed import killed_and_resumed
from qa.swarm.metamorphic import METAMORPHIC, with_values
from qa.swarm.plays import Play, after_another, played, resumed, scenario_of

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
    """Every law of records/laws.py holds, however the run has ended."""
    return "; ".join(f"{law}: {text}" for law, text in case.whole.broken.items())


def ends(case: Case) -> str | None:
    """Nobody waits for ever where nothing is lost or late, nobody leaves, and no battery is empty for good."""
    ledger, devices = case.whole.ledger, case.scenario.devices
    lost = ledger.transfers.column("loss_reason").any() or ledger.receptions.column("loss_reason").any()
    never_charged = devices.battery is not None and not devices.battery.harvesting.mean_w
    stranded = never_charged and not ledger.batteries.column("state").all()
    late = getattr(case.scenario.algorithm, "deadline_s", None) is not None and ledger.computes.column("stopped").any()
    if lost or late or stranded or not isinstance(devices.availability, Always):
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
    """A run that is interrupted at the end of a round and goes on from a checkpoint writes the same books.

    It also trains the same jobs, but where radio connections are released: one may be trained again (seed 60).
    """
    if case.whole.rounds < 2:
        return None
    after_round = case.rng.randint(1, case.whole.rounds - 1)
    jobs = ("jobs",) if case.scenario.network.uplink.idle is None else ()
    differ = _differ(case.whole, resumed(case.scenario, after_round), "ended", "events", "books", *jobs)
    return differ and f"cut after round {after_round}: {differ}"


OTHERS = {"channel.bandwidth_hz": 0.5, "channel.rate.bit_rate_bps": 0.1, "algorithm.deadline_s": 0.7, "stop.rounds": 2}
"""Settings with factors by which they may change between two runs that learn the same, or the same for some rounds."""
LOSSES = {"network.uplink.message_loss": {"kind": "random", "probability": 0.3}}


def known(case: Case) -> str | None:
    """After a run in another network, whose store may have gaps, a run writes the same books and trains no more."""
    changes = [{}, LOSSES, *({path: its} for path, its in _scaled(case.settings).items())]
    change = case.rng.choice(changes)
    try:
        again = after_another(case.scenario, scenario_of(with_values(case.settings, change)), case.rng)
    except FednetError:
        return None  # the change does not go with the rest of the scenario
    differ = _differ(case.whole, again, "ended", "events", "books", "jobs")
    if again.statistics.trained > case.whole.statistics.trained:
        differ += f"; trains {again.statistics.trained} instead of {case.whole.statistics.trained} jobs"
    return differ and f"after a run with {change or 'the same settings'}: {differ}"


def _scaled(settings: Settings) -> dict[str, Any]:
    """The values of `OTHERS`, of those that are given as numbers."""
    changed = {}
    for path, factor in OTHERS.items():
        found: Any = settings
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, int | float):
            changed[path] = type(found)(found * factor)
    return changed


def killed(case: Case) -> str | None:
    """A run that is killed at a random event, and started again in its folder, writes the same books."""
    if case.whole.ended != "done" or torch.cuda.is_initialized():
        return None
    ledger = case.whole.ledger
    row = case.rng.randint(1, sum(len(getattr(ledger, name)) for name in TABLES))
    again = killed_and_resumed(scenario_of(case.settings, checkpoint_s=1e-9), row)
    books = replace(case.whole, ledger=again).books
    return "" if books == case.whole.books else f"killed at row {row}: books {case.whole.books} and {books}"


def second_emulator(case: Case) -> str | None:
    """A world and a script of its own, drawn by the seed: the medium keeps the books of the second emulator."""

    @seed(case.settings["seed"])
    @hypothesis_settings(
        max_examples=3,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],  # explaining would trace every line
        suppress_health_check=[*HealthCheck],
    )
    @given(plays())
    def both(play: tuple[World, Script]) -> None:
        assert_same_books(*play)

    try:
        both()
    except AssertionError as error:
        return "\n".join([str(error), *getattr(error, "__notes__", [])])
    return ""


def second_rounds(case: Case) -> str | None:
    """Scenes of their own, drawn by the seed: runs keep the books of the second emulator of whole rounds."""
    for number in range(case.settings["seed"] * SCENES, (case.settings["seed"] + 1) * SCENES):
        try:
            assert_same_rounds(scene(number))
        except AssertionError as error:
            return f"scene {number}: {error}"
        except FednetError:  # a computation that stops for want of charge again and again is refused
            continue
    return ""


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
    "known learning": known,
    "killed": killed,
    "the second emulator": second_emulator,
    "the second emulator's rounds": second_rounds,
    **{name: _of_settings(law) for name, law in METAMORPHIC.items()},
}


OF_THEIR_OWN = ("the second emulator", "the second emulator's rounds")
"""Laws that shrink worlds of their own: a smaller scenario says nothing about them."""


@dataclass
class Verdict:
    """What was found out about a scenario.

    Attributes:
        failures: laws that do not hold.
        checked: how often each law was applied.
        whole: the plain run; None if the scenario was refused or broke down.
    """

    failures: list[Failure] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    whole: Play | None = None


FREE = ("conservation", "no deadlock without a loss", "one by one")
"""Laws for every seed: they need no further run, or two short ones."""
SCENES = 4
"""How many scenes of its own the second emulator of whole rounds plays for a seed."""
LAWS_PER_SEED = 3
"""How many laws a scenario is judged by: each costs a run or more, and another scenario finds more than another law."""


def laws_for(number: int) -> list[str]:
    """The laws for the scenario of this seed: those that cost nothing, and a random choice of the others."""
    return [*FREE, *Random(f"laws {number}").sample([law for law in LAWS if law not in FREE], LAWS_PER_SEED)]


def judged(settings: Settings, *laws: str) -> Verdict:
    """Judge a scenario by these laws, by default by those for its seed.

    Raises:
        FednetError: the scenario is refused before or while it is played for the first time.
    """
    verdict, law = Verdict(), "no traceback"
    rng = Random(f"judge {settings['seed']}")
    try:
        scenario = scenario_of(settings)
        verdict.whole = played(scenario)
        for law in laws or laws_for(settings["seed"]):
            seen = LAWS[law](Case(settings, scenario, verdict.whole, rng))
            verdict.checked[law] += seen is not None
            if seen:
                verdict.failures.append(Failure(law, seen))
    except Exception as error:
        if isinstance(error, FednetError) and verdict.whole is None:
            raise
        where = "".join(traceback.format_exception(error)[-4:])
        verdict.failures.append(Failure(f"{law}: {type(error).__name__}", f"{error}\n{where}"))
    return verdict

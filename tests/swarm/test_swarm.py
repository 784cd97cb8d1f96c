"""A few seeds of the swarm, and the swarm itself: it finds faults that are there, and makes them small."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL
from tests.swarm.draw import drawn
from tests.swarm.faults import FAULTS
from tests.swarm.judge import LAWS, Case, judged
from tests.swarm.pairs import pairs_of, places, possible
from tests.swarm.plays import played, scenario_of
from tests.swarm.shrink import shrunk, told
from tests.swarm.trial import tried

FEW = (1, 2, 4, 5, 6, 8, 9, 10)
"""Seeds whose scenarios take less than a second."""


def small() -> dict[str, Any]:
    """The settings of the small federation."""
    return {**from_text(SMALL).data, "seed": 7}


@pytest.mark.parametrize("seed", FEW)
def test_a_seed_keeps_every_law(seed: int) -> None:
    """Nothing breaks, whatever components meet."""
    trial = tried(seed)

    assert not trial.failures
    assert trial.checked["conservation"] == 1


def test_a_seed_draws_the_same_scenario_every_time() -> None:
    """A failure can be replayed; another seed is another scenario."""
    assert drawn(3) == drawn(3)
    assert drawn(3).settings != drawn(4).settings


def test_pairs_are_those_that_can_meet() -> None:
    """A kind inside one algorithm never meets another algorithm, and what is drawn is among what is possible."""
    inside, aspire, fedavg = ("algorithm.uncertainty", "kl"), ("algorithm", "aspire"), ("algorithm", "fedavg")

    assert places()[inside] == {"algorithm": "aspire"}
    assert (aspire, inside) in possible()
    assert (fedavg, inside) not in possible()
    assert set(pairs_of(drawn(3).picks)) <= possible()


def test_a_broken_law_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a law that no scenario with header bits keeps, the header stays, and what may go is gone."""
    monkeypatch.setitem(LAWS, "bare", lambda case: "seen" if case.scenario.network.overhead.wire_bit(1) > 1 else "")
    header = {"overhead": {"kind": "header", "header_bit": 8}}
    settings = {**small(), "network": {**header, "movement_s": 2.0}}
    (failure,) = judged(settings, "bare").failures
    least = shrunk(settings, failure.law)

    assert least["network"] == header
    assert least["seed"] == 0
    assert least["stop"] == {"rounds": 1}
    assert "title" not in least
    assert "partition" in least
    assert "--seeds 1 --first 7" in told(7, failure, least)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_disturbs_the_run(fault: str) -> None:
    """In some of a few draws what happens differs from what happened without it; a device may leave unnoticed."""
    calm = played(scenario_of(small()), timing_only=True)
    drawn_faults = [FAULTS[fault](small(), calm.ledger, Random(f"{fault} {number}")) for number in range(6)]
    events = [played(scenario_of(each), timing_only=True).events for each in drawn_faults if each is not None]

    assert len(events) == 6
    assert set(events) != {calm.events}


@pytest.mark.parametrize("law", ["the same seed", "timing-only", "engines and threads", "resumed"])
def test_a_law_of_agreement_can_fail(law: str) -> None:
    """A run with other events than the plain one is noticed."""
    scenario = scenario_of(small())
    whole = played(scenario)

    assert LAWS[law](Case(small(), scenario, whole, Random(0))) == ""
    assert "events" in str(LAWS[law](Case(small(), scenario, replace(whole, events="other"), Random(0))))

"""A few seeds of the swarm, and the swarm itself: it finds faults that are there, and makes them small."""

from __future__ import annotations

import pytest

from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL
from tests.swarm.draw import drawn
from tests.swarm.judge import LAWS, judged
from tests.swarm.pairs import pairs_of, places, possible
from tests.swarm.shrink import shrunk, told
from tests.swarm.trial import tried

FEW = range(10)


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
    settings = {**from_text(SMALL).data, "seed": 7, "network": {**header, "movement_s": 2.0}}
    (failure,) = judged(settings, "bare").failures
    small = shrunk(settings, failure.law)

    assert small["network"] == header
    assert small["seed"] == 0
    assert small["stop"] == {"rounds": 1}
    assert "title" not in small
    assert "partition" in small
    assert "--seeds 1 --first 7" in told(7, failure, small)

"""Scenarios of the swarm in which transfers take turns have the same books with the general medium."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from fednet_emu.network import network
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.medium.turn_medium import TurnMedium, medium_class
from tests.swarm.draw import drawn
from tests.swarm.plays import Hangs, played, scenario_of

SEEDS = 160


def books_are_equal(seed: int) -> bool:
    """Play a seed with both media and compare them; False if nothing in it takes turns, or nothing is sent."""
    scenario, chosen = scenario_of(drawn(seed).settings), []

    def noted(*conditions: Any) -> type[Medium]:
        chosen.append(medium_class(*conditions))
        return chosen[-1]

    with patch.object(network, "medium_class", noted):
        turns = played(scenario, timing_only=True)
    if TurnMedium not in chosen or not len(turns.ledger.transfers):
        return False
    with patch.object(network, "medium_class", lambda *_: Medium):
        general = played(scenario, timing_only=True)
    assert (turns.events, turns.books) == (general.events, general.books)
    return True


def test_drawn_scenarios_have_the_same_books_with_both_media() -> None:
    """All tables to the last bit, whatever else the scenario has: the first one whose transfers take turns."""
    assert any(map(books_are_equal, range(SEEDS)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_many_scenarios_have_the_same_books_with_both_media(seed: int) -> None:
    """The same for a hundred and sixty seeds, but for scenes that take minutes with the general medium."""
    try:
        turns = books_are_equal(seed)
    except Hangs:
        pytest.skip("takes minutes")
    if not turns:
        pytest.skip("no turns")

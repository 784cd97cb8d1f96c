"""Scenarios of the swarm in which transfers take turns have the same books with the general medium."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from fednet_emu.network import network
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.medium.turn_medium import TurnMedium, medium_class
from tests.swarm.draw import drawn
from tests.swarm.plays import played, scenario_of

FEW = (5, 8, 11, 15, 17, 18, 26, 34)
"""Seeds whose scenarios have turns and take less than a second."""


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 140))])
def test_a_drawn_scenario_has_the_same_books_with_both_media(seed: int) -> None:
    """All tables to the last bit, whatever else the scenario has; two of three seeds have turns."""
    scenario, chosen = scenario_of(drawn(seed).settings), []

    def noted(*conditions: Any) -> type[Medium]:
        chosen.append(medium_class(*conditions))
        return chosen[-1]

    with patch.object(network, "medium_class", noted):
        turns = played(scenario, timing_only=True)
    if TurnMedium not in chosen:
        assert seed not in FEW
        pytest.skip("no turns")
    with patch.object(network, "medium_class", lambda *_: Medium):
        general = played(scenario, timing_only=True)

    assert len(turns.ledger.transfers) > 0 or seed not in FEW
    assert (turns.events, turns.books) == (general.events, general.books)

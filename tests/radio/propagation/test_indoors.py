"""Claims about links into buildings and inside factories by TR 38.901."""

import numpy as np
import pytest

from fednet_emu.radio.propagation.tr38901.buildings import OutdoorToIndoor
from fednet_emu.radio.propagation.tr38901.indoor import IndoorFactory
from fednet_emu.radio.propagation.tr38901.urban import UrbanMacro
from tests.radio.propagation.test_tr38901 import draws, hop


def test_coated_walls_spread_more():
    """High-loss buildings vary with 6.5 dB: at the 84th percentile of luck, a wall loses one deviation more."""
    buildings = OutdoorToIndoor(indoor_share=1.0, high_loss_share=1.0)
    lucks = [draws(1, penetration=luck) for luck in (0.5, 0.8413447460685429)]
    entries = [buildings.enter(10e9, luck, np.zeros(1)) for luck in lucks]

    assert entries[1].loss_db - entries[0].loss_db == pytest.approx([6.5])


def test_who_is_indoors_is_seen_from_the_wall():
    """Of 200,000 devices 300 m away and up to 25 m inside, as many are in sight as halls of that depth begin nearer."""
    buildings = OutdoorToIndoor(indoor_share=1.0, high_loss_share=0.0)
    luck = draws(200_000, depth=1.0)
    depth_m = UrbanMacro(buildings=buildings).propagate(hop(300.0, 25.0), 2e9, luck)
    walls = UrbanMacro().propagate(hop(275.0, 25.0), 2e9, luck)

    assert depth_m.los.tolist() == walls.los.tolist()


def test_links_in_a_factory_count_as_1_m_at_least():
    """Half a metre costs what one does, and one and a half more."""
    losses_db = [IndoorFactory(hall="SL", los="always").loss_db(hop(d, 1.5), 3.5e9) for d in (0.5, 1.0, 1.5)]

    assert losses_db[0] == losses_db[1] < losses_db[2]

"""Claims about the bursts on the air: who listens, and who does no longer."""

import numpy as np

from fednet_emu.kernel.clock import Clock
from fednet_emu.network.access import Ofdma
from fednet_emu.network.air.active_set import ActiveSet
from fednet_emu.network.air.transfer import Transfer


def test_who_has_left_listens_no_longer(cell):
    """Of 0 to 1 and 2 to 3 the first ends: one row and one column remain, and the second leg has row 0."""
    medium, clock = cell(Ofdma()).medium, Clock()
    first, second = ([Transfer(clock, 2, print, ends, None, -1, 8, None)] for ends in ((0, 1), (2, 3)))
    on_air = ActiveSet(medium.band, medium.links, 1)
    on_air.add([first, second])
    assert on_air.gains.receivers.tolist() == [1, 3]

    assert on_air.remove_legs(np.array([0])) == [first]

    assert (on_air.gains.senders.tolist(), on_air.gains.receivers.tolist()) == ([2], [3])
    assert (on_air.leg["row"].tolist(), on_air.burst["column"].tolist()) == ([0], [0])
    assert on_air.gains.mean.shape == (1, 1)

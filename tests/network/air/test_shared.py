"""Claims about plans: a long transfer over many short blocks is planned in few steps, and ends when it should."""

import numpy as np
import pytest

from fednet_emu.kernel.work import work_per_ns
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.active_set import ActiveSet
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.shared import end_of
from fednet_emu.radio.fading import Rayleigh
from tests.network.beside import general

MBIT = 1_000_000


@pytest.fixture
def planned(monkeypatch):
    """Numbers of blocks of all plans, and the number of times that the bursts on the air were gathered."""
    counts, gathered = [], []
    blocks, gather = Band.blocks, ActiveSet.gather
    monkeypatch.setattr(Band, "blocks", lambda band, from_ns, n: counts.append(n) or blocks(band, from_ns, n))
    monkeypatch.setattr(ActiveSet, "gather", lambda on_air: gathered.append(1) or gather(on_air))
    return counts, gathered


def test_a_plan_that_ran_out_is_followed_by_one_four_times_as_long(cell, planned):
    """A second at blocks of 1 ms: 8 + 32 + 128 + 512 blocks are 680 of 1000; who is on the air is gathered once."""
    (delivery,) = cell(general(Ofdma()), fading=Rayleigh(coherence_s=0.001)).play((0.0, 0, MBIT))

    assert delivery.ended_s == 1.0
    assert planned[0] == [8, 32, 128, 512, 2048]
    assert len(planned[1]) == 1


@pytest.mark.parametrize(("at_s", "later"), [(0.0155, [16, 64]), (0.0165, [32, 128])])
def test_a_change_in_the_first_quarter_halves_the_next_plan(cell, planned, at_s, later):
    """The second plan lasts from 8 to 40 ms: its first quarter ends with the block in which 16 ms lies."""
    world = cell(general(Ofdma()), fading=Rayleigh(coherence_s=0.001))
    first, second = world.play((0.0, 0, MBIT), (at_s, 1, MBIT))

    assert planned[0][:4] == [8, 32, *later]
    assert (first.ended_s, second.ended_s) == (1.0, at_s + 1.0)


def test_work_that_fills_a_block_ends_with_it():
    """A microsecond at 1 Mbit/s is done at its very end, and one unit more in the next block."""
    rates, edges_ns, work = np.array([1e6, 2e6]), [500, 1500, 2500], 1000 * work_per_ns(1e6)

    assert end_of(work, rates[:1], edges_ns[:2]) == 1500
    assert [end_of(work + more, rates, edges_ns) for more in (-1, 0, 1)] == [1500, 1500, 1501]

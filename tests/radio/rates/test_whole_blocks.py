"""Claims about grants of whole blocks: as many as the power suffices for, by trying every number."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.network.air.band import Band
from fednet_emu.network.nr.grant_rates import WholeBlocks, in_whole_blocks
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.radio.fading import NoFading
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.rates.narrowing import narrowed
from fednet_emu.radio.rates.shannon import Shannon
from tests.network.media import HandMadeLinks
from tests.quick import examples

BLOCK_HZ = 360e3
LAWS = [NrBlocks(blocks=51), Shannon(), Shannon(gap_db=0, min_efficiency_bps_hz=1.5)]


def granted(law, count=51, fewest=1):
    """The law in grants of whole blocks."""
    return WholeBlocks(law=law, count=count, fewest=fewest)


@pytest.mark.parametrize("law", LAWS)
@examples(40)
@given(snr_db=st.floats(-30, 35), count=st.sampled_from([1, 2, 11, 51, 273]), few=st.sampled_from([1, 2, 9]))
def test_the_best_number_of_blocks_is_granted(law, snr_db, count, few):
    """Its rate is the largest of those on the fewest to all blocks, to 0.5 %, and to the narrowest step of a table."""
    sinr, width_hz = 10 ** (snr_db / 10), count * BLOCK_HZ
    fewest = min(few, count)
    shifted = [sinr * 10 ** (step / 1e4) for step in (-11, 0, 11)]
    low, best, high = (
        max(law.rate_bps(each * count / m, m * BLOCK_HZ) for m in range(fewest, count + 1)) for each in shifted
    )

    rate_bps = granted(law, count, fewest).rate_bps(sinr, width_hz)

    assert 0.995 * low <= rate_bps <= 1.005 * high
    assert granted(law, count, fewest).rates_bps(np.array([sinr]), width_hz)[0] == rate_bps
    assert low <= best <= high


def test_a_device_at_its_limit_gets_the_blocks_that_its_headroom_allows():
    """One scheme, of an SNR of 3: power for 7.9 of 51 blocks at that SNR is a grant of 7 (TS 38.213 7.7.1)."""
    law = Shannon(gap_db=0, min_efficiency_bps_hz=2.0, max_efficiency_bps_hz=2.0, repetitions=1)
    headroom_blocks = 7.9

    its = granted(law)

    assert its.blocks(3.0 * headroom_blocks / 51) == math.floor(headroom_blocks)
    assert its.rate_bps(3.0 * headroom_blocks / 51, 51 * BLOCK_HZ) == pytest.approx(7 * BLOCK_HZ * 2.0)
    assert narrowed(law, BLOCK_HZ).rate_bps(3.0 * headroom_blocks / 51, 51 * BLOCK_HZ) == pytest.approx(
        7.9 * BLOCK_HZ * 2.0
    )


def test_less_than_a_grant_is_nothing():
    """Below the SINR of the lowest scheme on the fewest blocks."""
    law = Shannon(gap_db=0, min_efficiency_bps_hz=2.0, max_efficiency_bps_hz=2.0, repetitions=1)

    assert granted(law).rate_bps(3.0 / 51 * 0.99, 1.0) == 0.0
    assert granted(law).rate_bps(3.0 / 51 * 1.01, 51.0) == pytest.approx(2.0)
    assert granted(law, fewest=4).rate_bps(3.0 * 3.9 / 51, 1.0) == 0.0
    assert granted(law, fewest=4).narrowest_part(1.0) == 4 / 51


def test_slots_grant_whole_blocks():
    """`nr-grants` does so with laws that narrow, in its own spacing; others keep theirs."""
    band = Band.of(51 * BLOCK_HZ, narrowed(Shannon(), 2.5 * BLOCK_HZ), NoFading())
    band = NrGrants().use(band, HandMadeLinks([1.0]), 1, 1).band

    assert band.law.law == granted(Shannon(), 51, 3)
    assert in_whole_blocks(Shannon(), 1e7, BLOCK_HZ) == Shannon()

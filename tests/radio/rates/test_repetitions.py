"""Claims about repetition below the least efficiency: copies of a block add up, and the rate falls with the SINR."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.emulation.load import load_scenario
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.mcs import NrMcs
from fednet_emu.radio.rates.ergodic import averaged
from fednet_emu.radio.rates.finite_blocklength import FiniteBlocklength
from fednet_emu.radio.rates.narrowing import narrowed
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.radio.survey import uplink_rates
from tests.quick import examples

LAWS = [Shannon(), Shannon(gap_db=0, min_efficiency_bps_hz=1.5), NrMcs(), NrMcs(table=3, combining="none"), NrBlocks()]
NAMES = ["shannon", "high floor", "nr-mcs", "low rates", "nr-blocks"]
WIDTH_HZ = 20e6


def with_repetitions(law, count):
    """The same law with another number of repetitions."""
    return type(law)(**{**law.model_dump(exclude={"kind"}), "repetitions": count})


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_copies_add_up(law):
    """At s_min / 2 half of the least efficiency, at s_min / 8 an eighth, at s_min / 8.01 nothing; scalar and array."""
    sinr, efficiency_bps_hz = law.lowest
    at = sinr / np.array([1.0000001, 2.0, 5.5, 7.9999999, 8.01])

    expected = efficiency_bps_hz * WIDTH_HZ / np.array([1.0, 2.0, 5.5, 8.0, np.inf])

    assert [law.rate_bps(one, WIDTH_HZ) for one in at.tolist()] == pytest.approx(expected.tolist(), rel=1e-4)
    assert law.rates_bps(at, WIDTH_HZ) == pytest.approx(expected, rel=1e-4)
    assert law.rate_bps(sinr * 1.0000001, WIDTH_HZ) == pytest.approx(efficiency_bps_hz * WIDTH_HZ, rel=1e-4)


@pytest.mark.parametrize("law", LAWS[:4], ids=NAMES[:4])
def test_one_repetition_is_the_former_law(law):
    """Nothing below the least efficiency, and above it no number of repetitions changes the rate."""
    once, sinr = with_repetitions(law, 1), law.lowest[0]

    assert once.rate_bps(0.999999 * sinr, WIDTH_HZ) == 0.0
    assert once.min_sinr == sinr
    for above in (1.000001, 1.5, 10.0, 1e4):
        assert once.rate_bps(above * sinr, WIDTH_HZ) == law.rate_bps(above * sinr, WIDTH_HZ) > 0.0


@pytest.mark.parametrize("count", [1, 2, 4])
def test_attempts_and_repetitions_are_not_both_counted(count):
    """`nr-blocks`: where few repetitions end, four attempts still reach 6 dB below the lowest scheme, not further."""
    law = NrBlocks(repetitions=count)
    four_attempts = 10 ** (law.curves[0].half_db / 10) / 4

    assert law.rate_bps(1.0001 * four_attempts, 1.0) > 0.0
    assert law.rate_bps(0.9999 * four_attempts, 1.0) == 0.0


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@examples(60)
@given(level_db=st.floats(-40, 40), more=st.floats(1.0, 30.0))
def test_more_power_and_more_repetitions_never_lower_the_rate(law, level_db, more):
    """On the whole band, at any SINR; but in `nr-blocks` repetition replaces HARQ, which is 5 % faster at its steps."""
    sinr = 10 ** (level_db / 10)
    at_most = [with_repetitions(law, count).rate_bps(sinr, 1.0) for count in (1, 8, 16)]

    assert law.rate_bps(sinr * more, 1.0) >= law.rate_bps(sinr, 1.0) * (1 - 1e-12)
    loss = 0.95 if isinstance(law, NrBlocks) else 1.0
    assert all(more >= loss * fewer for fewer, more in pairwise(at_most))


@pytest.mark.parametrize("law", LAWS[:4], ids=NAMES[:4])
def test_narrowing_goes_on_where_repetition_ends(law):
    """With both, one block with all repetitions is the limit: 8 times farther than narrowing alone, at one slope."""
    block_hz, sinr = 180e3, law.lowest[0]
    eight, once = (narrowed(with_repetitions(law, count), block_hz) for count in (8, 1))
    alone = once.rate_bps(sinr * 0.0091, WIDTH_HZ)

    assert eight.rate_bps(sinr * 0.0091, WIDTH_HZ) == pytest.approx(alone)
    assert eight.rate_bps(sinr * 0.0091 / 8, WIDTH_HZ) == pytest.approx(alone / 8)
    assert eight.rate_bps(sinr * 0.0089 / 8, WIDTH_HZ) == 0.0
    assert once.rate_bps(sinr * 0.0089, WIDTH_HZ) == 0.0


def test_a_law_without_a_least_efficiency_or_with_a_formula_repeats_nothing():
    """`finite-blocklength` has no such key; with a least efficiency of 0 every SINR carries bits anyway."""
    endless = Shannon(min_efficiency_bps_hz=0)

    assert endless == with_repetitions(endless, 8)
    assert endless.min_sinr == 0.0
    assert endless.rate_bps(1e-9, 1.0) == with_repetitions(endless, 1).rate_bps(1e-9, 1.0) > 0.0
    with pytest.raises(ValueError, match="repetitions"):
        FiniteBlocklength(block_symbols=200, error_rate=0.1, repetitions=8)
    with pytest.raises(ValueError, match="repetitions is fixed with feedback: climbing, got 2; leave it out"):
        NrBlocks(feedback="climbing", repetitions=2)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_the_mean_over_fading_is_that_over_blocks(law):
    """Of 200,000 Rayleigh blocks at 0 to 12 dB below the least efficiency, to 1e-3."""
    sinr, gains = law.lowest[0] / np.array([1.0, 4.0, 16.0]), Rayleigh().gains((np.arange(200_000) + 0.5) / 200_000)

    expected = [law.rates_bps(one * gains, 1.0).mean() for one in sinr]

    assert averaged(law, Rayleigh()).rates_bps(sinr, 1.0) == pytest.approx(np.array(expected), rel=1e-3)


@pytest.mark.parametrize("name", ["urban-micro-28ghz", "urban-macro-indoor"])
def test_eight_repetitions_are_nine_decibels_more_range(name):
    """At 200 and 500 m as many places are reached as with 9.03 dB more power and no repetition: more than before."""
    distances_m = np.array([200.0, 500.0])

    def low_bps(repetitions, more_db):
        """Rates that 10 %, 50 % and 90 % of the places stay below, on the whole band."""
        channel = load_scenario(
            "quickstart", [f"channel={{include: {name}, narrowing: 'off', rate: {{repetitions: {repetitions}}}}}"]
        ).channel
        device = channel.device.model_copy(update={"tx_power_dbm": channel.device.tx_power_dbm + more_db})
        return np.array(uplink_rates(channel.model_copy(update={"device": device}), distances_m))

    nine_db = 10 * np.log10(8)
    with_power, with_copies, without = low_bps(1, nine_db), low_bps(8, 0.0), low_bps(1, 0.0)

    assert np.array_equal(with_power > 0, with_copies > 0)
    assert np.all(with_copies >= without)
    assert np.any((with_copies > 0) & (without == 0))

"""Claims about link adaptation by counted errors, against the loop written out for one SNR."""

from math import log10
from statistics import mean

import numpy as np
import pytest
from scipy.special import ndtr

from fednet_emu.radio.nr.blocks import NrBlocks

LAW = NrBlocks(margin_db=0, blocks=106, feedback="climbing")


def played(snr_db, windows):
    """First attempts' goodput, block error rate and MCS of each window of a transfer."""
    mcs, share, found = 9, 0.0, []
    for _ in range(windows):
        scheme = LAW.schemes[mcs]
        errors = float(ndtr((scheme.half_db - snr_db) / 0.2))
        found.append((scheme.efficiency_bps_hz * (1 - errors), errors, mcs))
        share = 0.9 * share + 0.1 * errors
        if share < 0.05:
            mcs = min(mcs + 1, 28)
        elif share > 0.15:
            mcs = max(mcs - 1, 6)
    return found


SNRS_DB = [6.0, 7.5, 9.0, 10.5, 12.0, 13.5, 15.0, 16.5, 18.0]


def test_the_swing_costs_what_openairinterface_loses():
    """From 6 to 18 dB the first attempts carry 0.76 to 0.95 of the best fixed scheme, 0.85 in the mean, 10 % fail."""
    relative, failed = [], []
    for snr_db in SNRS_DB:
        late = played(snr_db, 500)[100:]
        best = max(each.efficiency_bps_hz * (1 - float(ndtr((each.half_db - snr_db) / 0.2))) for each in LAW.schemes)
        relative.append(mean(goodput for goodput, _, _ in late) / best)
        failed.append(mean(errors for _, errors, _ in late))
        assert 2 <= len({mcs for _, _, mcs in late}) <= 6

    assert mean(relative) == pytest.approx(0.85, abs=0.03)
    assert 0.74 < min(relative) < max(relative) < 0.97
    assert mean(failed) == pytest.approx(0.1, abs=0.02)


def delivered(snr_db, windows):
    """Bits per slot and hertz of each window: up to four copies of a block, whose SNRs add up."""
    found = []
    for _, _, mcs in played(snr_db, windows):
        scheme, attempts, reached = LAW.schemes[mcs], 0.0, 1.0
        for copies in (1, 2, 3, 4):
            attempts += reached
            reached *= float(ndtr((scheme.half_db - snr_db - 10 * log10(copies)) / 0.2))
        found.append(scheme.efficiency_bps_hz * (1 - reached) / attempts)
    return found


@pytest.mark.parametrize("snr_db", [-1.0, 0.5, 4.0, *SNRS_DB])
def test_the_first_windows_are_those_of_the_loop(snr_db):
    """3.2 seconds of a transfer, window by window; where MCS 6 fails, too, it stays there."""
    sinr = np.array(10 ** (snr_db / 10))
    rates = LAW.rate_bps(float(sinr), 1.0) * LAW.climbed(sinr, np.arange(32))
    assert rates == pytest.approx(delivered(snr_db, 32), rel=0.01)
    assert LAW.climbed(sinr, np.array(32)) == 1.0


def test_the_long_run_is_that_of_the_loop():
    """From 6 to 18 dB to 2 % in the mean, and to 14 % at each SNR."""
    snrs_db = np.arange(6.0, 18.0, 0.11)
    relative = [LAW.rate_bps(10 ** (each / 10), 1.0) / mean(delivered(each, 288)[32:]) for each in snrs_db]

    assert mean(relative) == pytest.approx(1.0, abs=0.02)
    assert max(abs(each - 1.0) for each in relative) < 0.14


def test_more_power_never_lowers_the_rate():
    """The law rises, although loops at neighbouring SNRs swing differently."""
    rates = LAW.rates_bps(10 ** (np.arange(-10, 40, 0.05) / 10), 1.0)

    assert (np.diff(rates) >= 0).all()
    assert rates[0] == 0.0
    assert rates[-1] == pytest.approx(LAW.schemes[28].efficiency_bps_hz)

"""Claims about 5G modulation and coding schemes, against TS 38.214, Sionna's curves and ns-3's link adaptation."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.radio.nr.mcs import CQI_RATES_X1024, NrMcs, mcs_table
from fednet_emu.radio.rates.shannon import Shannon

REFERENCE = Path(__file__).parents[1] / "reference"


def rows(name):
    """The rows of a reference table."""
    with (REFERENCE / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("table", [1, 2, 3])
def test_spectral_efficiencies_are_those_of_the_standard(table):
    """Every row of the three MCS tables to the four digits that the standard prints."""
    expected = [float(row["spectral_efficiency"]) for row in rows(f"nr_mcs_table{table}.csv")]

    assert [scheme.efficiency_bps_hz for scheme in mcs_table(table)] == pytest.approx(expected, abs=5.1e-5)


def test_cqi_efficiencies_are_those_of_the_standard():
    """Every row of CQI table 1 from 0.1523 to 5.5547 bit/s/Hz."""
    expected = [float(row["spectral_efficiency"]) for row in rows("nr_cqi_table1.csv")[1:]]

    assert [bits * rate / 1024 for bits, rate in CQI_RATES_X1024[1]] == pytest.approx(expected, abs=5.1e-5)


@pytest.mark.parametrize("row", rows("ns3_lte_link_adaptation_vectors.csv"), ids=lambda row: row["snr_db"])
def test_lte_link_adaptation_vectors_of_ns3(row):
    """All 36: the efficiency with the gap of M-QAM at 5e-5, and its CQI, to which LTE gives MCS 2 CQI - 2."""
    gap_db = 10 * math.log10(-math.log(5 * 5e-5) / 1.5)
    law = Shannon(gap_db=gap_db, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)

    efficiency_bps_hz = law.rate_bps(10 ** (float(row["snr_db"]) / 10), 1.0)

    assert efficiency_bps_hz == pytest.approx(float(row["spectral_efficiency_expected"]), abs=6e-6)
    cqi = sum(bits * rate / 1024 <= efficiency_bps_hz for bits, rate in CQI_RATES_X1024[1])
    assert max(2 * cqi - 2, -1) == int(row["mcs_expected"])


@pytest.mark.parametrize(("table", "lowest", "highest"), [(1, 0.41, 2.49), (2, 0.71, 2.57)])
def test_gap_to_shannon_is_that_of_the_ldpc_code(table, lowest, highest):
    """10 % of blocks fail between 0.4 and 2.6 dB above Shannon's SNR of the same efficiency."""
    gaps_db = [
        scheme.snr_at_10_pct_db - 10 * math.log10(2**scheme.efficiency_bps_hz - 1) for scheme in mcs_table(table)
    ]

    assert min(gaps_db) == pytest.approx(lowest, abs=6e-3)
    assert max(gaps_db) == pytest.approx(highest, abs=6e-3)


def test_rate_is_the_scheme_of_the_sinr_less_retransmissions_and_overhead():
    """At 10 dB table 1 runs MCS 18, 2.7305 bit/s/Hz; a tenth is sent twice and 14 % is overhead."""
    rate_bps = NrMcs().rate_bps(10.0, 18.36e6)

    assert rate_bps == pytest.approx(18.36e6 * 2.7305 / 1.1 * 0.86, rel=1e-4)


def test_without_combining_every_tenth_attempt_is_wasted():
    """Independent losses of 10 % leave exactly nine tenths, whatever the bound on attempts."""
    rates_bps = [
        NrMcs(combining="none", max_attempts=attempts, overhead_share=0).rate_bps(10.0, 1e6) for attempts in (1, 4, 9)
    ]

    assert rates_bps == pytest.approx(3 * [0.9 * 2.73047e6], rel=1e-5)


def test_nothing_below_the_lowest_scheme_and_no_more_than_the_highest():
    """Without repetition table 1 starts at -6.04 dB, and it ends at 5.5547 bit/s/Hz."""
    law = NrMcs(overhead_share=0, combining="none", repetitions=1)

    assert 10 * math.log10(law.min_sinr) == pytest.approx(-6.04)
    assert law.rate_bps(0.999 * law.min_sinr, 1e6) == 0.0
    assert law.rate_bps(1e9, 1e6) == pytest.approx(0.9 * 5.5547e6, rel=1e-5)
    assert law.outage_sinr == 0.0


def test_higher_tables_reach_further():
    """At 30 dB 256QAM is faster than 64QAM; at -8 dB only the table for low rates carries anything at once."""
    at_30_db = [NrMcs(table=table).rate_bps(1000.0, 1e6) for table in (3, 1, 2)]
    at_minus_8_db = [NrMcs(table=table, repetitions=1).rate_bps(10**-0.8, 1e6) for table in (1, 2, 3)]

    assert at_30_db == sorted(at_30_db)
    assert at_minus_8_db[:2] == [0.0, 0.0]
    assert at_minus_8_db[2] > 0


def test_coarse_feedback_never_helps():
    """Sixteen reports name fewer schemes than the table has, at some SINRs for a lower rate."""
    sinr = 10 ** (np.linspace(-10, 30, 400) / 10)
    ideal, coarse = NrMcs().rates_bps(sinr, 1.0), NrMcs(feedback="cqi").rates_bps(sinr, 1.0)

    assert np.all(coarse <= ideal)
    assert np.any(coarse < ideal)


def test_every_threshold_is_named_as_a_jump():
    """Without repetition the rate rises at each, which averages over fading need to know."""
    law = NrMcs(table=2, repetitions=1)
    above, below = law.rates_bps(law.jumps * 1.000001, 1.0), law.rates_bps(law.jumps * 0.999999, 1.0)

    assert np.all(above > below)
    assert above[:-1] == pytest.approx(below[1:])


@pytest.mark.parametrize("table", [1, 2, 3])
def test_the_highest_report_names_the_highest_scheme(table):
    """The last row of each table of CQIs has the very code rate of the last scheme, which it therefore names."""
    ideal, coarse = NrMcs(table=table), NrMcs(table=table, feedback="cqi")

    assert coarse.rate_bps(1e6, 1.0) == ideal.rate_bps(1e6, 1.0)

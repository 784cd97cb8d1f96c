"""Claims about transport blocks, against values that agree with a unit test of srsRAN, and against the standard."""

import csv
from pathlib import Path

import pytest

from fednet_emu.radio.nr.blocks import transport_block_bit

with (Path(__file__).parent / "reference" / "link_nr_tbs.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def test_all_sizes_are_those_of_the_standard():
    """1,710 sizes of three MCS tables, 1 to 273 blocks, 12 to 14 symbols, 1 to 4 layers, equal."""
    found = [
        transport_block_bit(
            int(row["prb"]),
            int(row["symbols"]),
            int(row["dmrs_re"]),
            int(row["qm"]),
            float(row["rate_x1024"]),
            overhead=int(row["overhead_re"]),
            layers=int(row["layers"]),
        )
        for row in ROWS
    ]

    assert len(found) == 1710
    assert found == [int(row["tbs_bit"]) for row in ROWS]


def test_a_resource_block_counts_at_most_156_elements():
    """Fourteen symbols without reference signals are 168 elements, and give no more than thirteen."""
    assert transport_block_bit(51, 14, 0, 6, 567) == transport_block_bit(51, 13, 0, 6, 567)


@pytest.mark.parametrize("blocks", [10, 25, 51, 106, 273])
def test_rounding_is_small(blocks):
    """From ten blocks on a size is within 3.2 % of symbols times bits times rate, its step being at most 1 / 32."""
    for bits, rate in ((2, 120), (2, 679), (4, 658), (6, 567), (6, 948)):
        plain = blocks * (12 * 13 - 12) * bits * rate / 1024
        assert transport_block_bit(blocks, 13, 12, bits, rate) == pytest.approx(plain, rel=0.032, abs=24)


def test_no_resources_no_bits():
    """An allocation that is all reference signals, or empty, carries nothing."""
    assert transport_block_bit(0, 13, 12, 2, 120) == 0
    assert transport_block_bit(51, 1, 12, 2, 120) == 0

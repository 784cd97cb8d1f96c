"""Claims about resource blocks, against TS 38.101."""

import csv
from pathlib import Path

import pytest

from fednet_emu.radio.nr.numerology import occupied_hz, resource_blocks

with (Path(__file__).parent / "reference" / "nr_rb_table.csv").open(encoding="utf-8") as _file:
    ROWS = list(csv.DictReader(_file))


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['frequency_range']}-{row['scs_khz']}-{row['channel_bw_mhz']}"
)
def test_blocks_of_every_channel(row):
    """Number of resource blocks and occupied bandwidth of every channel of the standard."""
    carrier_hz = 3.5e9 if row["frequency_range"] == "FR1" else 28e9
    channel_hz = float(row["channel_bw_mhz"]) * 1e6

    assert resource_blocks(channel_hz, int(row["scs_khz"]), carrier_hz) == int(row["n_rb"])
    assert occupied_hz(channel_hz, int(row["scs_khz"]), carrier_hz) == pytest.approx(
        float(row["occupied_bw_mhz"]) * 1e6
    )


@pytest.mark.parametrize(
    ("spacing_khz", "carrier_hz", "right"), [(120, 3.5e9, "15, 30 or 60"), (30, 28e9, "60 or 120")]
)
def test_a_spacing_of_the_other_range_is_refused(spacing_khz, carrier_hz, right):
    """The message names the spacings that the carrier has."""
    with pytest.raises(ValueError, match=f"{spacing_khz} kHz is not used .* expected {right}"):
        resource_blocks(100e6, spacing_khz, carrier_hz)

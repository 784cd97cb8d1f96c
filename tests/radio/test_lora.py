"""Claims about LoRa: frames last as the data sheets say, and adaptation leaves a margin."""

import csv
from pathlib import Path

import pytest

from fednet_emu.network.lora.access import REQUIRED_DB, adapted, adapted_from_db, time_on_air_ns

with (Path(__file__).parent / "reference" / "link_lora_toa.csv").open(encoding="utf-8") as _file:
    FRAMES = list(csv.DictReader(_file))


def test_frames_last_as_the_data_sheets_say():
    """All 17 worked frames to the microsecond; at 250 kHz half as long where both have the same rate optimisation."""
    for row in FRAMES:
        size_byte, spreading = int(row["payload_byte"]), int(row["sf"])
        told_ns = float(row["time_on_air_ms"]) * 1e6
        assert time_on_air_ns(size_byte, spreading, 125e3) == told_ns
        if spreading < 11:
            assert time_on_air_ns(size_byte, spreading, 250e3) == told_ns / 2

    assert len(FRAMES) == 17


@pytest.mark.parametrize(
    ("snr_db", "spreading"),
    [(-30, 12), (-7.1, 12), (-6.9, 11), (-4.6, 11), (-4.4, 10), (0.6, 8), (2.9, 8), (3.1, 7)],
)
def test_adaptation_takes_steps_of_3_db_beyond_a_margin_of_10_db(snr_db, spreading):
    """At -7 dB the margin at spreading factor 12 (-20 dB) is 3 dB: one step, and 0.5 dB are left."""
    assert adapted(snr_db) == spreading


@pytest.mark.parametrize("spreading", [7, 8, 9, 10, 11])
def test_the_threshold_of_a_factor_is_where_adaptation_reaches_it(spreading):
    """From there on it has that factor, just below the next one; above 10.5 dB more than it needs."""
    threshold_db = adapted_from_db(spreading)

    assert [adapted(threshold_db + 1e-6), adapted(threshold_db - 1e-6)] == [spreading, spreading + 1]
    assert threshold_db == pytest.approx(REQUIRED_DB[spreading] + 10.5)

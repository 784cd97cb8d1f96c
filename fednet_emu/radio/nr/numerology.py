"""5G NR resource blocks: the part of a channel that carries data (TS 38.101-1 and 38.101-2 Table 5.3.2-1)."""

from __future__ import annotations

import csv
from importlib.resources import files

SUBCARRIERS_PER_BLOCK = 12
FR1_TOP_HZ = 7.125e9


def resource_blocks(channel_hz: float, subcarrier_spacing_khz: int, carrier_hz: float) -> int:
    """Return the number of resource blocks in a channel, without extra guard bands between adjacent carriers.

    A `ValueError` is raised if 5G NR has no channel of this bandwidth or subcarrier spacing at the carrier frequency.
    """
    frequency_range = "FR1" if carrier_hz <= FR1_TOP_HZ else "FR2"
    blocks = {
        float(row["channel_mhz"]): int(row["resource_blocks"])
        for row in rows("nr_resource_blocks.csv")
        if row["frequency_range"] == frequency_range and int(row["subcarrier_spacing_khz"]) == subcarrier_spacing_khz
    }
    if not blocks:
        raise ValueError(
            f"a subcarrier spacing of {subcarrier_spacing_khz} kHz is not used around this carrier, got {carrier_hz:g} "
            f"Hz; expected {'15, 30 or 60' if frequency_range == 'FR1' else '60 or 120'}"
        )
    if channel_hz / 1e6 not in blocks:
        widths = ", ".join(f"{width:g}" for width in blocks)
        raise ValueError(
            f"5G NR has no channel of this width at {subcarrier_spacing_khz} kHz spacing, got {channel_hz:g} Hz; "
            f"expected one of {widths} MHz, or subcarrier_spacing_khz: null for the nominal width"
        )
    return blocks[channel_hz / 1e6]


def occupied_hz(channel_hz: float, subcarrier_spacing_khz: int, carrier_hz: float) -> float:
    """Return the total width in Hz of all resource blocks of a channel, 79 to 98 % of the nominal width."""
    blocks = resource_blocks(channel_hz, subcarrier_spacing_khz, carrier_hz)
    return float(blocks * SUBCARRIERS_PER_BLOCK * subcarrier_spacing_khz * 1000)


def rows(name: str, table: int | None = None) -> list[dict[str, str]]:
    """Return the rows of a CSV file in `radio/data`, or of its table `table` if given, as dictionaries by column."""
    text = (files("fednet_emu.radio") / "data" / name).read_text(encoding="utf-8")
    return [row for row in csv.DictReader(text.splitlines()) if table is None or int(row["table"]) == table]

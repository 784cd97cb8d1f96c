"""List radio environments with their uplink rates, and compute rate curves over distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fednet_emu.analysis.quantities import format_bits
from fednet_emu.draw.figures.rates import RateCurve
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.survey import uplink_rates
from fednet_emu.scenario.document import load
from fednet_emu.scenario.library import names
from fednet_emu.scenario.problems import validate

LISTED_M = (50.0, 200.0, 500.0)
DRAWN_M = np.geomspace(10.0, 2000.0, 40)


def rows(wanted: list[str] | None) -> list[str]:
    """Return a heading and one line of text for each environment: name, carrier, bandwidth, median rates, title.

    Args:
        wanted: names of environments; None for all.
    """
    heads = ("channel", "carrier", "bandwidth", *(f"{distance_m:.0f} m" for distance_m in LISTED_M), "title")
    table = [heads, *(_row(name, channel) for name, channel in environments(wanted).items())]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads) - 1)]
    return ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in table]


def _row(name: str, channel: Channel) -> tuple[str, ...]:
    told = ("out of range" if np.isnan(rate) else f"{format_bits(rate)}/s" for rate in listed_rates(channel))
    return (name, f"{channel.carrier_hz / 1e9:g} GHz", f"{channel.bandwidth_hz / 1e6:g} MHz", *told, channel.title)


def rate_curves(wanted: list[str] | None) -> dict[str, RateCurve]:
    """Return the uplink rates over distance, from 10 m to 2 km, of the environments of these names, or of all."""
    found = environments(wanted).items()
    return {name: RateCurve(DRAWN_M, *uplink_rates(channel, DRAWN_M)) for name, channel in found}


def listed_rates(channel: Channel) -> list[float]:
    """Return the median uplink rates at `LISTED_M` in bit/s; NaN where a distance is out of range."""
    rates: list[float] = uplink_rates(channel, np.array(LISTED_M)).median_bps.tolist()
    return rates


def environments(wanted: Sequence[str] | None) -> dict[str, Channel]:
    """Load the environments of these names, or all of the library, as channels by name."""
    return {name: validate(Channel, load(name, "channels")) for name in wanted or names("channels")}

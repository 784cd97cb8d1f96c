"""List the profiles of devices that exist."""

from __future__ import annotations

from collections.abc import Sequence

from fednet_emu.devices.profiles import MARKS, Profile
from fednet_emu.scenario.document import load, names
from fednet_emu.scenario.problems import validate

UNITS = {
    "flop_per_s": "FLOP/s",
    "overhead_s": "s",
    "active_w": "W",
    "idle_w": "W",
    "transmit_w": "W",
    "receive_w": "W",
    "memory_bytes": "B",
}
HEADS = ("profile", "speed", "overhead", "computing", "idle", "sending", "receiving", "memory", "title")
SIGNS = dict(zip(MARKS, ("", "", "t", "r", "a"), strict=True))
LEGEND = "measured, or derived from measurements, but: t maker's table, r recalled, a assumed; - not known"


def rows(wanted: list[str] | None) -> list[str]:
    """Return a heading, one line of text for each profile, and what the letters behind numbers mean.

    Args:
        wanted: names of profiles; None for all.
    """
    table = [HEADS, *(_row(name, profile) for name, profile in known(wanted).items())]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADS) - 1)]
    return [*("  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in table), LEGEND]


def _row(name: str, profile: Profile) -> tuple[str, ...]:
    return (name, *(_text(profile, number) for number in profile.numbers), f"{profile.title}, {profile.year}")


def _text(profile: Profile, name: str) -> str:
    value, mark = profile.numbers[name], getattr(profile.evidence, name)
    if value is None:
        return "-"
    return f"{value:.3g} {UNITS[name]} {SIGNS[mark]}".rstrip()


def known(wanted: Sequence[str] | None) -> dict[str, Profile]:
    """Load the profiles of these names, or all of the library, by name."""
    return {name: validate(Profile, load(name, "profiles")) for name in wanted or names("profiles")}

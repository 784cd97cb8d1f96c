"""List the profiles of devices, radios and base stations that exist."""

from __future__ import annotations

from collections.abc import Sequence

from fednet_emu.devices.profiles import Profile
from fednet_emu.radio.profiles import MARKS, Kind, RadioProfile, StationProfile, kind_of
from fednet_emu.scenario.document import load
from fednet_emu.scenario.library import names
from fednet_emu.scenario.problems import validate

AnyProfile = Profile | RadioProfile | StationProfile
CLASSES: dict[Kind, type[AnyProfile]] = {"device": Profile, "radio": RadioProfile, "station": StationProfile}

UNITS = {
    "flop_per_s": "FLOP/s",
    "overhead_s": "s",
    "active_w": "W",
    "idle_w": "W",
    "transmit_w": "W",
    "receive_w": "W",
    "memory_bytes": "B",
    "most_dbm": "dBm",
    "amplifier_efficiency": "",
    "circuit_w": "W",
    "transmit_j_per_bit": "J",
    "receive_j_per_bit": "J",
}
HEADS: dict[type[AnyProfile], tuple[str, ...]] = {
    Profile: ("device", "speed", "overhead", "computing", "idle", "sending", "receiving", "memory", "title"),
    RadioProfile: (
        *("radio", "at most", "amplifier", "circuit", "sending", "receiving", "sent bit", "received bit", "title"),
    ),
    StationProfile: ("station", "at most", "amplifier", "idle", "title"),
}
SIGNS = dict(zip(MARKS, ("", "", "t", "r", "a"), strict=True))
LEGEND = "measured, or derived from measurements, but: t maker's table, r recalled, a assumed; - not known"


def rows(wanted: list[str] | None) -> list[str]:
    """Return tables of devices, radios and stations, one line of text each, and what the letters behind numbers mean.

    Args:
        wanted: names of profiles; None for all.
    """
    profiles = known(wanted)
    tables = (
        _table([HEADS[its], *(_row(name, profile) for name, profile in profiles.items() if type(profile) is its)])
        for its in HEADS
    )
    return [*(line for table in tables if len(table) > 1 for line in (*table, "")), LEGEND]


def _table(cells: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    return ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in cells]


def _row(name: str, profile: AnyProfile) -> tuple[str, ...]:
    return (name, *(_text(profile, number) for number in profile.numbers), f"{profile.title}, {profile.year}")


def _text(profile: AnyProfile, name: str) -> str:
    value, mark = profile.numbers[name], profile.marks[name]
    if value is None or mark is None:
        return "-"
    return " ".join(part for part in (f"{value:.3g}", UNITS[name], SIGNS[mark]) if part)


def known(wanted: Sequence[str] | None) -> dict[str, AnyProfile]:
    """Load the profiles of these names, or all of the library, by name: devices, radios and stations."""
    documents = {name: load(name, "profiles") for name in wanted or names("profiles")}
    kinds = {name: kind_of(document.data) or "device" for name, document in documents.items()}
    order = sorted(documents, key=lambda name: list(CLASSES).index(kinds[name]))
    return {name: validate(CLASSES[kinds[name]], documents[name]) for name in order}

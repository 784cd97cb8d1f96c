"""Shell completion for names of scenarios, studies and slots, and for keys and values of the option `--set`.

Each function takes the typed text, imports the modules that the completion needs, and returns completions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fednet_emu.scenario.library import Folder

Completion = list[str] | list[tuple[str, str]]
"""Possible completions: a list of strings, or of pairs of a string and its description."""


def scenario_names(incomplete: str) -> Completion:
    """Return names of scenarios in the library and in ./scenarios; without a match, files below the working folder."""
    return _named("scenarios", incomplete) or _files(incomplete)


def study_names(incomplete: str) -> Completion:
    """Return names of studies in the library and ./scenarios/studies; without a match, files in the working folder."""
    return _named("scenarios/studies", incomplete) or _files(incomplete)


def channel_names(incomplete: str) -> Completion:
    """Return the names of radio environments."""
    return _named("channels", incomplete)


def profile_names(incomplete: str) -> Completion:
    """Return the names of device profiles."""
    return _named("profiles", incomplete)


def slot_names(incomplete: str) -> Completion:
    """Return the names of slots, each with the first key at which the slot occurs."""
    from fednet_emu.scenario.slots import slots

    return [(name, place.keys[0]) for name, place in slots().items() if name.startswith(incomplete)]


def settings(incomplete: str) -> Completion:
    """Complete a `KEY=VALUE` of `--set`: return the keys of the next level or, after the `=`, the possible values."""
    from fednet_emu.scenario.slots import choices, settings_below

    key, equals, value = incomplete.partition("=")
    *above, last = key.split(".")
    below = settings_below(above)
    if equals:
        return [f"{key}={choice}" for choice in choices(below.get(last, ())) if choice.startswith(value)]
    names = [".".join([*above, name]) for name in below if name.startswith(last)]
    return [f"{name}." if settings_below(name.split(".")) else f"{name}=" for name in names]


def _named(folder: Folder, incomplete: str) -> list[str]:
    from fednet_emu.scenario.library import names

    return [name for name in names(folder) if name.startswith(incomplete)]


def _files(incomplete: str) -> list[str]:
    from fednet_emu.scenario.library import SUFFIXES

    folder, slash, start = incomplete.rpartition("/")
    places = Path(folder + slash or ".").iterdir() if Path(folder + slash or ".").is_dir() else ()
    return sorted(
        f"{folder}{slash}{place.name}{'/' if place.is_dir() else ''}"
        for place in places
        if place.name.startswith(start) and (place.is_dir() or place.suffix in SUFFIXES)
    )

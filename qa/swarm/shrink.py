"""Make a failing scenario smaller: settings are removed, one after the other, as long as the same law stays broken."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import yaml

from fednet_emu.errors import FednetError
from qa.swarm.draw import Settings
from qa.swarm.judge import FREE, LAWS, Failure, judged
from qa.swarm.recipes import ALWAYS

MOST_TRIES = 100
MOST_TEXT = 3000
SIMPLEST = {"count": 1, "rounds": 1, "seed": 0}
"""Numbers that a smaller scenario may have."""
Path = tuple[str, ...]


def shrunk(settings: Settings, law: str) -> Settings:
    """Return a smaller scenario that breaks the same law, after at most `MOST_TRIES` attempts."""
    tries, before = 0, None
    while settings != before:
        before = settings
        for path in sorted(_paths(before), key=len):
            smaller = _smaller(settings, path)
            tries += smaller is not None
            if smaller is not None and tries <= MOST_TRIES and _breaks(smaller, law):
                settings = smaller
    return settings


def _smaller(settings: Settings, path: Path) -> Settings | None:
    """The scenario with this setting as small as can be, or without it; None if there is no such setting to change."""
    parent: Any = (smaller := copy.deepcopy(settings))
    for key in path[:-1]:
        parent = parent.get(key, {})
    name = path[-1]
    if name in SIMPLEST and parent.get(name, SIMPLEST[name]) != SIMPLEST[name]:
        parent[name] = SIMPLEST[name]
    elif name in parent and name not in ("kind", "seed") and ".".join(path) not in ALWAYS:
        del parent[name]
    else:
        return None
    return smaller


def _paths(settings: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield (*path, key)
            yield from _paths(value, (*path, key))


def _breaks(settings: Settings, law: str) -> bool:
    broken = law.split(": ", maxsplit=1)[0]
    laws = (broken,) if broken in LAWS else FREE
    try:
        return any(failure.law == law for failure in judged(settings, *laws).failures)
    except FednetError:
        return False


def told(seed: int, failure: Failure, settings: Settings) -> str:
    """The text about a failure: the law, what was seen, the command that replays it, and the scenario."""
    return (
        f"seed {seed} breaks the law: {failure.law}\n{failure.text.rstrip()[:MOST_TEXT]}\n"
        f"again: python -m qa.swarm --seeds 1 --first {seed}\n"
        f"--- scenario\n{yaml.safe_dump(settings, sort_keys=False, default_flow_style=None, width=118)}---"
    )

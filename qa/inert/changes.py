"""Other values for a key: small and large numbers, every other choice, other kinds, something in place of null."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from random import Random
from typing import Any

from fednet_emu.component.component import Component
from qa.inert.keys import Key
from qa.swarm.draw import Settings, another, kinds_of

DRAWS = 3
"""Values of each key that are drawn as those of a scenario are."""
EXTREMES = (1e-3, 1e3)
FACTORS = (0.1, 10.0, 0.5, 2.0, 0.0)
OF_THEIR_OWN = {"stop.milestones": [[{"simulated_s": 1e-9, "accuracy": 1.0}]]}
"""Values of keys whose parts the annotations do not lead to, by label."""
FOR_NULL = (1, 0.3, 3, 50, [0])
"""Values for a key that is null, or a list without entries."""


def changes(key: Key, rng: Random, count: int) -> Iterator[Any]:
    """Values that differ from that of the key, none twice; not all of them need be possible."""
    seen = [list(key.value) if isinstance(key.value, tuple) else key.value]
    for value in _values(key, rng, count):
        if value not in seen:
            seen.append(value)
            yield value


def changed(settings: Settings, path: tuple[str, ...], value: Any) -> Settings:
    """A copy of a scenario that has another value at a path."""
    whole = copy.deepcopy(settings)
    inner = whole
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return whole


def _values(key: Key, rng: Random, count: int) -> Iterator[Any]:
    value, shape = key.value, key.shape
    drawn = (another(rng, count, shape, ".".join(key.path), key.owner, key.default) for _ in range(DRAWS))
    if shape.choice is not None:
        own = getattr(value, "kind", None)
        yield from (its for its in drawn if its is not None and its["kind"] != own)
        yield from kinds_of(shape.choice)
    elif shape.literals:
        yield from shape.literals
    elif isinstance(value, bool) or shape.annotation is bool:
        yield not value
    elif key.label in OF_THEIR_OWN:
        yield from OF_THEIR_OWN[key.label]
    else:
        yield from (value * factor for factor in EXTREMES if isinstance(value, float))
        yield from drawn
        yield from _numbers(value)
        yield {str: "another", Component: {}}.get(shape.annotation)


def _numbers(value: Any) -> Iterator[Any]:
    if value is None or value == ():
        yield from FOR_NULL
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value * 10, 1, 0)
    elif isinstance(value, float):
        yield from (value * factor for factor in FACTORS)
        yield from (value + 1.0, value - 1.0, -value, math.pi)
    elif isinstance(value, list | tuple):
        yield list(value[::-1])
        yield [each * 2 if isinstance(each, int | float) else each for each in value]

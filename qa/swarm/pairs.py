"""Pairwise coverage: which kinds of two slots have met in a scenario, out of all that can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations

from fednet_emu.component.slot import Slot
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.shapes import Shape
from qa.swarm.draw import Picks, kinds_of

Place = tuple[str, str]
"""The key path of a slot, and a kind of it."""
Pair = tuple[Place, Place]


@cache
def places() -> dict[Place, Picks]:
    """Every kind at every slot, with the kinds that the slots around it must have for it to be there.

    A slot that several algorithms have, as `algorithm.lr_schedule`, asks for none of them.
    """
    found: dict[Place, Picks] = {}
    for place, around in _below(Shape(Scenario), "", {}):
        found[place] = dict(found.get(place, around).items() & around.items())
    return found


def _below(shape: Shape, path: str, around: Picks) -> Iterator[tuple[Place, Picks]]:
    for name, inner in shape.settings.items():
        yield from _at(inner, f"{path}.{name}".lstrip("."), around)


def _at(shape: Shape, path: str, around: Picks) -> Iterator[tuple[Place, Picks]]:
    slot: Slot | None = shape.choice
    if slot is None:
        yield from _below(shape, path, around)
        return
    for kind in kinds_of(slot):
        yield (path, kind), around
        yield from _below(Shape(slot.table[kind]), path, {**around, path: kind})


@cache
def possible() -> frozenset[Pair]:
    """All pairs of kinds at two slots that can be in one scenario, as far as the annotations tell."""
    whole = {place: {**around, place[0]: place[1]} for place, around in places().items()}
    return frozenset(
        (one, other)
        for one, other in combinations(sorted(whole), 2)
        if all(whole[other].get(path, kind) == kind for path, kind in whole[one].items())
    )


def pairs_of(picks: Picks) -> Iterable[Pair]:
    """The pairs in one scenario."""
    return combinations(sorted(picks.items()), 2)

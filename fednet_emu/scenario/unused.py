"""Parts of a scenario that its algorithm never uses, so that they would change nothing, or only take samples away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fednet_emu.algorithms import ALGORITHMS
from fednet_emu.algorithms.base import Algorithm

Key = tuple[str, str]
"""A section of a scenario, and one of its keys."""


class Part(NamedTuple):
    """A part of a scenario: what an algorithm's `uses` calls it, and what one without it does."""

    name: str
    without: str
    got: str = "{:g}"


PARTS: dict[Key, Part] = {
    ("network", "edges"): Part(
        "edges", "has no edge servers, so that its base stations pass everything on", "a backhaul"
    ),
    ("network", "sidelink"): Part("sidelink", "never sends from device to device", "a sidelink"),
    ("server", "flop_per_s"): Part("server", "computes nothing on the server"),
    ("server", "samples"): Part("server", "trains nothing on the server, so that nobody learns from these samples"),
    ("server", "validation_samples"): Part("server", "chooses no model by its validation error"),
}


def unused(algorithm: Algorithm, given: Mapping[Key, Any]) -> Iterator[tuple[Key, str]]:
    """Find what is given though the algorithm never uses it.

    Args:
        algorithm: the algorithm.
        given: the values of the keys of `PARTS`; one that is false says that nothing is given.

    Yields:
        The key of a part, and what is wrong.
    """
    for key, part in PARTS.items():
        if given[key] and part.name not in algorithm.uses:
            able = ", ".join(name for name, known in ALGORITHMS.items() if part.name in known.uses)
            remedy = (
                f"choose {able}"
                if algorithm.kind in ALGORITHMS
                else f"""say uses = frozenset({{"{part.name}"}}) in the class"""
            )
            what = f"the algorithm {algorithm.kind} {part.without}, got {part.got.format(given[key])}"
            yield key, f"{what}; leave it out, or {remedy}"

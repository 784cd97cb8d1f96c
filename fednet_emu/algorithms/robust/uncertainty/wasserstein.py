"""The Wasserstein ball around the prior, on the line of the workers' numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.robust.uncertainty.base import UncertaintySet
from fednet_emu.arrays import Array


class Wasserstein(UncertaintySet):
    """Weights that the prior becomes when mass is moved, by worker numbers times mass at most `budget`."""

    budget: float = Field(ge=0)
    """Largest sum of distance in worker numbers times mass."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Each worker's mass climbs the concave hull of (distance, loss), steepest steps of all workers first.

        Exact in O(N^2 log N): the transport problem of N^2 variables falls apart by source once the budget has a price.
        """
        tours = [_hull(losses, source) if mass > 0 else [source] for source, mass in enumerate(prior)]
        steps = [
            ((losses[b] - losses[a]) / (abs(b - source) - abs(a - source)), source, a, b)
            for source, tour in enumerate(tours)
            for a, b in pairwise(tour)
        ]
        p, left = prior.copy(), self.budget
        for _, source, a, b in sorted(steps, key=lambda step: -step[0]):  # stable, so a tour keeps its order
            length = abs(b - source) - abs(a - source)
            mass = min(prior[source], left / length)
            p[a] -= mass
            p[b] += mass
            left -= mass * length
            if mass < prior[source]:
                break
        return np.maximum(p, 0.0)


def _hull(losses: Array, source: int) -> list[int]:
    """Corners of the concave hull of (distance from the source, loss), as worker numbers, while it rises."""
    place: list[int] = []
    for here in _records(losses, source):
        while len(place) > 1 and _slope(losses, source, place[-1], here) >= _slope(losses, source, *place[-2:]):
            place.pop()
        place.append(here)
    return place


def _slope(losses: Array, source: int, a: int, b: int) -> float:
    return float((losses[b] - losses[a]) / (abs(b - source) - abs(a - source)))


def _records(losses: Array, source: int) -> list[int]:
    """The workers whose loss exceeds that of all nearer ones, by distance, the source itself first."""
    distance = np.abs(np.arange(len(losses)) - source)
    order = np.argsort(distance, kind="stable")
    values = losses[order]
    nearer = np.concatenate([[-np.inf], np.maximum.accumulate(values)[:-1]])
    rising = order[values > nearer]
    last = np.append(np.diff(distance[rising]) > 0, True)  # of two at one distance, the higher comes second
    return [int(worker) for worker in rising[last]]

"""Contention of Wi-Fi stations that always have something to send: Bianchi's fixed point (IEEE JSAC 18, 2000).

All stations draw their backoff from the same windows, so that the probabilities depend on their number alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, bisected, power

WINDOW, DOUBLINGS = 16, 6
"""First contention window in slots, and how often it doubles: CWmin 15 and CWmax 1023 of best effort."""

_HALVINGS = 60


class Slots(NamedTuple):
    """Probabilities of the events in a slot of the backoff of n stations; a busy period counts as one slot.

    A *request* is a block-ack request: the missed acknowledgement of aggregated frames is requested before the next
    ones are sent, so that a share p of all attempts, the probability of a collision, are requests.

    Attributes:
        idle: no station sends.
        attempt: a given station sends data.
        success: only a given station sends, and it sends data.
        request: a given station sends a request.
        answered: only a given station sends, and it sends a request.
        collision: [n] the k-th shortest data frame is the longest one in a collision; of one station 0.
        requests_only: several send, and all of them requests.
    """

    idle: float
    attempt: float
    success: float
    request: float
    answered: float
    collision: Array
    requests_only: float


def fixed_point(stations: int) -> tuple[float, float]:
    """Return how likely a station is to send in a slot, tau, and how likely that attempt is to collide, p.

    tau = 2 / (1 + W + p W (1 + 2p + ... + (2p)^(m-1))) and p = 1 - (1 - tau)^(n-1), by bisection in p.
    """

    def chance(sends: float) -> float:
        return 1.0 - (1.0 - sends) ** (stations - 1)

    low, _ = bisected(lambda collides: chance(_attempt(collides)) > collides, 0.0, 1.0, _HALVINGS)
    sends = _attempt(low)
    return sends, chance(sends)


def _attempt(collides: float) -> float:
    stages = sum((2.0 * collides) ** stage for stage in range(DOUBLINGS))
    return 2.0 / (1.0 + WINDOW + collides * WINDOW * stages)


@lru_cache(maxsize=512)
def slots(stations: int, *, requests: bool) -> Slots:
    """Events in a slot of a number of stations, at least one.

    Args:
        stations: number of stations.
        requests: whether a station sends a block-ack request after a collision, until one is answered.
    """
    sends, collides = fixed_point(stations)
    attempt = sends * (1.0 - collides) if requests else sends
    others_silent = (1.0 - sends) ** (stations - 1)
    success, answered = attempt * others_silent, (sends - attempt) * others_silent
    idle = others_silent * (1.0 - sends)
    longer = np.arange(stations - 1, -1, -1.0)
    return Slots(
        idle=idle,
        attempt=attempt,
        success=success,
        request=sends - attempt,
        answered=answered,
        collision=np.maximum(attempt * power(1.0 - attempt, longer) - success, 0.0),
        requests_only=max((1.0 - attempt) ** stations - idle - stations * answered, 0.0),
    )

"""Contention of Wi-Fi stations that always have data to send: Bianchi's fixed point (IEEE JSAC 18, 2000).

All stations have the same contention window, so that probabilities depend only on the number of stations.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, bisected, power

WINDOW, DOUBLINGS = 16, 6
"""First contention window in slots, and maximum number of doublings of the window, for best-effort traffic: CWmin is
15, and CWmax is 1023."""

_HALVINGS = 60


class Slots(NamedTuple):
    """Probabilities of events in a backoff slot, with n stations; a busy period counts as one slot.

    A *request* is a block-ack request: a station that misses the acknowledgement of aggregated frames requests it
    before it sends further frames. Therefore the share of requests in all attempts is the collision probability p.

    Attributes:
        idle: no station sends.
        attempt: a given station sends data.
        success: only a given station sends, and it sends data.
        request: a given station sends a request.
        answered: only a given station sends, and it sends a request.
        collision: [n] entry k: frames collide, and the longest of these frames has rank k if the data frames of all
            stations are sorted by increasing length; 0 for n = 1.
        requests_only: several stations send, and all of them send requests.
    """

    idle: float
    attempt: float
    success: float
    request: float
    answered: float
    collision: Array
    requests_only: float


def fixed_point(stations: int) -> tuple[float, float]:
    """Return the probability tau that a station sends in a slot, and the probability p that its frame collides.

    For n stations, a first window of W slots and m doublings, tau is 2 / (1 + W + p W (1 + 2p + ... + (2p)^(m-1))), and
    p is 1 - (1 - tau)^(n-1). Both equations are solved by bisection in p.
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
    """Return the probabilities of events in a slot.

    Args:
        stations: number of stations, at least one.
        requests: True if a station sends block-ack requests after a collision, until a request is answered.
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

"""Sending until it has arrived, for algorithms that would otherwise wait for a lost message for ever."""

from __future__ import annotations

from collections.abc import Callable

from simpy.events import Event

from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import Process

FIRST_PAUSE_S = 1e-3
ATTEMPTS = 30
"""With the pause doubling each time, the last one comes after six days: then the link is dead."""


def until_delivered(fed: Federation, send: Callable[[], Event]) -> Process:
    """Send, and after each loss send again, the pause before it doubling from a millisecond.

    Returns:
        The delivery; it is lost only after thirty attempts.
    """
    delivery = yield send()
    for attempt in range(ATTEMPTS - 1):
        if not delivery.lost:
            break
        yield fed.clock.sleep(FIRST_PAUSE_S * 2**attempt)
        delivery = yield send()
    return delivery

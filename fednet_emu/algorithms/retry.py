"""Sending until it has arrived, for algorithms that would otherwise wait for a lost message for ever."""

from __future__ import annotations

from collections.abc import Callable

from simpy.events import Event

from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import Process

FIRST_PAUSE_S = 1e-3
ATTEMPTS = 30
"""With the pause doubling each time, the last one comes after six days: then the link is dead."""


GONE = ("away", "left")
"""Reasons of a loss that sending again does not mend before the device returns, which may be never."""


def until_delivered(fed: Federation, send: Callable[[], Event], *, to_the_gone: bool = True) -> Process:
    """Send, and after each loss send again, the pause before it doubling from a millisecond.

    Args:
        fed: The federation.
        send: Makes one attempt.
        to_the_gone: Whether to go on when the device is away; synchronous rounds do better without it.

    Returns:
        The delivery; it is lost only after thirty attempts, or at once when the device is away and not waited for.
    """
    delivery = yield send()
    for attempt in range(ATTEMPTS - 1):
        if not delivery.lost or (delivery.lost in GONE and not to_the_gone):
            break
        yield fed.clock.sleep(FIRST_PAUSE_S * 2**attempt)
        delivery = yield send()
    return delivery

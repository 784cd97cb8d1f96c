"""Sending until it has arrived, for algorithms that would otherwise wait for a lost message for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field
from simpy.events import Event

from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import Process

Patience = Annotated[float, Field(gt=0)]
"""Type of a setting `patience_s`: for how long a lost message is sent again before its device is given up."""

FIRST_PAUSE_S = 1e-3
ROUND_S = 60.0
"""Patience where everybody waits for the device: a minute."""
ALONE_S = 604_800.0
"""Patience where others go on meanwhile, and who is given up does not come back: a week."""
GONE = ("away", "left")
"""Reasons of a loss that sending again does not mend before the device returns, which may be never."""


def until_delivered(
    fed: Federation, send: Callable[[], Event], patience_s: float, *, to_the_gone: bool = True
) -> Process:
    """Send, and after each loss send again, the pause before it doubling from a millisecond.

    Args:
        fed: The federation.
        send: Makes one attempt, of which the network's `timeout_s` is the longest duration.
        patience_s: No attempt begins later than this after the first one.
        to_the_gone: Whether to go on when the device is away; synchronous rounds do better without it.

    Returns:
        The delivery; it is lost only when patience is over, or at once when the device is away and not waited for.
    """
    last_s, pause_s = fed.clock.now_s + patience_s, FIRST_PAUSE_S
    delivery = yield send()
    while delivery.lost and (to_the_gone or delivery.lost not in GONE) and fed.clock.now_s + pause_s <= last_s:
        yield fed.clock.sleep(pause_s)
        pause_s *= 2
        delivery = yield send()
    return delivery

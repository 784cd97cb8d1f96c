"""Sending again: attempts until everything has arrived or the limits are reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simpy.events import Event

from fednet_emu.kernel.all_of import AllOf
from fednet_emu.kernel.clock import Clock, Process
from fednet_emu.network.air.transfer import Delivery

Send = Callable[[], Event]
"""Makes one attempt; the value of the event is a `Delivery`, or a list of them."""

PAUSE_S = 1e-3
"""Pause in s before the second attempt; it doubles after each attempt."""
PATIENCE_S = 604_800.0
"""Timeout in s: no attempt begins later than a week after the first."""

BEYOND_REACH = "unreachable"
"""Reason of a loss because the link carries nothing: where nobody moves, sending again fails for ever."""
GONE = frozenset({"away", "left", "empty"})
"""Reasons of a loss because the device is away: sending again fails until it returns, which may be never."""


def retrying(
    clock: Clock,
    send: Send | Sequence[Send],
    attempts: int | None,
    pause_s: float,
    patience_s: float,
    hopeless: frozenset[str],
) -> Process:
    """Send until it has arrived, as `Federation.retry` says, but not again after losses for `hopeless` reasons."""
    sends = [send] if callable(send) else send
    last: list[Any] = [None] * len(sends)
    missing, made, give_up_s = list(range(len(sends))), 0, clock.now_s + patience_s
    while True:
        made += 1
        if callable(send):
            last[0] = yield send()
        else:
            ended = yield AllOf(clock, [sends[place]() for place in missing])
            for place, value in zip(missing, ended, strict=True):
                last[place] = value
        missing = [place for place in missing if _lost(last[place]) - hopeless]
        if not missing or made == attempts or clock.now_s + pause_s > give_up_s:
            return last[0] if callable(send) else last
        if pause_s:
            yield clock.sleep(pause_s)
            pause_s *= 2


def _lost(value: Delivery | Sequence[Delivery]) -> set[str]:
    """The reasons of the losses among these deliveries."""
    deliveries = [value] if isinstance(value, Delivery) else value
    return {delivery.lost for delivery in deliveries if delivery.lost}

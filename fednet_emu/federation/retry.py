"""Retransmission by the algorithm: an event that triggers when everything has arrived or the limits are reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from simpy.events import Event

from fednet_emu.kernel.all_of import AllOf
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.events import Completion, cancel, describe
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


class Limits(NamedTuple):
    """When to send again.

    Attributes:
        attempts: largest number of attempts of each send; None for no limit.
        pause_s: time in s from the end of the first attempt to the second; it doubles each time.
        patience_s: timeout in s: no attempt begins later than this after the first one.
        to_the_gone: whether to go on when a device is away.
        beyond_reach: whether to go on when a device is out of reach.
    """

    attempts: int | None = None
    pause_s: float = PAUSE_S
    patience_s: float = PATIENCE_S
    to_the_gone: bool = True
    beyond_reach: bool = False

    def allow(self, reason: str) -> bool:
        """Whether to send again what was lost for a reason."""
        return (self.to_the_gone or reason not in GONE) and (self.beyond_reach or reason != BEYOND_REACH)


class Retry(Completion):
    """Event with the last value of each send: its delivery, lost only when the last attempt was, too.

    Args:
        clock: simulated time.
        sends: what is sent, side by side; those that were lost are sent again when all have ended.
        limits: when to send again.
        alone: whether the value is that of the one send, rather than a list.
    """

    def __init__(self, clock: Clock, sends: Sequence[Send], limits: Limits, *, alone: bool) -> None:
        super().__init__(clock)
        self._clock, self._sends, self._limits, self._alone = clock, sends, limits, alone
        self._made, self._pause_s, self._last_s = 0, limits.pause_s, clock.now_s + limits.patience_s
        self._places = list(range(len(sends)))
        self._last: list[Any] = [None] * len(sends)
        self._waits_for: Event
        self._then: Callable[[Event], None]
        self._attempt()

    def _attempt(self, _paused: Event | None = None) -> None:
        self._made += 1
        events = [self._sends[place]() for place in self._places]
        self._wait(events[0] if self._alone else AllOf(self._clock, events), self._ended)

    def _wait(self, event: Event, then: Callable[[Event], None]) -> None:
        self._waits_for, self._then = event, then
        event.callbacks.append(then)

    def _ended(self, event: Event) -> None:
        self._then = _nothing  # as when cancelled: leaves no cycle for the garbage collector
        if not event.ok:
            event.defused = True
            self.fail(cast("Exception", event.value))
            return
        if self._alone and type(event.value) is Delivery and not event.value.lost:  # nearly always
            self._come(event.value)
            return
        ended: list[Any] = [event.value] if self._alone else list(cast("list[Any]", event.value))
        for place, value in zip(self._places, ended, strict=True):
            self._last[place] = value
        self._places = [place for place in self._places if self._is_worth_another(self._last[place])]
        enough = self._made == self._limits.attempts or self._clock.now_s + self._pause_s > self._last_s
        if not self._places or enough:
            self._come(self._last[0] if self._alone else self._last)
        elif self._pause_s == 0:
            self._attempt()
        else:
            self._wait(self._clock.sleep(self._pause_s), self._attempt)
            self._pause_s *= 2

    def _come(self, value: Any) -> None:
        """Trigger at once: whoever waits goes on as if it had waited for the attempt itself."""
        self.complete(value)
        self._clock.trigger_now([self])

    def _is_worth_another(self, value: Delivery | Sequence[Delivery]) -> bool:
        reasons = [value.lost] if isinstance(value, Delivery) else [delivery.lost for delivery in value]
        return any(reason and self._limits.allow(reason) for reason in reasons)

    def cancel(self, outcome: Any) -> None:
        """Cancel the sends under way, and send nothing again."""
        cancel(self._waits_for, outcome)
        if self._waits_for.callbacks is not None:
            self._waits_for.callbacks.remove(self._then)
        self._then = _nothing

    def describe(self) -> str:
        """Say what it waits for."""
        return describe(self._waits_for)


def _nothing(_event: Event) -> None:
    """Stand for what was waited for, once it has come."""

"""An inbox, into which many processes put items, and from which one process collects the items if there are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from simpy.events import Event

from fednet_emu.kernel.clock import COLLECT, Clock, Timer, to_ns
from fednet_emu.kernel.events import Completion, describe


class Collect(Completion):
    """Event returned by `Inbox.collect`; its value is the list of the collected items."""

    def __init__(self, inbox: Inbox, at_least: int, including: Set[int], sources: Sequence[Event]) -> None:
        super().__init__(inbox.clock)
        self.inbox, self.at_least, self.including, self.sources = inbox, at_least, including, sources
        self.timer: Timer | None = None

    def describe(self) -> str:
        here = {sender for _, sender, _ in self.inbox.items}
        missing = sorted(self.including - here)
        parts = [f"{self.at_least} arrivals in the inbox, which holds {len(self.inbox.items)}"]
        if missing:
            shown = ", ".join(self.inbox.label(sender) for sender in missing[:5])
            parts.append(f"{shown}{', ...' if len(missing) > 5 else ''} must be among them")
        waits = dict.fromkeys(describe(source) for source in self.sources if not source.triggered)
        return "; ".join([*parts, *list(waits)[:5]])

    def cancel(self, outcome: Any) -> None:
        self.inbox.withdraw(self)


class Inbox:
    """Inbox whose items are sorted by arrival time and sender; the order of simultaneous events is irrelevant."""

    def __init__(self, clock: Clock, label: Callable[[int], str] = str) -> None:
        self.clock = clock
        self.label = label
        self.items: list[tuple[int, int, Any]] = []
        self._collector: Collect | None = None
        self._checking = False

    def put(self, sender: int, item: Any) -> None:
        self.items.append((self.clock.now, sender, item))
        self._check_at_end_of_instant()

    def collect(
        self,
        at_least: int = 1,
        including: Set[int] = frozenset(),
        deadline_s: float | None = None,
        sources: Sequence[Event] = (),
    ) -> Collect:
        """Return an event that triggers when the inbox has `at_least` items, and one of each sender in `including`.

        The value of the event is the list of all items in the inbox at the end of this instant, which are removed from
        the inbox. If `deadline_s` is given, the event triggers after this time in s at the latest, with the items that
        have arrived. `sources` are the processes that put items into the inbox; deadlock errors describe them. A
        `RuntimeError` is raised if another call is pending.
        """
        if self._collector is not None:
            raise RuntimeError("an inbox serves one collector at a time")
        self._collector = collector = Collect(self, at_least, including, sources)
        if deadline_s is not None:
            at_ns = self.clock.now + to_ns(deadline_s)
            collector.timer = self.clock.call_at(at_ns, lambda _: self._hand_over(collector), COLLECT)
        self._check_at_end_of_instant()
        return collector

    def withdraw(self, collector: Collect) -> None:
        """Cancel a pending collection; the items stay in the inbox."""
        if collector.timer is not None:
            collector.timer.cancel()
        if self._collector is collector:
            self._collector = None

    def _check_at_end_of_instant(self) -> None:
        if self._collector is not None and not self._checking and len(self.items) >= self._collector.at_least:
            self._checking = True
            self.clock.call_at(self.clock.now, self._check, COLLECT)

    def _check(self, _event: Event) -> None:
        self._checking = False
        collector = self._collector
        if collector is None or len(self.items) < collector.at_least:
            return
        if not collector.including or collector.including <= {sender for _, sender, _ in self.items}:
            self._hand_over(collector)

    def _hand_over(self, collector: Collect) -> None:
        self.withdraw(collector)
        self.items.sort(key=lambda entry: entry[:2])
        arrived, self.items = self.items, []
        collector.succeed([item for _, _, item in arrived])

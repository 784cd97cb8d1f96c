"""How far a run is: a bar in a terminal or notebook, elsewhere a plain line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fednet_emu.api.screen import Bar, screen
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.stop import Stop
from fednet_emu.report.quantities import format_bits, format_seconds


@contextmanager
def live(stop: Stop, progress: bool | None) -> Iterator[Callable[[Federation], None] | None]:
    """An observer for the end of each round that shows how far a run is.

    Args:
        stop: when the run ends.
        progress: whether to show it; None where somebody looks: in a terminal or a notebook.
    """
    where = screen(progress)
    if where is None:
        yield None
        return
    with where.bar() as bar:
        yield _shown(stop, bar)


def _shown(stop: Stop, bar: Bar) -> Callable[[Federation], None]:
    shown_s = time.monotonic()

    def show(fed: Federation) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if now_s - shown_s >= bar.every_s:
            shown_s = now_s
            bar.show(line(fed), progress_of(fed, stop))

    return show


def line(fed: Federation) -> str:
    """Round, simulated time, bits and accuracy of a run that is under way."""
    accuracy = "" if fed.accuracy is None else f"  accuracy {fed.accuracy:.3f}"
    bits = format_bits(sum(fed.ledger.sent_bit))
    return f"round {fed.round}  t = {format_seconds(fed.clock.now_s)}  {bits}{accuracy}"


def progress_of(fed: Federation, stop: Stop) -> float:
    """How much of the way to the nearest limit is done, from 0 to 1; a target accuracy cannot tell."""
    parts = [
        reached / limit
        for reached, limit in (
            (fed.round, stop.rounds),
            (fed.clock.now_s, stop.simulated_s),
            (sum(fed.ledger.sent_bit), stop.bits),
            (fed.ledger.energy_j, stop.energy_j),
        )
        if limit is not None
    ]
    return min(max(parts, default=0.0), 1.0)

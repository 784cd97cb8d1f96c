"""Show the progress of a run: a bar in a terminal or notebook, elsewhere a line of text from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fednet_emu.analysis.quantities import format_bits, format_seconds
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.stop import Stop
from fednet_emu.screen.screen import Bar, screen


@contextmanager
def live(stop: Stop, progress: bool | None) -> Iterator[Callable[[Federation], None] | None]:
    """Provide an observer that shows the progress of a run at the end of each round; None if nothing is shown.

    Args:
        stop: the conditions that end the run.
        progress: whether to show the progress; None shows it only in a terminal or a notebook.
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
    """Return a line of text with the round, simulated time, bits and accuracy of a running run."""
    accuracy = "" if fed.accuracy is None else f"  accuracy {fed.accuracy:.3f}"
    bits = format_bits(sum(fed.ledger.sent_bit))
    return f"round {fed.round}  t = {format_seconds(fed.clock.now_s)}  {bits}{accuracy}"


def progress_of(fed: Federation, stop: Stop) -> float:
    """Return the progress towards the nearest limit, from 0 to 1; a target accuracy is not taken into account."""
    parts = [
        reached / limit
        for reached, limit in (
            (fed.round, stop.rounds),
            (fed.clock.now_s, stop.simulated_s),
            (sum(fed.ledger.sent_bit), stop.bits),
            (fed.ledger.spent_j(fed.clock.now), stop.energy_j),
        )
        if limit is not None
    ]
    return min(max(parts, default=0.0), 1.0)

"""The live line of a run: a bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from fednet_emu.cli.outcome import ERRORS
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.stop import Stop
from fednet_emu.report.quantities import format_bits, format_seconds

REFRESH_S, PLAIN_LINE_S = 0.1, 10.0


@contextmanager
def live(stop: Stop, *, quiet: bool) -> Iterator[Callable[[Federation], None] | None]:
    """An observer for the end of each round that shows how far a run is."""
    if quiet:
        yield None
        return
    bar = Progress(TextColumn("{task.description}"), BarColumn(bar_width=24), console=ERRORS, transient=True)
    with bar:
        task = bar.add_task("starting", total=1.0)
        shown_s = time.monotonic()

        def show(fed: Federation) -> None:
            nonlocal shown_s
            now_s = time.monotonic()
            if now_s - shown_s < (REFRESH_S if ERRORS.is_terminal else PLAIN_LINE_S):
                return
            shown_s = now_s
            if ERRORS.is_terminal:
                bar.update(task, completed=progress_of(fed, stop), description=line(fed))
            else:
                ERRORS.print(line(fed))

        yield show


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

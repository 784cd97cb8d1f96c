"""Run cells one after the other in this process, for scenarios with objects that no other process could import."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace

from fednet_emu.study.attempt import CellJob, attempted
from fednet_emu.study.local import News


def run_here(tasks: Sequence[CellJob]) -> Generator[News, None, None]:
    """Run tasks one by one, and yield news when each starts and ends.

    Limits of time and memory are ignored, because they need a separate process for each task.
    """
    for place, task in enumerate(tasks):
        yield News(place, None)
        started_s = time.monotonic()
        outcome = attempted(task)
        if outcome.status == "stopped":
            raise KeyboardInterrupt
        yield News(place, replace(outcome, host_s=time.monotonic() - started_s))

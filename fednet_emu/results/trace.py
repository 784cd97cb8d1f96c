"""Write a run as a trace for Perfetto, and show progress meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

from fednet_emu.analysis.quantities import format_seconds
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.window import Window
from fednet_emu.draw.trace.trace import Show, write_trace
from fednet_emu.errors import FednetError
from fednet_emu.screen.progress import Bar, screen


def trace_run(run: RunRecords, path: Path, window: Window, *, progress: bool | None = None) -> Path:
    """Write a run as a Perfetto trace; see `Run.trace`."""
    window.check([run])
    simulated_s = run.summary["simulated_s"]
    if window.from_s > simulated_s:
        raise FednetError(f"from_s: the run ends at {simulated_s:g} s, got {window.from_s:g} s; give an earlier time")
    where = screen(progress)
    if where is None:
        write_trace(run, path, window)
        return path
    with where.bar() as bar:
        write_trace(run, path, window, _shown(bar, min(window.until_ns, simulated_s * 1e9)))
    return path


def _shown(bar: Bar, end_ns: float) -> Show:
    shown_s = time.monotonic()

    def show(now_ns: int, slices: int) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= bar.every_s:
            shown_s = time.monotonic()
            done = min(now_ns / end_ns, 1.0) if end_ns else 1.0
            bar.show(f"t = {format_seconds(now_ns / 1e9)}  {slices} slices", done)

    return show

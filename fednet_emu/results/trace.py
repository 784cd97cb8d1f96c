"""Write a run as a trace for Perfetto, and show progress meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fednet_emu.analysis.quantities import format_seconds
from fednet_emu.analysis.run import RunView
from fednet_emu.arrays import IntArray
from fednet_emu.draw.trace.trace import FOREVER_NS, ONE_CELL, Show, Window, write_trace
from fednet_emu.emulation.outlook import serving_cells
from fednet_emu.errors import FednetError
from fednet_emu.screen.progress import Bar, screen

if TYPE_CHECKING:
    from fednet_emu.scenario.model import Scenario


def trace_run(
    run: RunView,
    scenario: Callable[[], Scenario],
    path: Path,
    *,
    from_s: float | None = None,
    until_s: float | None = None,
    devices: Iterable[int] | None = None,
    progress: bool | None = None,
) -> Path:
    """Write a run as a Perfetto trace; see `Run.trace`, whose arguments these are.

    Args:
        run: the run.
        scenario: returns its scenario, which is only needed if there are several cells.
    """
    window = _window(run, from_s, until_s, devices)
    one_cell = run.scenario.get("network", {}).get("cells", {}).get("kind", "single") == "single"
    cell_of = ONE_CELL if one_cell else serving_cells(scenario())
    where = screen(progress)
    if where is None:
        write_trace(run, path, window, cell_of)
        return path
    with where.bar() as bar:
        write_trace(run, path, window, cell_of, _shown(bar, min(window.until_ns, run.summary["simulated_s"] * 1e9)))
    return path


def _window(run: RunView, from_s: float | None, until_s: float | None, devices: Iterable[int] | None) -> Window:
    begin_s, end_s = from_s or 0.0, np.inf if until_s is None else until_s
    if not 0 <= begin_s < end_s:
        raise FednetError(f"until_s: must be after the begin at {begin_s:g} s, got {end_s:g} s; give a later end")
    simulated_s = run.summary["simulated_s"]
    if begin_s > simulated_s:
        raise FednetError(f"from_s: the run ends at {simulated_s:g} s, got {begin_s:g} s; give an earlier time")
    end_ns = FOREVER_NS if np.isinf(end_s) else round(end_s * 1e9)
    return Window(round(begin_s * 1e9), end_ns, None if devices is None else _numbers(run, devices))


def _numbers(run: RunView, devices: Iterable[int]) -> IntArray:
    chosen, count = sorted(set(devices)), int(run.scenario["devices"]["count"])
    if not chosen:
        raise FednetError("devices: nobody is to be shown, got no number; leave it out to show all")
    for device in (chosen[0], chosen[-1]):
        if not 0 <= device < count:
            raise FednetError(f"devices: no such device in this run, got {device}; they are numbered 0 to {count - 1}")
    return np.array(chosen, np.int64)


def _shown(bar: Bar, end_ns: float) -> Show:
    shown_s = time.monotonic()

    def show(now_ns: int, slices: int) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= bar.every_s:
            shown_s = time.monotonic()
            done = min(now_ns / end_ns, 1.0) if end_ns else 1.0
            bar.show(f"t = {format_seconds(now_ns / 1e9)}  {slices} slices", done)

    return show

"""Plot timelines: one panel per run, one row per device, with coloured bars for the activities of the device.

If there are many devices, stacked areas show the fraction of devices in each state over time, and only some devices
have a row below the areas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fednet_emu.analysis.activity import BINS, WAITING, ranked, spread, state_shares
from fednet_emu.analysis.quantities import LONG_TIMES, Unit, axis_unit
from fednet_emu.arrays import Array
from fednet_emu.draw.palette import ACTIVITIES, ORANGE
from fednet_emu.draw.style import add_legend, finish_axes, new_figure, round_ticks, wrapped
from fednet_emu.records.ledger import SERVER

MAX_ROWS = 60
"""Maximum number of device rows in a figure. If there are more devices, areas are added and only some devices shown."""
SOME_ROWS, MIN_ROWS = 24, 12
"""Number of device rows below the areas if there is a single panel, and minimum number of such rows in each of several
panels."""
AREA_ROWS = 12
"""Height of the areas, as a multiple of the height of a device row."""
MAX_ROUND_LINES = 20
ROW_IN, ROW_LABEL_PT = 0.105, 6.0
MIN_HEIGHT_ROWS = 6
"""Minimum height of a panel, in device rows, so that its axis label fits."""
TICKS_IN, TITLE_IN, X_LABEL_IN = 0.2, 0.16, 0.2


@dataclass(frozen=True)
class Look:
    """Style of the bars of an activity. Bars of failed activities are white and hatched.

    The colours of different activities also differ in lightness, so that they can be distinguished in greyscale.

    Attributes:
        colour: colour of the bars.
        height: height of the bars relative to a row.
        layer: plotting order; bars with a higher value cover bars with a lower value.
        hollow: colour of the hatching of failed activities. If empty, the hatching has the colour of the bars.
    """

    colour: str
    height: float = 0.8
    layer: float = 2.0
    hollow: str = ""


LOOKS = {
    "downlink": Look(ACTIVITIES["downlink"].colour),
    "compute": Look(ACTIVITIES["compute"].colour, layer=1.9, hollow=ORANGE),
    "uplink": Look(ACTIVITIES["uplink"].colour),
    "sidelink": Look(ACTIVITIES["sidelink"].colour),
    WAITING: Look(ACTIVITIES[WAITING].colour, height=0.3, layer=1.8),
}
IDLE_COLOUR = ACTIVITIES["idle"].colour
HATCH = "/" * 8
ROUND_END: dict[str, Any] = {"color": "0.45", "linewidth": 0.5, "linestyle": (0, (3, 2))}


@dataclass(frozen=True)
class Panel:
    """The data of one run in the figure.

    Attributes:
        label: name of the run.
        bars: the activities of the devices; see `activity_bars`.
        round_ends_s: ends of the rounds [rounds], in simulated seconds.
        until_s: end of the time axis, in simulated seconds.
        from_s: start of the time axis, in simulated seconds.
        devices: number of devices, including devices without bars; 0 if unknown.
        over_s: end of the run, in simulated seconds. After this time, devices do not count as idle.
        sort: order of the rows, one of `SORTS`. The default is the device number if all devices have a row; otherwise
            the waiting time, or the busy time if no device waited.
    """

    label: str
    bars: pd.DataFrame
    round_ends_s: Array
    until_s: float
    from_s: float = 0.0
    devices: int = 0
    sort: str | None = None
    over_s: float = np.inf

    @property
    def count(self) -> int:
        """Number of devices, without the server; of devices with bars if the number of all devices is unknown."""
        return max(self.devices, self.of_devices["device"].nunique())

    @property
    def of_devices(self) -> pd.DataFrame:
        return self.bars[self.bars["device"] > SERVER]


@dataclass(frozen=True)
class Rows:
    """The rows of a timeline's panel: devices from top to bottom, whether areas are above them, and the axis label."""

    devices: list[int]
    areas: bool
    label: str


def rows_of(panel: Panel, panels: int) -> Rows:
    """Return the device rows of one panel in a timeline figure with `panels` panels."""
    count, active = panel.count, panel.of_devices["device"].nunique()
    if active <= MAX_ROWS // panels:
        idle = f"\n({active} of {count})" if count > active else ""
        everyone = ranked(panel.bars, panel.sort or "device")
        return Rows(everyone, False, f"Device{f', by {panel.sort}' if panel.sort else ''}{idle}")
    waited = (panel.bars["activity"] == WAITING).any()
    sort = panel.sort or ("waiting" if waited else "busy")
    some = spread(ranked(panel.of_devices, sort), max(MIN_ROWS, SOME_ROWS // panels))
    return Rows(some, True, f"{len(some)} of {count}, by {sort}")


def timeline_figure(panels: Sequence[Panel]) -> Figure | None:
    """Plot the activities of the devices of each run over time. Return None if there are no activities.

    All panels have the time axis of the longest run. A panel has one row per device if the run has at most 60 devices
    (60 divided by the number of panels, if there are several). Otherwise the panel has areas with the share of devices
    in each state, and rows for some devices. These devices are evenly spaced in the sort order, by default from the
    longest to the shortest waiting time. Devices without activities have no row. The axis label then states the number
    of rows and the number of devices. Without areas, a server that computes has a row, which is not counted.
    """
    panels = [panel for panel in panels if len(panel.bars)]
    if not panels:
        return None
    rows = [rows_of(panel, len(panels)) for panel in panels]
    titles_in = TITLE_IN * sum(wrapped(panel.label).count("\n") + 1 for panel in panels) if len(panels) > 1 else 0.0
    heights = [
        height
        for each in rows
        for height in ([AREA_ROWS] if each.areas else []) + [max(MIN_HEIGHT_ROWS, len(each.devices))]
    ]
    figure = new_figure(sum(TICKS_IN + ROW_IN * height for height in heights) + titles_in + X_LABEL_IN)
    grid = iter(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
    begin_s, end_s = min(panel.from_s for panel in panels), max(panel.until_s for panel in panels)
    unit = axis_unit(end_s, LONG_TIMES)
    for panel, chosen in zip(panels, rows, strict=True):
        first = axes = next(grid)
        if chosen.areas:
            _draw_areas(first, panel, unit)
            axes = next(grid)
        _draw(axes, panel, chosen, unit)
        if len(panels) > 1:
            first.set_title(wrapped(panel.label), loc="left", pad=3.0)
    for each in figure.axes:
        each.set_xlim(begin_s / unit.size, end_s / unit.size)
    axes.set_xlabel(f"Time ({unit.symbol})")
    add_legend(figure, _legend_handles(panels), handle_em=1.4)
    figure.numbers = pd.concat([panel.bars.assign(run=panel.label) for panel in panels], ignore_index=True)
    return figure


def _draw_areas(axes: Axes, panel: Panel, unit: Unit) -> None:
    """Plot the fraction of devices in each activity as stacked areas; the background above is that of idle devices."""
    edges_s = np.linspace(panel.from_s, panel.until_s, BINS + 1)
    shares = state_shares(panel.bars, panel.count, edges_s)
    known = [(look, shares[name]) for name, look in LOOKS.items() if name in shares]
    heights = [100 * np.append(share, share[-1]) for _, share in known]  # steps are as wide as their intervals
    tops = np.cumsum(heights, axis=0)
    for (look, _), low, high in zip(known, np.vstack([np.zeros((1, BINS + 1)), tops[:-1]]), tops, strict=True):
        axes.fill_between(edges_s / unit.size, low, high, step="post", color=look.colour, linewidth=0.0)
    axes.set_facecolor(IDLE_COLOUR)
    axes.set_ylim(0.0, 100.0)
    axes.set_yticks([0, 50, 100])
    round_ticks(axes.xaxis)
    finish_axes(axes, grid=False)
    axes.tick_params(axis="x", labelbottom=False)
    axes.set_ylabel("Devices (%)")


def _draw(axes: Axes, panel: Panel, rows: Rows, unit: Unit) -> None:
    devices = rows.devices
    bars = panel.bars[panel.bars["device"].isin(devices)]
    last_s = min(panel.until_s, panel.over_s)
    idle = pd.DataFrame({"device": devices, "started_s": panel.from_s, "ended_s": last_s})
    _add_bars(axes, _boxes(idle, devices, unit), zorder=1.0, linewidths=0.0, facecolors=[IDLE_COLOUR])
    if len(panel.round_ends_s) <= MAX_ROUND_LINES:
        for end_s in panel.round_ends_s:
            axes.axvline(end_s / unit.size, zorder=1.5, **ROUND_END)
    for activity, look in LOOKS.items():
        chosen = bars[bars["activity"] == activity]
        for failed in (False, True):
            boxes = _boxes(chosen[chosen["failed"] == failed], devices, unit, look.height)
            edge = look.hollow or look.colour if failed else look.colour
            options = {"facecolors": ["white" if failed else look.colour], "edgecolors": [edge]}
            # the thin outline keeps bars narrower than a pixel visible
            _add_bars(axes, boxes, zorder=look.layer, linewidths=0.4, hatch=HATCH if failed else None, **options)
    axes.set_yticks(range(len(devices)), ["server" if device == SERVER else str(device) for device in devices])
    round_ticks(axes.xaxis)
    finish_axes(axes, grid=False)
    axes.tick_params(axis="y", length=0.0, labelsize=ROW_LABEL_PT)
    axes.spines["left"].set_visible(False)
    axes.set_ylabel(rows.label)
    margin = 0.6 + max(0, MIN_HEIGHT_ROWS - len(devices)) / 2
    axes.set_ylim(len(devices) - 1 + margin, -margin)


def _add_bars(axes: Axes, boxes: Array, **options: Any) -> None:
    if len(boxes):
        axes.add_collection(PolyCollection(list(boxes), **options), autolim=False)


def _boxes(bars: pd.DataFrame, devices: list[int], unit: Unit, height: float = 0.8) -> Array:
    """Return the corners [bars, 4, 2] of horizontal bars, each centred vertically on the row of its device."""
    row = bars["device"].map({device: row for row, device in enumerate(devices)}).to_numpy(np.float64)
    started, ended = (bars[name].to_numpy(np.float64) / unit.size for name in ("started_s", "ended_s"))
    low, high = row - height / 2, row + height / 2
    x = np.stack([started, ended, ended, started], axis=1)
    y = np.stack([low, low, high, high], axis=1)
    return np.stack([x, y], axis=2)


def _legend_handles(panels: Sequence[Panel]) -> list[Artist]:
    bars = pd.concat([panel.bars[["activity", "failed"]] for panel in panels])
    shown = set(bars["activity"].unique())
    handles: list[Artist] = [
        Patch(label=ACTIVITIES[name].title, facecolor=look.colour) for name, look in LOOKS.items() if name in shown
    ]
    handles.append(Patch(label="idle", facecolor=IDLE_COLOUR))
    if bars["failed"].any():
        name = "lost or stopped" if (bars["failed"] & (bars["activity"] == "compute")).any() else "lost"
        handles.append(Patch(label=name, facecolor="white", edgecolor="0.3", linewidth=0.5, hatch=HATCH))
    if any(0 < len(panel.round_ends_s) <= MAX_ROUND_LINES for panel in panels):
        handles.append(Line2D([], [], label="round end", **ROUND_END))
    return handles

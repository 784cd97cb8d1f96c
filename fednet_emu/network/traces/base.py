"""The base class of rate traces, and the conversion of recorded rows into a rate series."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array
from fednet_emu.component.component import Component
from fednet_emu.errors import DataError
from fednet_emu.network.traces.series import RateSeries

BIT_PER_MBIT = 1e6
BIT_PER_KBIT = 1e3


class RateTraces(Component):
    """Recorded rates of links, and their assignment to devices."""

    assignment: Literal["in-turn", "random"] = "in-turn"
    """Assignment of traces to devices. in-turn: devices get the traces in the order of the traces' names, which starts
    again after the last trace. random: a trace is drawn for each device."""
    start: Literal["random", "beginning"] = "random"
    """Time in the trace at which a device starts. random: at a random time. beginning: at the start of the trace."""
    scale: float = Field(1.0, gt=0)
    """Factor by which all rates are multiplied."""

    @abstractmethod
    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        """Return the traces by name, sorted by name; their rates are not yet multiplied by `scale`.

        Args:
            data_dir: the data folder; None means the folder in the environment variable FEDNET_DATA.

        Raises:
            DataError: a file is missing or cannot be used.
        """


def holding_until_next(where: str, time_s: Array, rate_bps: Array, last_s: float | None = None) -> RateSeries:
    """Return a series in which the rate of each row [rows] applies until the time of the next row.

    The times must not decrease. The series starts at the first row. The rates of rows with equal times are averaged.
    The last rate applies for `last_s`. If `last_s` is None, the last rate applies as long as the rate before it, or for
    1 s if there is only one row.

    Raises:
        DataError: all rates are 0.
    """
    starts_s, group = np.unique(time_s, return_inverse=True)
    mean_bps = np.bincount(group, rate_bps) / np.bincount(group)
    if last_s is None:
        last_s = float(starts_s[-1] - starts_s[-2]) if len(starts_s) > 1 else 1.0
    return _series(where, np.append(starts_s, starts_s[-1] + last_s) - starts_s[0], mean_bps)


def holding_since_last(where: str, time_s: Array, rate_bps: Array) -> RateSeries:
    """Return a series in which the rate of each row [rows] applies from the time of the previous row to its own time.

    The series starts at the time of the first row; the rate of the first row is not used.
    """
    if len(time_s) < 2 or not np.all(np.diff(time_s) > 0):
        raise DataError(where, "has no two rows of increasing time", "drop rows of the same time")
    return _series(where, time_s - time_s[0], rate_bps[1:])


def _series(where: str, edges_s: Array, rate_bps: Array) -> RateSeries:
    if not rate_bps.any():
        raise DataError(where, "never carries a bit", "leave this trace out: a transfer over it would never end")
    return RateSeries(edges_s, rate_bps)

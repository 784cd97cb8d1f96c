"""Positions of devices and stations, and data rates of links during a run, as recorded in the table `scene`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fednet_emu.analysis.run import RunRecords
from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.records.ledger import SCENE, SERVER

OWN = ("speed_flop_per_s", "idle_w", "overhead_s")
OVER_TIME = ("x_m", "y_m", "cell", "snr_db", "uplink_bps", "downlink_bps", "there")


@dataclass(frozen=True, eq=False)
class Scene:
    """Devices and base stations over time. T, N and S are the numbers of times, devices and base stations."""

    times_s: Array
    """The recorded times in simulated seconds [T]. A static scene has a single time."""
    x_m: Array
    """x coordinates of the devices in m [T, N]."""
    y_m: Array
    """y coordinates of the devices in m [T, N]."""
    cell: IntArray
    """Index of the station that serves each device [T, N]."""
    snr_db: Array
    """Mean uplink SNR of each device over the whole band, without interference, in dB [T, N]."""
    uplink_bps: Array
    """Uplink rate of each device if it is alone in the band, in bit/s [T, N]. If the rates come from a trace, it is the
    rate of the trace. Otherwise it is the rate at the mean SNR, or, if this is zero, the mean rate over fading.
    """
    downlink_bps: Array
    """Downlink rate of each device, computed like `uplink_bps`, in bit/s [T, N]."""
    there: Mask
    """Mask of the devices that are available [T, N]. A device with an empty battery also counts as available."""
    stations_m: Array
    """Coordinates of the stations in m [S, 2]."""
    speed_flop_per_s: Array
    """Computing speed of each device in FLOP/s [N]."""
    idle_w: Array
    """Idle power of each device in W [N]."""
    overhead_s: Array
    """Overhead of each computation of a device in s [N], in addition to the time for floating-point operations."""

    @classmethod
    def of(cls, run: RunRecords) -> Scene:
        """Return the scene that a run recorded.

        Raises:
            DataError: the run did not record its scene, or the table is unreadable.
        """
        table = run.table(SCENE)
        later = {"there": True, "overhead_s": 0.0}  # columns that runs of earlier versions lack
        table = table.assign(**{name: value for name, value in later.items() if name not in table})
        stations, rows = table[table["device"] == SERVER], table[table["device"] > SERVER]
        times_s = rows["simulated_s"].unique()
        over_time = {name: rows[name].to_numpy().reshape(len(times_s), -1) for name in OVER_TIME}
        over_time["there"] = over_time["there"].astype(np.bool_)
        own = {name: rows[name].to_numpy()[: len(rows) // len(times_s)] for name in OWN}
        return cls(times_s=times_s, stations_m=stations[["x_m", "y_m"]].to_numpy(np.float64), **over_time, **own)

    def fixed_s(self, computes: pd.DataFrame) -> Array:
        """Return the overhead in s [n] of each computation: the part of its duration that is independent of its FLOP.

        If a device is a straggler or has a slower clock, the overhead becomes longer by the same factor as the
        operations. It is zero for computations of the server. `computes` is the table of computations, with n rows.
        """
        if not self.overhead_s.any():
            return np.zeros(len(computes))
        device, took_s = computes["device"].to_numpy(np.int64), (computes["ended_s"] - computes["started_s"]).to_numpy()
        overhead_s, work_s = self.overhead_s[device], computes["flop"].to_numpy() / self.speed_flop_per_s[device]
        stretched_s = took_s * overhead_s / np.maximum(overhead_s + work_s, 1e-300)
        stopped_s = np.clip(took_s - work_s, 0.0, overhead_s)  # time that operations cannot explain is fixed time
        fixed_s = np.where(computes["stopped"] == "", stretched_s, stopped_s)
        return np.asarray(np.where(device > SERVER, fixed_s, 0.0), np.float64)

    def frame(self) -> pd.DataFrame:
        """Return a table with a row for each base station (device -1), followed by a row for each time and device."""
        times, devices = self.x_m.shape
        rows = {
            "simulated_s": np.repeat(self.times_s, devices),
            "device": np.tile(np.arange(devices), times),
            **{name: getattr(self, name).ravel() for name in OVER_TIME},
            **{name: np.tile(getattr(self, name), times) for name in OWN},
        }
        x_m, y_m = self.stations_m.T
        stations = {
            "simulated_s": 0.0,
            "device": SERVER,
            "x_m": x_m,
            "y_m": y_m,
            "cell": np.arange(len(x_m)),
            "there": True,
        }
        return pd.concat([pd.DataFrame(stations), pd.DataFrame(rows)], ignore_index=True)[[*rows]]

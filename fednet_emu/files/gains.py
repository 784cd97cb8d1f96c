"""Reader of power gains between base stations and grid points that a ray tracer has computed.

Two formats are supported: .npz files such as those written by `examples/trace_a_street.py`, and folders of DeepMIMO 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask, exp10, log10
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import remembered
from fednet_emu.files.npz import read_arrays

_HOW = (
    "write it with np.savez(path, gain_db=[places, stations], xyz_m=[places, 3], stations_m=[stations, 3], "
    "carrier_hz=...), the places on a full grid"
)
_HOW_DEEPMIMO = "name the folder of a DeepMIMO scenario, with power_t000_tx000_r001.npz and the like"
_NEEDED = {"gain_db": 2, "xyz_m": 2, "stations_m": 2, "carrier_hz": 0}
_FILE = re.compile(r"power_t(\d+)_tx(\d+)_r(\d+)\.npz")
_DIRECT = 0.0


class Gains(NamedTuple):
    """Power gains between base stations and a grid of X by Y points at one height.

    Attributes:
        x_m, y_m: Coordinates [X] and [Y] of the grid lines in m, in ascending order.
        height_m: Height of all points in m.
        gain_db: Power gains [stations, X, Y] in dB; minus infinity at points that no path reaches.
        los: Array [stations, X, Y], True where the point has line of sight to the station.
        stations_m: Coordinates [stations, 3] of the stations in m.
        carrier_hz: Carrier frequency in Hz; None if unknown.
        direct_db: Gains [paths] in dB of all direct paths, and lengths [paths] in m of these paths, for comparison with
            free-space loss.
    """

    x_m: Array
    y_m: Array
    height_m: float
    gain_db: Array
    los: Mask
    stations_m: Array
    carrier_hz: float | None
    direct_db: tuple[Array, Array]


@remembered
def read_gains(path: Path) -> Gains:
    """Read power gains from an .npz file or from a DeepMIMO folder.

    Raises:
        DataError: The file has another format or contains gains that are not numbers, or its points do not form a
            complete grid.
    """
    return _from_deepmimo(path) if path.is_dir() else _from_npz(path)


def _from_npz(path: Path) -> Gains:
    named = read_arrays(path, _HOW, limited=True)
    for name, axes in _NEEDED.items():
        if name not in named:
            raise DataError(str(path), f"has no array {name}", _HOW)
        if named[name].dtype.kind not in "iuf" or named[name].ndim != axes:
            raise DataError(str(path), f"{name} is {named[name].dtype} of shape {named[name].shape}", _HOW)
    gain_db, xyz_m, stations_m = (named[name].astype(np.float64) for name in ("gain_db", "xyz_m", "stations_m"))
    los = named.get("los", np.zeros(gain_db.shape, np.bool_))
    due = {
        "gain_db": (gain_db, (len(xyz_m), len(stations_m))),
        "xyz_m": (xyz_m, (len(xyz_m), 3)),
        "stations_m": (stations_m, (len(stations_m), 3)),
        "los": (los, (len(xyz_m), len(stations_m))),
    }
    for name, (array, shape) in due.items():
        if array.shape != shape:
            raise DataError(str(path), f"{name} has the shape {array.shape}, not {shape}", _HOW)
    none = np.zeros(0)
    return _on_grid(
        str(path), _HOW, (xyz_m, gain_db, los.astype(np.bool_)), stations_m, float(named["carrier_hz"]), (none, none)
    )


def _on_grid(
    where: str,
    how: str,
    rows: tuple[Array, Array, Mask],
    stations_m: Array,
    carrier_hz: float | None,
    direct_db: tuple[Array, Array],
) -> Gains:
    """Return gains on a grid from `rows`: points in m [n, 3], gains in dB and line of sight, each [n, stations]."""
    xyz_m, gain_db, los = rows
    if not len(xyz_m) or not len(stations_m):
        raise DataError(where, "has no places or no stations", how)
    if not (np.isfinite(xyz_m).all() and np.isfinite(stations_m).all()):
        raise DataError(where, "has coordinates that are not finite", how)
    wrong = np.argwhere(np.isnan(gain_db) | (gain_db == np.inf))
    if len(wrong):
        place, station = wrong[0]
        at = ", ".join(f"{metres:g}" for metres in xyz_m[place])
        what = f"{len(wrong)} gains are no numbers, got {gain_db[place, station]} at {at} m for station {station}"
        raise DataError(where, what, f"{how}; -inf is for places that nothing reaches")
    if np.ptp(xyz_m[:, 2]) > 1e-3:
        low_m, high_m = xyz_m[:, 2].min(), xyz_m[:, 2].max()
        raise DataError(where, f"has places at several heights, got {low_m:g} to {high_m:g} m", how)
    (x_m, column), (y_m, row) = _lines(xyz_m[:, 0]), _lines(xyz_m[:, 1])
    taken = np.zeros((len(x_m), len(y_m)), np.int64)
    np.add.at(taken, (column, row), 1)
    if (taken != 1).any() or min(taken.shape) < 2:
        what = f"the places are no full grid, got {len(xyz_m)} for {len(x_m)} x {len(y_m)}"
        raise DataError(where, what, how)
    shape = (len(stations_m), *taken.shape)
    gains, sight = np.empty(shape), np.empty(shape, np.bool_)
    gains[:, column, row], sight[:, column, row] = gain_db.T, los.T
    return Gains(x_m, y_m, float(xyz_m[0, 2]), gains, sight, stations_m, carrier_hz, direct_db)


def _lines(values_m: Array) -> tuple[Array, IntArray]:
    _, first, line = np.unique(np.round(values_m, 4), return_index=True, return_inverse=True)
    return values_m[first], line


def _from_deepmimo(path: Path) -> Gains:
    """Read the gains of all transmitters to the receiver set with the most points from a DeepMIMO folder.

    Raises:
        DataError: Arrays are missing or have unexpected shapes, or the receivers do not form a complete grid.
    """
    found = [(match, file) for file in sorted(path.iterdir()) if (match := _FILE.fullmatch(file.name))]
    if not found:
        raise DataError(str(path), "has no file power_t..._tx..._r....npz", _HOW_DEEPMIMO)
    sets = {match[3] for match, _ in found}
    parts = {
        name: {f"{match[1]}_{match[2]}": _paths(file) for match, file in found if match[3] == name} for name in sets
    }
    largest = max(sorted(sets), key=lambda name: max(len(its["rx_pos"]) for its in parts[name].values()))
    links = list(parts[largest].values())
    if any(
        its["rx_pos"].shape != links[0]["rx_pos"].shape or (its["rx_pos"] != links[0]["rx_pos"]).any() for its in links
    ):
        raise DataError(str(path), f"transmitters have other receivers in set {largest}", _HOW_DEEPMIMO)
    gains_db, los, direct_db, direct_m = [], [], [], []
    for its in links:
        linear = np.where(np.isnan(its["power"]), 0.0, exp10(its["power"] / 10))
        gains_db.append(10 * log10(linear.sum(axis=1)))
        direct = its["inter"] == _DIRECT
        los.append(direct.any(axis=1))
        length_m = np.sqrt(((its["rx_pos"] - its["tx_pos"][0]) ** 2).sum(axis=1))
        direct_db.append(its["power"][direct])
        direct_m.append(np.broadcast_to(length_m[:, None], direct.shape)[direct])
    stations_m = np.concatenate([its["tx_pos"][:1] for its in links])
    rows = links[0]["rx_pos"], np.stack(gains_db, axis=1), np.stack(los, axis=1)
    return _on_grid(
        str(path), _HOW_DEEPMIMO, rows, stations_m, None, (np.concatenate(direct_db), np.concatenate(direct_m))
    )


def _paths(power: Path) -> Mapping[str, Array]:
    arrays: dict[str, Any] = {}
    for key in ("power", "inter", "rx_pos", "tx_pos"):
        file = power.with_name(power.name.replace("power", key, 1))
        named = read_arrays(file, _HOW_DEEPMIMO, limited=True)
        if len(named) != 1:
            raise DataError(str(file), f"holds {len(named)} arrays", _HOW_DEEPMIMO)
        [arrays[key]] = (its.astype(np.float64) for its in named.values())
    receivers = arrays["rx_pos"]
    if arrays["power"].shape != arrays["inter"].shape or arrays["power"].ndim != 2:
        shapes = f"{arrays['power'].shape} and {arrays['inter'].shape}"
        raise DataError(str(power), f"power and inter have the shapes {shapes}", _HOW_DEEPMIMO)
    if receivers.shape != (len(arrays["power"]), 3) or arrays["tx_pos"].ndim != 2 or arrays["tx_pos"].shape[1:] != (3,):
        shapes = f"{receivers.shape} and {arrays['tx_pos'].shape}"
        raise DataError(str(power), f"rx_pos and tx_pos have the shapes {shapes}", _HOW_DEEPMIMO)
    return arrays

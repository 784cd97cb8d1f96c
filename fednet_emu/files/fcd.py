"""Floating car data of Eclipse SUMO: where each vehicle was at each time step."""

from __future__ import annotations

import gzip
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from xml.parsers import expat

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.remembered import remembered

_HOW = "write it with sumo --fcd-output, in metres (without --fcd-output.geo), with the attributes id, x and y"
_COLUMNS = ["timestep_time", "vehicle_id", "vehicle_x", "vehicle_y"]


class Recording(NamedTuple):
    """Rows of vehicles at time steps, in the order of time.

    Attributes:
        vehicle: Numbers [rows] of the vehicles, which count them as they appear.
        rows: Time in s since the first time step, x and y in m, [rows, 3].
        step_s: The shortest time in s from one time step to the next.
    """

    vehicle: IntArray
    rows: Array
    step_s: float


@remembered
def read_fcd(path: Path) -> Recording:
    """Read floating car data; the ending of its name says the format: .xml, .xml.gz, .csv, .csv.gz or .parquet.

    Raises:
        DataError: The file is not in this form, or its positions cannot be metres.
    """
    name = path.name.removesuffix(".gz")
    read = next((read for ending, read in _FORMATS.items() if name.endswith(ending)), None)
    if read is None:
        raise DataError(str(path), "is in no known format", f"name it as one of {', '.join(_FORMATS)}; {_HOW}")
    try:
        time_s, ids, x_m, y_m = read(path)
    except (OSError, EOFError, UnicodeDecodeError, expat.ExpatError) as error:
        raise DataError(str(path), f"cannot be read ({error})", _HOW) from error
    except ValueError as error:
        raise DataError(str(path), str(error), _HOW) from error
    rows = np.stack([time_s, x_m, y_m], axis=1)
    _check(path, rows)
    steps_s = np.unique(rows[:, 0])
    rows[:, 0] -= steps_s[0]
    known: dict[Any, int] = {}
    vehicle = np.array([known.setdefault(its, len(known)) for its in ids], np.int64)
    if len(np.unique(np.stack([vehicle, rows[:, 0].view(np.int64)]), axis=1).T) < len(rows):
        raise DataError(str(path), "has a vehicle twice in one time step", _HOW)
    return Recording(vehicle, rows, float(np.diff(steps_s).min()) if len(steps_s) > 1 else 1.0)


def _check(path: Path, rows: Array) -> None:
    if not len(rows):
        raise DataError(str(path), "has no vehicle", _HOW)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(wrong):
        time_s, x_m, y_m = rows[wrong[0]]
        raise DataError(str(path), f"row {wrong[0]} is not finite, got x={x_m:g}, y={y_m:g} at {time_s:g} s", _HOW)
    back = np.flatnonzero(np.diff(rows[:, 0]) < 0)
    if len(back):
        what = f"{rows[back[0] + 1, 0]:g} s after {rows[back[0], 0]:g} s"
        raise DataError(str(path), f"time goes back, got {what}", "sort the rows by time")
    xy = rows[:, 1:]
    fine = np.abs(xy * 1e4 - np.rint(xy * 1e4)) > 1e-3
    if (np.abs(xy) <= (180, 90)).all() and fine.any():
        x, y = xy[fine.any(axis=1)][0]
        what = f"looks like longitude and latitude, got {x:.6f}, {y:.6f}"
        raise DataError(str(path), what, f"{_HOW}; metres need at most 4 decimals (--precision)")


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _from_xml(path: Path) -> tuple[Array, list[str], Array, Array]:
    """Columns of an XML file, which is read as a stream."""
    time_s, x_m, y_m, ids, now = array("d"), array("d"), array("d"), list[str](), [float("nan")]
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        try:
            if tag == "vehicle":
                x_m.append(float(attributes["x"]))
                y_m.append(float(attributes["y"]))
                ids.append(parser.intern.setdefault(attributes["id"], attributes["id"]))
                time_s.append(now[0])
            elif tag == "timestep":
                now[0] = float(attributes["time"])
        except KeyError as missing:
            raise ValueError(f"line {parser.CurrentLineNumber}: a {tag} has no {missing.args[0]}") from missing
        except ValueError as error:
            raise ValueError(f"line {parser.CurrentLineNumber}: {error}") from error

    parser.StartElementHandler = start
    with _opened(path) as file:
        parser.ParseFile(file)
    return np.array(time_s), ids, np.array(x_m), np.array(y_m)


def _from_table(path: Path) -> tuple[Array, list[Any], Array, Array]:
    """Columns of a CSV or Parquet file; rows without a vehicle are steps in which none is there, or of persons."""
    import pandas as pd

    if path.name.endswith(".parquet"):
        from pyarrow import ArrowInvalid, parquet

        try:
            has = parquet.read_schema(path).names
            table = pd.read_parquet(path, columns=[name for name in _COLUMNS if name in has])
        except ArrowInvalid as error:
            raise ValueError(f"cannot be read ({error})") from error
    else:
        table = pd.read_csv(path, sep=";", usecols=lambda name: name in _COLUMNS, dtype={"vehicle_id": str})
    if missing := [name for name in _COLUMNS if name not in table]:
        raise ValueError(f"lacks the column {', '.join(missing)}")
    table = table[table["vehicle_id"].notna() & (table["vehicle_id"] != "")]
    numbers = [table[name].to_numpy(np.float64) for name in ("timestep_time", "vehicle_x", "vehicle_y")]
    return numbers[0], table["vehicle_id"].tolist(), numbers[1], numbers[2]


_FORMATS: dict[str, Callable[[Path], tuple[Array, list[Any], Array, Array]]] = {
    ".xml": _from_xml,
    ".csv": _from_table,
    ".parquet": _from_table,
}

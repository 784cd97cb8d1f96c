"""Floating car data of Eclipse SUMO: the position of each vehicle at each time step."""

from __future__ import annotations

import csv
import gzip
import io
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.parsers import expat

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import remembered
from fednet_emu.files.lines import clock_s, number
from fednet_emu.files.recordings import read_text

if TYPE_CHECKING:
    import pandas as pd

_HOW = "write it with sumo --fcd-output, in metres (without --fcd-output.geo), with the attributes id, x and y"
_OWNERS = ("vehicle_", "timestep_vehicle_", "", "person_", "timestep_person_", "container_", "timestep_container_")
"""Possible prefixes of column names in SUMO's output. The prefix depends on the type of the first road user in the run,
and is the same for all types of road users."""
_DEGREES_S = 0.01
"""Speed in coordinate units per s. Coordinates are assumed to be degrees only if all speeds are lower. A speed of 0.01
degrees per s is about 1 km/s, whereas vehicles slower than 0.01 m/s stand still."""

Columns = tuple[Array, list[Any], Array, Array]
"""Four columns [rows]: time in s, vehicle ID, x and y. In a row without a vehicle, for example that of a person, the ID
is None, and x and y may be NaN."""


class Recording(NamedTuple):
    """Positions of vehicles at time steps; each row has the position of one vehicle, and rows are in order of time.

    Attributes:
        vehicle: Index [rows] of the vehicle; vehicles are numbered in the order of their first rows.
        rows: Array [rows, 3] of time in s since the first time step, x in m, and y in m.
        step_s: Minimum time between two time steps, in s.
    """

    vehicle: IntArray
    rows: Array
    step_s: float


@remembered
def read_fcd(path: Path) -> Recording:
    """Read floating car data from a file with the suffix .xml, .csv, .xml.gz, .csv.gz or .parquet.

    Raises:
        DataError: The file has another format, or the positions are not in metres.
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
    steps_s = np.unique(time_s)
    known: dict[Any, int] = {}
    there = np.array([its is not None for its in ids], np.bool_)
    vehicle = np.array([known.setdefault(its, len(known)) for its in ids if its is not None], np.int64)
    rows = np.stack([time_s, x_m, y_m], axis=1)[there]
    _check(path, time_s, vehicle, rows)
    rows[:, 0] -= steps_s[0]
    return Recording(vehicle, rows, float(np.diff(steps_s).min()) if len(steps_s) > 1 else 1.0)


def _check(path: Path, time_s: Array, vehicle: IntArray, rows: Array) -> None:
    if not len(rows):
        raise DataError(str(path), "has no vehicle", _HOW)
    back = np.flatnonzero(np.diff(time_s) < 0)
    if len(back):
        what = f"{time_s[back[0] + 1]:g} s after {time_s[back[0]]:g} s"
        raise DataError(str(path), f"time goes back, got {what}", "sort the rows by time")
    order = np.lexsort((rows[:, 0], vehicle))
    own = np.diff(vehicle[order]) == 0
    steps = np.diff(rows[order], axis=0)[own]
    if (steps[:, 0] == 0).any():
        raise DataError(str(path), "has a vehicle twice in one time step", _HOW)
    xy = rows[:, 1:]
    fine = np.abs(xy * 1e4 - np.rint(xy * 1e4)) > 1e-3
    slow = (np.abs(steps[:, 1:]) < _DEGREES_S * steps[:, :1]).all()
    if (np.abs(xy) <= (180, 90)).all() and fine.any() and slow:
        x, y = xy[fine.any(axis=1)][0]
        what = f"looks like longitude and latitude, got {x:.6f}, {y:.6f}, and no faster than {_DEGREES_S:g} a second"
        raise DataError(str(path), what, _HOW)


def _from_xml(path: Path) -> Columns:
    time_s, x_m, y_m, ids, now = array("d"), array("d"), array("d"), list[str | None](), [float("nan")]
    parser = expat.ParserCreate()

    def row(id_: str | None, x: float, y: float) -> None:
        ids.append(id_)
        time_s.append(now[0])
        x_m.append(x)
        y_m.append(y)

    def start(tag: str, attributes: dict[str, str]) -> None:
        try:
            if tag == "vehicle":
                id_ = parser.intern.setdefault(attributes["id"], attributes["id"])
                row(id_, number(attributes["x"]), number(attributes["y"]))
            elif tag == "timestep":
                now[0] = clock_s(attributes["time"])
                row(None, float("nan"), float("nan"))
        except KeyError as missing:
            raise ValueError(f"line {parser.CurrentLineNumber}: a {tag} has no {missing.args[0]}") from missing
        except ValueError as error:
            raise ValueError(f"line {parser.CurrentLineNumber}: a {tag} {error}, got {attributes}") from error

    parser.StartElementHandler = start
    with path.open("rb") as plain:
        packed = plain.peek(2).startswith(b"\x1f\x8b") or path.suffix == ".gz"
        parser.ParseFile(gzip.GzipFile(fileobj=plain) if packed else plain)
    return np.array(time_s), ids, np.array(x_m), np.array(y_m)


def _from_csv(path: Path) -> Columns:
    import pandas as pd

    text = read_text(path).rstrip("\n")
    header = text.partition("\n")[0]
    between = (re.search(r"[^\w\"]", header) or ["\0"])[0]
    names = [its.strip(' "') for its in header.split(between)]
    chosen = _chosen(names)
    if text.count(between) != (len(names) - 1) * (text.count("\n") + 1):
        for count, cells in enumerate(csv.reader(text.split("\n"), delimiter=between), 1):
            if len(cells) != len(names):
                raise ValueError(f"line {count} has {len(cells)} fields for {len(names)} columns, got {cells}")
    table = pd.read_csv(
        io.StringIO(text),
        sep=between,
        names=names,
        skiprows=1,
        usecols=[*chosen.values()],
        dtype=str,
        na_filter=False,
        skip_blank_lines=False,
    )
    table.index = pd.RangeIndex(2, len(table) + 2, name="line")
    return _columns(table, chosen)


def _from_parquet(path: Path) -> Columns:
    from pyarrow import ArrowException, parquet

    try:
        chosen = _chosen(parquet.read_schema(path).names)
        table = parquet.read_table(path, columns=[*chosen.values()]).to_pandas()
        return _columns(table.rename_axis("row"), chosen)
    except ArrowException as error:
        raise ValueError(f"cannot be read ({error})") from error


def _chosen(names: list[str]) -> dict[str, str]:
    owner = next((its for its in _OWNERS if {f"{its}id", f"{its}x", f"{its}y"} <= set(names)), "vehicle_")
    time = next((its for its in ("timestep_time", "time") if its in names), "timestep_time")
    chosen = {"time": time, **{its: f"{owner}{its}" for its in ("id", "x", "y", "lane", "edge")}}
    if missing := [chosen[its] for its in ("time", "id", "x", "y") if chosen[its] not in names]:
        raise ValueError(f"lacks the column {', '.join(missing)}, got {', '.join(names)[:200]}")
    if twice := [its for its in chosen.values() if names.count(its) > 1]:
        raise ValueError(f"has the column {twice[0]} twice")
    return {key: its for key, its in chosen.items() if its in names}


def _columns(table: pd.DataFrame, chosen: dict[str, str]) -> Columns:
    """Return four columns (see `Columns`) of a table written by SUMO. The ID is None in rows of persons and containers.

    A row with a lane is a vehicle, and a row with an edge is a person or container. Column names do not distinguish
    them, because all types share one prefix. If the table has no lanes and no edges, all rows are vehicles.

    Raises:
        ValueError: A value is not a number, or vehicles cannot be distinguished from persons.
    """
    import pandas as pd

    has = {key: (table[its].notna() & (table[its] != "")).to_numpy() for key, its in chosen.items()}
    there = has["id"]
    if "lane" in has and has["lane"].any():
        there = there & has["lane"]
    elif "edge" in has:
        there = there & ~has["edge"]
    unknown = len(has) == 4 and chosen["id"].partition("_id")[0].endswith(("person", "container"))
    if has["id"].any() and (unknown or not there.any()):
        what = "vehicles cannot be distinguished from persons: no row has a lane (as in a mesoscopic run)"
        raise ValueError(f"{what}, got {', '.join(chosen.values())}; write .xml, or the attributes lane and edge, too")
    numbers = []
    for key in ("x", "y"):
        column = table[chosen[key]]
        values = pd.to_numeric(column.where(there), errors="coerce").to_numpy(np.float64)
        wrong = np.flatnonzero(there & ~np.isfinite(values))
        if len(wrong):
            where = f"{table.index.name} {table.index[wrong[0]]}"
            raise ValueError(f"{where}: {chosen[key]} is no number, got {column.iloc[wrong[0]]!r}")
        numbers.append(values)
    codes, different = pd.factorize(table[chosen["time"]].astype(str))
    times_s = []
    for code, text in enumerate(different):
        try:
            times_s.append(clock_s(text))
        except ValueError as error:
            where = f"{table.index.name} {table.index[int(np.argmax(codes == code))]}"
            raise ValueError(f"{where}: {chosen['time']} {error}, got {text!r}") from error
    ids = [its if here else None for its, here in zip(table[chosen["id"]].tolist(), there.tolist(), strict=True)]
    return np.array(times_s, np.float64)[codes], ids, numbers[0], numbers[1]


_FORMATS: dict[str, Callable[[Path], Columns]] = {".xml": _from_xml, ".csv": _from_csv, ".parquet": _from_parquet}

"""Reader of GPS position fixes in tables (time, ID, latitude, longitude), GPX files, and GeoLife and T-Drive data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.errors import DataError
from fednet_emu.files.lines import Grammar, lines, number, parsed, records, refused, seconds
from fednet_emu.files.recordings import read_texts

_HOW = (
    "write a first line `time,id,lat,lon` and rows of seconds or UTC, a name, and degrees; or give GPX, the .plt files "
    "of GeoLife, or the rows `id,time,lon,lat` of T-Drive"
)
_GEOLIFE_HEADER = 6
"""Number of header lines in a .plt file."""


class Fix(NamedTuple):
    """A GPS position fix: its place in the file, the ID of its owner, time in s, latitude and longitude in degrees.

    The time is measured from 1970 or from another start.
    """

    line: int
    owner: str
    time_s: float
    lat_deg: float
    lon_deg: float


def read_tracks(path: Path, select: str = "*") -> dict[str, Array]:
    """Return the track of each owner (person or vehicle) in each file, by name.

    A track is an array [rows, 3] of time in s, latitude and longitude in degrees. If several fixes of an owner have the
    same time, the first fix is used. If a track has a single fix, the fix is repeated 1 s later.

    Raises:
        DataError: A file cannot be read, or a fix is malformed or out of order. The error names the file or fix.
    """
    tracks: dict[str, Array] = {}
    for name, text in read_texts(path, select):
        where = str(path) if path.name == name else f"{path}:{name}"
        own: dict[str, list[tuple[float, float, float]]] = {}
        for fix in _form(text)(where, text):
            rows = own.setdefault(fix.owner, [])
            if rows and fix.time_s < rows[-1][0]:
                what = f"time of {fix.owner or 'the track'} goes back by {rows[-1][0] - fix.time_s:g} s"
                raise refused(where, fix.line, what, f"{fix.time_s:.15g}", "sort the fixes of each owner by time")
            if not rows or fix.time_s > rows[-1][0]:
                rows.append(fix[2:])
        for owner, rows in own.items():
            last = [(rows[0][0] + 1.0, *rows[0][1:])] if len(rows) == 1 else []
            tracks[f"{name} {owner}"] = np.array(rows + last)
    if not tracks:
        raise DataError(str(path), "has no fixes", _HOW)
    return tracks


def _form(text: str) -> Callable[[str, str], Iterator[Fix]]:
    first = next(lines(text), (0, ""))[1]
    if first.startswith("<"):
        return _gpx
    if first.startswith("Geolife"):
        return _geolife
    return _table if "lat" in first.lower() else _t_drive


def _moment_s(text: str) -> float:
    """Return the time in s that `text` contains: a number, or the s since 1970 of a date and time (default: UTC)."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return seconds(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_LAT, _LON = partial(number, low=-90, high=90), partial(number, low=-180, high=180)
_FIELDS: dict[str, Grammar] = {"time": _moment_s, "lat": _LAT, "lon": _LON}


def _table(where: str, text: str) -> Iterator[Fix]:
    for count, cells in records(where, text, _FIELDS, _HOW):
        yield _fix(where, count, cells.get("id", ""), [cells[name] for name in _FIELDS])


def _t_drive(where: str, text: str) -> Iterator[Fix]:
    for count, line in lines(text):
        owner, time, lon, lat = _cells(where, count, line, 4)
        yield _fix(where, count, owner, [time, lat, lon])


def _geolife(where: str, text: str) -> Iterator[Fix]:
    for count, line in lines(text):
        if count > _GEOLIFE_HEADER:
            lat, lon, *_, date, time = _cells(where, count, line, 7)
            yield _fix(where, count, "", [f"{date} {time}", lat, lon])


def _gpx(where: str, text: str) -> Iterator[Fix]:
    try:
        root = ElementTree.fromstring(text.encode())
    except ElementTree.ParseError as error:
        raise DataError(where, f"cannot be read as GPX ({error})", _HOW) from error
    segments = [its for its in root.iter() if its.tag.rpartition("}")[2] == "trkseg"]
    for place, segment in enumerate(segments, 1):
        points = [its for its in segment if its.tag.rpartition("}")[2] == "trkpt"]
        for count, point in enumerate(points, 1):
            time = next((its.text or "" for its in point if its.tag.rpartition("}")[2] == "time"), "")
            cells = [time.strip(), point.get("lat", ""), point.get("lon", "")]
            yield _fix(f"{where}: point", count, f"segment {place}", cells)


def _cells(where: str, count: int, line: str, fields: int) -> list[str]:
    cells = [its.strip() for its in line.split(",")]
    if len(cells) != fields:
        raise refused(where, count, f"has {len(cells)} fields instead of {fields}", line, _HOW)
    return cells


def _fix(where: str, count: int, owner: str, cells: list[str]) -> Fix:
    """Return the fix whose time, latitude and longitude are in `cells`."""
    return Fix(count, owner, *parsed(where, count, _FIELDS, cells, _HOW))

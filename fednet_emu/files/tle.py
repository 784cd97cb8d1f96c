"""Reader of satellite orbits in two-line elements (with or without names) or Orbit Mean-Elements Messages (OMM).

Formats: Hoots and Roehrich, Spacetrack Report No. 3, 1980; Vallado et al., AIAA 2006-6753; CCSDS 502.0-B-3, in CSV,
JSON or XML, as published by CelesTrak and Space-Track.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from fednet_emu.errors import DataError
from fednet_emu.files.lines import Grammar, lines, number, records
from fednet_emu.files.recordings import read_text

_HOW = "give two-line elements: lines of 69 characters that begin with 1 and 2, with the same number and good checksums"
_LENGTH = 69
_SMALL = r"[ +-]\d{5}[ +-]\d"
_ANGLE = r"[ \d]{2}\d\.\d{4}"
_FORMS = {
    "1": re.compile(rf"1 .{{5}}. .{{8}} \d\d[ \d]{{2}}\d\.\d{{8}} [ +-]\.\d{{8}} {_SMALL} {_SMALL} . [ \d]{{4}}\d"),
    "2": re.compile(rf"2 .{{5}} {_ANGLE} {_ANGLE} \d{{7}} {_ANGLE} {_ANGLE} [ \d]\d\.\d{{8}}[ \d]{{5}}\d"),
}
"""Regular expression for each of the two lines of an element set, by the first character of the line."""
_HOW_OMM = "give OMM in CSV, JSON or XML, as CelesTrak serves it with FORMAT=csv, json or xml"


class Elements(NamedTuple):
    """The orbital elements of a satellite.

    Attributes:
        content: The two lines of two-line elements, or the fields of an OMM for `sgp4.omm`.
        where: The file and the line, or the file and the position of the satellite in the file, for error messages.
    """

    content: tuple[str, str] | Mapping[str, str]
    where: str


def read_elements(path: Path) -> list[Elements]:
    """Return the orbital elements of the satellites in a file, in order. The format is detected from the content.

    Raises:
        DataError: The file cannot be read, or is malformed. The error names the malformed line or satellite.
    """
    text = read_text(path).rstrip()
    if text.lstrip()[:1] in ("{", "[", "<"):
        found = [_from_omm(f"{path}: satellite {k}", its) for k, its in enumerate(_messages(path, text), 1)]
    elif "MEAN_MOTION" in next(lines(text), (0, ""))[1]:
        found = [_from_omm(f"{path}:{k}", its) for k, its in records(str(path), text, _FIELDS, _HOW_OMM)]
    else:
        return _from_lines(path, text)
    if not found:
        raise DataError(str(path), "has no elements", _HOW_OMM)
    return found


def _from_lines(path: Path, text: str) -> list[Elements]:
    found: list[Elements] = []
    first: tuple[str, int] | None = None
    for count, line in enumerate(map(str.strip, text.split("\n")), 1):
        where = f"{path}:{count}"
        if line[:2] == "1 " and first is None:
            _check(where, line)
            first = line, count
        elif line[:2] == "2 " and first is not None:
            _check(where, line)
            if line[2:7] != first[0][2:7]:
                raise DataError(where, f"is of satellite {line[2:7]} after one of {first[0][2:7]}", _HOW)
            found.append(Elements((first[0], line), f"{path}:{first[1]}"))
            first = None
        elif first is not None or line[:2] == "2 ":
            raise DataError(where, f"breaks a pair of lines, got {line[:30]!r}", _HOW)
    if first is not None or not found:
        raise DataError(str(path), "ends in the middle of a pair" if first else "has no elements", f"{_HOW}; or OMM")
    return found


def _check(where: str, line: str) -> None:
    if len(line) != _LENGTH:
        raise DataError(where, f"has {len(line)} characters, got {line[:30]!r}", _HOW)
    due = sum(int(sign) if sign in "0123456789" else sign == "-" for sign in line[:-1]) % 10
    if line[-1] != str(due):
        raise DataError(where, f"has a wrong checksum, got {line[-1]} for {due}", _HOW)
    if not _FORMS[line[0]].fullmatch(line):
        raise DataError(where, f"has no numbers where they should be, got {line!r}", _HOW)


def _messages(path: Path, text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the fields (strings, by name) of each satellite in an Orbit Mean-Elements Message in JSON or XML."""
    try:
        if text.lstrip()[0] == "<":
            for segment in ElementTree.fromstring(text).iter():
                if segment.tag.rpartition("}")[2] == "segment":
                    yield {its.tag.rpartition("}")[2]: its.text or "" for its in segment.iter() if not len(its)}
            return
        content = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError, ElementTree.ParseError) as error:
        raise DataError(str(path), f"cannot be read ({error})", _HOW_OMM) from error
    for its in content if isinstance(content, list) else [content]:
        if not isinstance(its, dict):
            raise DataError(str(path), f"must list satellites, got {its!r:.80}", _HOW_OMM)
        yield its


def _epoch(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("is no time such as 2026-03-01T12:00:00.000000") from error
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")


def _named(expected: str) -> Grammar:
    def same(text: str) -> str:
        if text != expected:
            raise ValueError(f"is not {expected}, the only one that SGP4 takes")
        return text

    return same


_DEGREES = partial(number, low=-360, high=360)
_FIELDS: dict[str, Grammar] = {
    "EPOCH": _epoch,
    "MEAN_MOTION": partial(number, low=1e-3, high=20),
    "ECCENTRICITY": partial(number, low=0, high=math.nextafter(1, 0)),
    "INCLINATION": partial(number, low=0, high=180),
    "RA_OF_ASC_NODE": _DEGREES,
    "ARG_OF_PERICENTER": _DEGREES,
    "MEAN_ANOMALY": _DEGREES,
    "BSTAR": number,
}
"""Parsers of the fields that the orbit model SGP4 needs. Mean motion is in revolutions per day, and angles are in
degrees."""
_ASIDE = {
    "CLASSIFICATION_TYPE": "U",
    "OBJECT_ID": "",
    "NORAD_CAT_ID": "0",
    "EPHEMERIS_TYPE": "0",
    "ELEMENT_SET_NO": "0",
}
_ASIDE |= {"REV_AT_EPOCH": "0", "MEAN_MOTION_DOT": "0", "MEAN_MOTION_DDOT": "0"}
"""Fixed values of further fields that `sgp4.omm` requires, but which do not affect the orbit. They include the
catalogue number, because `sgp4` does not accept numbers above 339999."""
_STATED = {"MEAN_ELEMENT_THEORY": "SGP4", "REF_FRAME": "TEME", "TIME_SYSTEM": "UTC", "EPHEMERIS_TYPE": "0"}


def _from_omm(where: str, fields: Mapping[str, Any]) -> Elements:
    if missing := [name for name in _FIELDS if not isinstance(fields.get(name), str)]:
        raise DataError(where, f"lacks {', '.join(missing)}, got {', '.join(fields)[:200] or 'nothing'}", _HOW_OMM)
    found = {name: fields[name].strip() for name in _FIELDS}
    stated = {name: str(fields[name]).strip() for name in _STATED if fields.get(name)}
    for name, text in (found | stated).items():
        grammar = _FIELDS.get(name) or _named(_STATED[name])
        try:
            value = grammar(text)
        except ValueError as error:
            raise DataError(where, f"{name} {error}, got {text[:40]!r}", _HOW_OMM) from error
        if name == "EPOCH":
            found[name] = value
    return Elements(_ASIDE | found, where)

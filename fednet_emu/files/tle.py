"""Two-line elements: the orbits of satellites as NORAD writes them, with or without a line of names before each two.

Form: Hoots and Roehrich, Spacetrack Report No. 3, 1980; Vallado et al., AIAA 2006-6753.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from fednet_emu.errors import DataError
from fednet_emu.files.recordings import read_bytes

_HOW = "give two-line elements: lines of 69 characters that begin with 1 and 2, with the same number and good checksums"
_LENGTH = 69
_SMALL = r"[ +-]\d{5}[ +-]\d"
_ANGLE = r"[ \d]{2}\d\.\d{4}"
_FORMS = {
    "1": re.compile(rf"1 .{{5}}. .{{8}} \d\d[ \d]{{2}}\d\.\d{{8}} [ +-]\.\d{{8}} {_SMALL} {_SMALL} . [ \d]{{4}}\d"),
    "2": re.compile(rf"2 .{{5}} {_ANGLE} {_ANGLE} \d{{7}} {_ANGLE} {_ANGLE} [ \d]\d\.\d{{8}}[ \d]{{5}}\d"),
}
"""Columns of the two lines."""


class Elements(NamedTuple):
    """The elements of a satellite: its two lines, and where they are."""

    first: str
    second: str
    where: str


def read_elements(path: Path) -> list[Elements]:
    """The satellites of a file, in its order.

    Raises:
        DataError: The file cannot be read, or a line is malformed; it is named.
    """
    lines = [line.rstrip() for line in read_bytes(path).decode("ascii", "replace").splitlines()]
    found: list[Elements] = []
    first: tuple[str, int] | None = None
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if line[:2] == "1 " and first is None:
            _check(where, line)
            first = line, number
        elif line[:2] == "2 " and first is not None:
            _check(where, line)
            if line[2:7] != first[0][2:7]:
                raise DataError(where, f"is of satellite {line[2:7]} after one of {first[0][2:7]}", _HOW)
            found.append(Elements(first[0], line, f"{path}:{first[1]}"))
            first = None
        elif first is not None or line[:2] == "2 ":
            raise DataError(where, f"breaks a pair of lines, got {line[:30]!r}", _HOW)
    if first is not None or not found:
        raise DataError(str(path), "ends in the middle of a pair" if first else "has no elements", _HOW)
    return found


def _check(where: str, line: str) -> None:
    if len(line) != _LENGTH:
        raise DataError(where, f"has {len(line)} characters", _HOW)
    due = sum(int(sign) if sign.isdecimal() else sign == "-" for sign in line[:-1]) % 10
    if line[-1] != str(due):
        raise DataError(where, f"has a wrong checksum, got {line[-1]} for {due}", _HOW)
    if not _FORMS[line[0]].fullmatch(line):
        raise DataError(where, f"has no numbers where they should be, got {line!r}", _HOW)

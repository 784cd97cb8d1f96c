"""Tables of 3GPP standards as CSV files, each row a fact with its clause named in the code that reads it."""

from __future__ import annotations

import csv
from importlib.resources import files


def rows(name: str) -> list[dict[str, str]]:
    """The rows of one of the tables beside this file, each cell by the name of its column."""
    text = (files(__name__) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))

"""Tables of other programs that lie beside the tests that compare with them."""

from __future__ import annotations

import csv
from pathlib import Path


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))

"""The records of a finished cell, if all of them are as they were written."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from fednet_emu.errors import DataError
from fednet_emu.records.folder.manifest import FINISHED, read_manifest, require_sound

LOG = logging.getLogger("fednet_emu")

SUMMARY = "summary.json"


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the summary of the finished run in a folder.

    Returns:
        None if the run is not finished, or, with a warning that names the file, if one of its files is missing or
        damaged, so that the cell has to be run again.
    """
    manifest = read_manifest(folder)
    if manifest is None or manifest["status"] not in FINISHED:
        return None
    try:
        require_sound(folder, [SUMMARY, *manifest["files"]], "the cell is run again")
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except DataError as error:
        LOG.warning("%s", error)
        return None
    return summary

"""Download of one published file into the data folder."""

from __future__ import annotations

import os
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from fednet_emu.errors import DataError
from fednet_emu.learning.data.datasets.idx import check_md5

TIMEOUT_S = 60.0
"""Timeout of a connection that sends no data (s)."""


def fetch(url: str, path: Path, *, md5: str) -> None:
    """Download a file; it is written to its path only when it is complete and verified.

    Args:
        url: Address at the publisher, or at a mirror with the same bytes.
        path: Destination; missing folders are created.
        md5: Checksum of the published file.

    Raises:
        DataError: The download failed, has another checksum, or could not be written.
    """
    try:
        with urlopen(url, timeout=TIMEOUT_S) as response:
            content: bytes = response.read()
    except (OSError, HTTPException) as error:
        by_hand = "check the network, or put the file there by hand"
        raise DataError(str(path), f"download from {url} failed ({error})", by_hand) from error
    check_md5(path, content, md5)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        problem = f"cannot be written ({error.strerror})"
        raise DataError(str(path), problem, "pass --data-dir with a folder that you may write to") from error

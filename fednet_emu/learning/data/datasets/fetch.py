"""Download published data files into the data folder, verify their checksums, and read the IDX format of MNIST."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from fednet_emu.errors import DataError

FETCH_AGAIN = "delete it and fetch it again with `--set data.download=true`"
_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype("u1"), 0x0C: np.dtype(">i4")}


def read_idx(path: Path, *, md5: str | None = None) -> NDArray[Any]:
    """Return the array in a gzipped IDX file, the file format of MNIST.

    The array is read-only. Items of more than one byte are big-endian.

    Source: the format as published with MNIST. A file consists of two zero bytes, a type code, the number of
    dimensions, the dimensions as big-endian uint32, and the items in row-major order.
    """
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise DataError(str(path), f"cannot be read ({error.strerror})", "make it a readable file") from error
    check_md5(path, packed, md5)
    try:
        content = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(str(path), f"the gzip stream is corrupt or cut short ({error})", FETCH_AGAIN) from error
    return _parse(path, content)


def check_md5(path: Path, content: bytes, md5: str | None) -> None:
    """Raise a `DataError` if the MD5 checksum of a file differs from the published checksum."""
    if md5 is None:
        return
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DataError(str(path), f"the md5 must be {md5}, got {found}", FETCH_AGAIN)


def _parse(path: Path, content: bytes) -> NDArray[Any]:
    zeros, code, n_dims = struct.unpack_from(">HBB", content) if len(content) >= 4 else (0xFFFF, 0, 0)
    if zeros != 0 or code not in _TYPES:
        problem = f"not an IDX file of bytes or 32-bit integers, it begins with {content[:4].hex() or 'nothing'}"
        raise DataError(str(path), problem, "an IDX file begins with 000008 or 00000c and its number of dimensions")
    start = 4 + 4 * n_dims
    if len(content) < start:
        raise DataError(str(path), f"the header is cut short after {len(content)} bytes", FETCH_AGAIN)
    shape = struct.unpack_from(f">{n_dims}I", content, 4)
    expected = start + math.prod(shape) * _TYPES[code].itemsize
    if len(content) != expected:
        problem = f"the header promises {expected} bytes for an array of shape {shape}, got {len(content)}"
        raise DataError(str(path), problem, FETCH_AGAIN)
    return np.frombuffer(content, _TYPES[code], offset=start).reshape(shape)


TIMEOUT_S = 60.0
"""Timeout of a connection that sends no data, in seconds."""


def fetch(url: str, path: Path, *, md5: str) -> None:
    """Download a published file. It is stored at `path` only when it is complete and its checksum is right."""
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

"""Reader of arrays in .npz files: zip archives with an array in each member, as written by `np.savez`.

The header of an array is parsed here, because NumPy evaluates the header as Python code. If a header is malformed, or
its shape contradicts the size of the member, an error is raised before memory is allocated.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import io
import lzma
import math
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fednet_emu.errors import DataError, visible
from fednet_emu.files.recordings import check_size, read_bytes

_HEADER = re.compile(
    rb"\s*\{\s*'descr':\s*'([<>|=]?[biufcmMOSUV]\d*(?:\[\w+\])?)',\s*'fortran_order':\s*(True|False),"
    rb"\s*'shape':\s*\(([\d,\s]*)\),?\s*\}\s*"
)
_LENGTH_BYTE = {1: 2, 2: 4, 3: 4}
"""Size in bytes of the field that contains the length of an array's header, by the version of the .npy format."""
_LONGEST_BYTE = 2_000
"""Maximum length of an array's header in bytes. Arrays of numbers have headers of about 100 bytes (1,500 if there are
64 axes)."""
_MAGIC_BYTE = 8
"""Size in bytes of the magic string and the format version at the start of each array in an archive."""
_BLOCK_BYTE = 1 << 20
_BROKEN = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    TypeError,
    MemoryError,
    RuntimeError,  # for encrypted members, and for unknown compression methods and versions
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


class _Header(NamedTuple):
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    shape: tuple[int, ...]


def read_arrays(
    path: Path, how: str, names: Collection[str] | None = None, *, limited: bool = False
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz, .npz.gz or .npz.xz file by name, in the order of the file. The arrays are writable.

    Args:
        how: the remedy in error messages.
        names: the names of the requested arrays; None for all arrays. Names that the file lacks are ignored.
        limited: True to raise an error if the unpacked file is larger than the limit for recorded data.

    Raises:
        DataError: the file is damaged, or contains other data than arrays of plain types (for example Python objects).
    """
    with _archive(path, how) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        if limited:
            check_size(path, sum(member.file_size for member in archive.infolist()))
        return {name: _array(archive, members[name]) for name in members if names is None or name in names}


def read_shapes(path: Path, how: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array in a file by name, without reading the data; see `read_arrays`."""
    shapes = {}
    with _archive(path, how) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                shapes[member.filename.removesuffix(".npy")] = _header(stream, member).shape
    return shapes


@contextmanager
def _archive(path: Path, how: str) -> Iterator[zipfile.ZipFile]:
    """Context manager that opens an archive, and converts every read error inside its block to a `DataError`."""
    try:
        packed = path.name.endswith((".gz", ".xz"))
        with zipfile.ZipFile(io.BytesIO(read_bytes(path)) if packed else path) as archive:
            yield archive
    except _BROKEN as error:
        said = visible(str(error)) or type(error).__name__
        raise DataError(str(path), f"cannot be read as an .npz file of numbers ({said})", how) from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as stream:
        header = _header(stream, member)
        content = bytearray()
        while block := stream.read(_BLOCK_BYTE):
            content += block
    return np.ndarray(header.shape, header.dtype, content, order=header.order)


def _header(stream: IO[bytes], member: zipfile.ZipInfo) -> _Header:
    """Return the header of an array without reading the data; raise a `ValueError` if it is damaged or pickled."""
    magic = stream.read(_MAGIC_BYTE)
    version = magic[6] if len(magic) == _MAGIC_BYTE and magic.startswith(np.lib.format.MAGIC_PREFIX) else 0
    length_byte = _LENGTH_BYTE.get(version, 0)
    length = int.from_bytes(stream.read(length_byte), "little")
    found = _HEADER.fullmatch(stream.read(length)) if length <= _LONGEST_BYTE else None
    if found is None:
        raise ValueError(f"{member.filename} is no array of numbers")
    dtype, shape = np.dtype(found[1].decode()), tuple(int(axis) for axis in found[3].split(b",") if axis.strip())
    if dtype.hasobject:
        raise ValueError(f"{member.filename} holds Python objects")
    data_byte = member.file_size - _MAGIC_BYTE - length_byte - length
    if math.prod(shape) * dtype.itemsize != data_byte:
        raise ValueError(f"{member.filename} holds {data_byte} bytes, which is not {dtype} of the shape that it states")
    return _Header(dtype, "F" if found[2] == b"True" else "C", shape)

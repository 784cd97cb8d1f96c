"""Memory that processes share: a process refers to an array of another one by its place.

The memory has no name in any folder. It is freed when the last process that uses it ends, for any reason.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from bisect import insort
from collections import deque
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple, final
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fednet_emu.errors import FednetError

_PAGE = mmap.PAGESIZE
_LEAST_BYTE = 2**34


class Place(NamedTuple):
    """The place of an array: its first byte, its shape, and NumPy's name of its type."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@final
class Memory:
    """Shared memory, as much as the machine has; a page uses memory once it is written.

    It is the open file with the number `file`, made by another process; None makes one.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = _new_file() if file is None else file
        self._map = mmap.mmap(self.file, os.fstat(self.file).st_size)
        self._base = np.frombuffer(self._map, np.uint8, 1).ctypes.data
        self._free = [(0, len(self._map))]
        self._returned: deque[tuple[int, int]] = deque()  # by any thread, at any time

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (DupFd(self.file),)

    def at(self, place: Place) -> NDArray[Any]:
        return np.ndarray(place.shape, place.dtype, self._map, place.offset)

    def new(self, shape: tuple[int, ...], dtype: Any) -> tuple[NDArray[Any], Place]:
        """A new array and its place, which is given back with the last reference to the array or to parts of it."""
        place = Place(self._take(int(np.prod(shape)) * np.dtype(dtype).itemsize), shape, np.dtype(dtype).str)
        array = self.at(place)
        finalize(array, self._give_back, place.offset, array.nbytes).atexit = False
        return array, place

    def copy_of(self, tensor: Tensor) -> tuple[NDArray[Any], Place]:
        """An array with the values of a tensor of the CPU, and its place; the tensor's own if it lies here already."""
        values = tensor.detach().numpy()
        offset = values.ctypes.data - self._base
        if values.flags.c_contiguous and 0 <= offset < len(self._map):
            return values, Place(offset, values.shape, values.dtype.str)
        array, place = self.new(values.shape, values.dtype)
        array[...] = values
        return array, place

    def move_here(self, tensor: Tensor) -> Place:
        """Move the values of a tensor to this memory; only the tensor refers to them there."""
        array, place = self.copy_of(tensor)
        with torch.no_grad():
            tensor.set_(torch.from_numpy(array))  # type: ignore[call-overload]
        return place

    def trim(self) -> None:
        """Return the pages of free areas to the system."""
        self._join()
        if hasattr(mmap, "MADV_REMOVE"):
            for start, end in self._free:
                self._map.madvise(mmap.MADV_REMOVE, start, end - start)

    def _take(self, byte: int) -> int:
        """The start of the first free area that is large enough, of whole pages."""
        self._join()
        size = _whole_pages(byte)
        for number, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[number : number + 1] = [(start + size, end)] if end - start > size else []
                return start
        raise FednetError(f"training.workers: the shared memory of {len(self._map) / 2**30:.0f} GiB is full")

    def _give_back(self, offset: int, byte: int) -> None:
        self._returned.append((offset, offset + _whole_pages(byte)))

    def _join(self) -> None:
        """Add the returned areas to the free ones."""
        if not self._returned:
            return
        while self._returned:
            insort(self._free, self._returned.popleft())
        joined = self._free[:1]
        for start, end in self._free[1:]:
            if joined and joined[-1][1] == start:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        self._free = joined


def _opened(file: Any) -> Memory:
    return Memory(file.detach())


def _whole_pages(byte: int) -> int:
    return max(-(-byte // _PAGE), 1) * _PAGE


def _new_file() -> int:
    """An open file without a name, as large as the machine's memory and still empty."""
    if sys.platform == "linux":
        file = os.memfd_create("fednet")
    else:
        with tempfile.TemporaryFile() as opened:
            file = os.dup(opened.fileno())
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    os.ftruncate(file, _whole_pages(max(has, _LEAST_BYTE)))
    return file

"""Memory for arrays that several processes share.

A process refers to an array by a `Place`, which consists of the array's offset, shape and type. The memory has no name
in the file system. It is freed when the last process that uses it ends, even if the process is killed.
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
    """The location of an array in shared memory: offset of the first byte, shape, and name of the NumPy type."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@final
class Memory:
    """Shared memory, from which arrays are allocated.

    It is mapped at the size of the machine's memory, but a page is allocated only when it is written. `file` is the
    descriptor of an open file that another process has created; None creates a new file.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = _new_file() if file is None else file
        self._map = mmap.mmap(self.file, os.fstat(self.file).st_size)
        self._base = np.frombuffer(self._map, np.uint8, 1).ctypes.data
        self._free = [(0, len(self._map))]
        self._returned: deque[tuple[int, int]] = deque()  # freed areas, to which any thread may append

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (DupFd(self.file),)

    def at(self, place: Place) -> NDArray[Any]:
        return np.ndarray(place.shape, place.dtype, self._map, place.offset)

    def new(self, shape: tuple[int, ...], dtype: Any) -> tuple[NDArray[Any], Place]:
        """Allocate an array; return it and its location. The last reference to it, or to a view, frees the memory."""
        place = Place(self._take(int(np.prod(shape)) * np.dtype(dtype).itemsize), shape, np.dtype(dtype).str)
        array = self.at(place)
        finalize(array, self._give_back, place.offset, array.nbytes).atexit = False
        return array, place

    def copy_of(self, tensor: Tensor) -> tuple[NDArray[Any], Place]:
        """Return a CPU tensor's values as an array in shared memory (not copied if already there), and its location."""
        values = tensor.detach().numpy()
        offset = values.ctypes.data - self._base
        if values.flags.c_contiguous and 0 <= offset < len(self._map):
            return values, Place(offset, values.shape, values.dtype.str)
        array, place = self.new(values.shape, values.dtype)
        array[...] = values
        return array, place

    def move_here(self, tensor: Tensor) -> Place:
        """Move a tensor's values to shared memory, which is freed with the tensor, and return their location."""
        array, place = self.copy_of(tensor)
        with torch.no_grad():
            tensor.set_(torch.from_numpy(array))  # type: ignore[call-overload]
        return place

    def trim(self) -> None:
        """Return the pages of free areas to the operating system."""
        self._join()
        if hasattr(mmap, "MADV_REMOVE"):
            for start, end in self._free:
                self._map.madvise(mmap.MADV_REMOVE, start, end - start)

    def _take(self, byte: int) -> int:
        """Reserve whole pages in the first free area that fits, and return the offset, or raise a `FednetError`."""
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
        """Add the areas that were returned to the free areas, and join adjacent ones."""
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
    """Create an unnamed file as large as the machine's memory, without allocated pages, and return its descriptor."""
    if sys.platform == "linux":
        file = os.memfd_create("fednet")
    else:
        with tempfile.TemporaryFile() as opened:
            file = os.dup(opened.fileno())
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    os.ftruncate(file, _whole_pages(max(has, _LEAST_BYTE)))
    return file

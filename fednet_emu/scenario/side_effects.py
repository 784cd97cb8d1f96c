"""What runs change in their process, and how it is put back: nobody beside a run notices that it was there."""

from __future__ import annotations

import gc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import ThreadpoolController

LOG = logging.getLogger("fednet_emu")

_lock = threading.Lock()
_under_way = 0
_put_back: Callable[[], None]


@contextmanager
def none_left_behind() -> Iterator[None]:
    """Put back what runs inside set for the whole process, when the last of those side by side has ended.

    Each run sets the garbage collector's thresholds, the threads within an operation of torch and BLAS, and the level
    of the log; libraries that it loads add filters of warnings. Runs in several threads would put back each other's
    settings; so the first one in keeps what was there.
    """
    global _under_way, _put_back  # noqa: PLW0603  (these settings are the process's own)
    with _lock:
        if _under_way == 0:
            _put_back = _kept()
        _under_way += 1
    try:
        yield
    finally:
        with _lock:
            _under_way -= 1
            if _under_way == 0:
                _put_back()


def _kept() -> Callable[[], None]:
    collector, threads, level = gc.get_threshold(), torch.get_num_threads(), LOG.level
    filters = warnings.catch_warnings()  # libraries that are loaded on the way add their own
    filters.__enter__()
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    blas = [(library, library.get_num_threads()) for library in libraries]

    def put_back() -> None:
        gc.set_threshold(*collector)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for library, count in blas:
            library.set_num_threads(count)
        LOG.setLevel(level)
        filters.__exit__(None, None, None)

    return put_back

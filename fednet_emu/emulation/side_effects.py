"""Restore the process-wide settings that runs change, so that the rest of the process is not affected by a run."""

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
    """Restore the process-wide settings that runs inside the `with` block have changed.

    Each run sets the thresholds of the garbage collector, the number of threads within an operation of torch and BLAS,
    and the log level; libraries that it loads add warning filters. If runs in several threads overlap, the first one
    stores the settings and the last one restores them, so that no run restores the settings of another.
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

"""Python's cyclic garbage collector, made to run rarely."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Make Python's cyclic garbage collector run rarely: nearly all objects of a run are freed without it.

    Importing PyTorch and the scenario's models takes a third less time, too: they make a million objects that stay.
    """
    before = gc.get_threshold()
    gc.set_threshold(2_000_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)

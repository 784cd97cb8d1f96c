"""The global random generators of Python, NumPy and torch, seeded for code that uses them and restored afterwards."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch

_ALONE = threading.RLock()
"""Lock of the generators, which all threads of the process share."""


@final
class Generators:
    """One stream of random numbers, on which the global generators are while a block of code runs.

    Args:
        key: the seed, 64 bits.
    """

    def __init__(self, key: int) -> None:
        self._key = key
        self._state: Any = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let code in this block draw from this stream, from where the last block left it."""
        with _ALONE:
            host = _state()
            if self._state is None:
                _seed(self._key)
            else:
                _restore(self._state)
            try:
                yield
            finally:
                self._state = _state()
                _restore(host)


def _seed(key: int) -> None:
    random.seed(key)
    np.random.seed([key & 0xFFFFFFFF, key >> 32])
    torch.default_generator.manual_seed(key >> 1)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(key >> 1)


def _state() -> Any:
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state(), gpus


def _restore(state: Any) -> None:
    python, numpy, cpu, gpus = state
    random.setstate(python)
    np.random.set_state(numpy)
    torch.default_generator.set_state(cpu)
    if gpus:
        torch.cuda.set_rng_state_all(gpus)

"""Types of NumPy arrays; docstrings state shapes where an array is used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Mask = NDArray[np.bool_]
Words = NDArray[np.uint32]
Keys = NDArray[np.uint64]
"""Keys of counter-based random numbers."""

"""Elias' omega code: lengths of whole numbers, and of a sparse vector of levels as QSGD writes it.

Elias: "Universal codeword sets and representations of the integers", IEEE Transactions on Information Theory 21, 1975.
"""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import IntArray


def omega_bit(numbers: IntArray) -> IntArray:
    """Length in bits of the code of each number [n], 1 or more: 1, 3, 3, 6, 6, 6, 6, 7, ... for 1, 2, 3, ...

    The code of a number is its binary digits, before which comes that of their count less one, down to a count of one;
    a zero ends it.
    """
    length, rest = np.ones_like(numbers), numbers.copy()
    while (more := rest > 1).any():
        digits = np.frexp(rest)[1].astype(rest.dtype)  # exact below 2^53
        length += np.where(more, digits, 0)
        rest = np.where(more, digits - 1, 1)
    return length


def sparse_bit(levels: IntArray) -> int:
    """Bits of the levels [n], 0 or more, and signs: the count, and each that is not zero after the gap before it."""
    places = np.flatnonzero(levels)
    gaps = np.diff(places, prepend=-1)
    count = omega_bit(np.array([len(places) + 1]))
    return int(count.sum() + omega_bit(gaps).sum() + len(places) + omega_bit(levels[places]).sum())

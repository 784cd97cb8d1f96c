"""Transport blocks of 5G NR: the bits of one user's slot (TS 38.214 clause 5.1.3.2; uplink: clause 6.1.4.2)."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction

MOST_RE = 156
"""Largest number of resource elements that count in a resource block."""

_SMALL_BIT = 3824
_CODE_BLOCK_BIT, _LOW_RATE_CODE_BLOCK_BIT = 8424, 3816
_SIZES_BIT: tuple[int, ...] = (
    *range(24, 193, 8), *range(208, 385, 16), *range(408, 577, 24), *range(608, 769, 32), 808, 848, 888, 928, 984, 1032,
    1064, 1128, 1160, 1192, 1224, 1256, 1288, 1320, 1352, 1416, 1480, 1544, 1608, 1672, 1736, 1800, 1864, 1928, 2024,
    2088, 2152, 2216, 2280, 2408, 2472, 2536, 2600, 2664, 2728, 2792, 2856, 2976, 3104, 3240, 3368, 3496, 3624, 3752,
    _SMALL_BIT,
)  # fmt: skip
"""The 93 sizes of Table 5.1.3.2-1."""


def transport_block_bit(
    blocks: int, symbols: int, dmrs: int, modulation_bits: int, rate_x1024: float, *, overhead: int = 0, layers: int = 1
) -> int:
    """Size in bit of the transport block of one slot; 0 without resources.

    Ignored here: the scaling of N_info for paging and random access.

    Args:
        blocks: resource blocks of the allocation.
        symbols: symbols of the slot that the allocation has, of 14.
        dmrs: resource elements of demodulation reference signals in a resource block.
        modulation_bits: bits per symbol of the modulation.
        rate_x1024: 1024 times the code rate.
        overhead: further resource elements of a resource block that carry no data: 0, 6, 12 or 18.
        layers: spatial layers.
    """
    elements = min(MOST_RE, 12 * symbols - dmrs - overhead) * blocks
    rate = Fraction(rate_x1024) / 1024
    info = elements * rate * modulation_bits * layers
    if info <= 0:
        return 0
    if info <= _SMALL_BIT:
        step = 1 << max(3, _floor_log2(info) - 6)
        return _SIZES_BIT[bisect_left(_SIZES_BIT, max(24, step * (info // step)))]
    step = 1 << (_floor_log2(info - 24) - 5)
    quantised = max(3840, step * math.floor((info - 24) / step + Fraction(1, 2)))
    if rate <= Fraction(1, 4):
        code_blocks = -(-(quantised + 24) // _LOW_RATE_CODE_BLOCK_BIT)
    elif quantised > _CODE_BLOCK_BIT:
        code_blocks = -(-(quantised + 24) // _CODE_BLOCK_BIT)
    else:
        code_blocks = 1
    unit = 8 * code_blocks
    return unit * -(-(quantised + 24) // unit) - 24


def _floor_log2(number: Fraction) -> int:
    """The largest n with 2^n at most the number, which is at least 1 / 8."""
    return (8 * number.numerator // number.denominator).bit_length() - 4

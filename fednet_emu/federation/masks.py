"""Masks that cancel in a sum, and secrets that some of their holders can open together.

Shamir, "How to Share a Secret", CACM 22(11), 1979, over the prime 2^127 - 1; masks are SHAKE-256 of a secret. Two
devices agree on a secret as by Diffie and Hellman, modulo that prime, which is too short for use: it stands for X25519,
whose sizes are those on the air.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

PRIME = 2**127 - 1
_GENERATOR, _BYTE = 3, 16

Words = NDArray[np.uint64]
"""Entries modulo a power of two."""


def agreed(secret: int, other: int) -> int:
    """The secret that the owners of two secrets agree on; it is the same for both."""
    return pow(pow(_GENERATOR, other, PRIME), secret, PRIME)


def mask(secret: int, n: int, bit: int) -> Words:
    """The mask [n] of a secret, of so many bits, at most 64, in every entry."""
    drawn = np.frombuffer(shake_256(secret.to_bytes(_BYTE, "big")).digest(8 * n), np.uint64)
    return drawn & np.uint64(2**bit - 1)


def shares(secret: int, holders: Iterable[int], threshold: int) -> dict[int, int]:
    """A share for each holder, numbered from 0; any `threshold` of them open the secret, and fewer tell nothing."""
    drawn = shake_256(b"shares" + secret.to_bytes(_BYTE, "big")).digest(_BYTE * (threshold - 1))
    powers = [int.from_bytes(drawn[at : at + _BYTE], "big") for at in range(0, len(drawn), _BYTE)]
    found = {}
    for holder in holders:
        value = 0
        for coefficient in reversed([secret, *powers]):
            value = (value * (holder + 1) + coefficient) % PRIME
        found[holder] = value
    return found


def opened(known: Mapping[int, int]) -> int:
    """The secret of which these shares are known, by holder: as many as its threshold, or more."""
    secret = 0
    for holder, share in known.items():
        above = below = 1
        for other in known:
            if other != holder:
                above, below = above * (other + 1) % PRIME, below * (other - holder) % PRIME
        secret += share * above * pow(below, -1, PRIME)
    return secret % PRIME

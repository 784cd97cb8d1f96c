"""NumPy's seeding, vectorised over many generators that have one seed and different spawn keys.

Seeding a generator takes longer than drawing a batch with it, nearly all of it in `SeedSequence`. Its algorithm, which
NumPy keeps as it is, follows O'Neill's `seed_seq_fe` (https://www.pcg-random.org/posts/developing-a-seed_seq-alternative.html);
here the same algorithm runs over an array of keys and gives identical words.
"""

from __future__ import annotations

from typing import Any, cast, final

import numpy as np

from fednet_emu.arrays import Keys, Words

_POOL = 4
"""Number of 32-bit words in the entropy pool of a `SeedSequence`; spawn keys have as many words here."""
_INIT_A, _MULT_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULT_B = 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)


def generators(seed: int, keys: Words) -> list[np.random.Generator]:
    """Return a generator for each spawn key [n, 4], equal to a new `PCG64(SeedSequence(seed, spawn_key=key))`."""
    known = [cast(np.random.SeedSequence, _Known(own)) for own in _states(seed, keys)]  # typed too narrowly by NumPy
    return [np.random.Generator(np.random.PCG64(own)) for own in known]


@final
class _Known(np.random.bit_generator.ISeedSequence):
    """A seed sequence that returns a state computed beforehand."""

    def __init__(self, state: Keys) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Keys:
        """The four words of 64 bits that PCG64 asks for."""
        return self._state


def _states(seed: int, keys: Words) -> Keys:
    """`SeedSequence(seed, spawn_key=key).generate_state(4, uint64)` for each key: [n, 4]."""
    words_of_seed = max(_POOL, -(-int(seed).bit_length() // 32))
    before, after = _constants(_INIT_A, _MULT_A, _POOL * words_of_seed, _POOL * _POOL).reshape(2, _POOL, _POOL)
    hashed = _hashed(keys[:, :, None], before, after) * _MIX_R
    pool: Words = np.random.SeedSequence(seed).pool
    for word in range(_POOL):
        mixed = _MIX_L * pool - hashed[:, word]
        pool = mixed ^ (mixed >> _SHIFT)
    out = _hashed(np.tile(pool, 2), *_constants(_INIT_B, _MULT_B, 0, 2 * _POOL))
    return out.astype("<u4").view("<u8").astype(np.uint64)


def _hashed(words: Words, before: Words, after: Words) -> Words:
    hashed = (words ^ before) * after
    return hashed ^ (hashed >> _SHIFT)


def _constants(init: int, mult: int, skipped: int, count: int) -> Words:
    """Return the hash constants [2, count], to XOR before and multiply after, following the first `skipped` hashes."""
    powers = [init * pow(mult, power, 2**32) % 2**32 for power in range(skipped, skipped + count + 1)]
    return np.array([powers[:-1], powers[1:]], np.uint32)

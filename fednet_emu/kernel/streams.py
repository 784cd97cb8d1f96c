"""Random numbers that depend on device and purpose, but never on the order of calls.

An additional device, plot or log line does not change any other random number, and two algorithms with the same seed
have the same channel, stragglers and data splits. `Streams` returns generators by name. `uniform` and `uniforms` are
stateless counter-based hashes (SplitMix64's finaliser, Steele, Lea and Flood, OOPSLA 2014) for frequent draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from operator import index
from typing import Any, cast, final

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, Words

Name = str | int | tuple["Name", ...]
"""Name of a random stream: a string, an integer (of Python or NumPy), or a tuple of names."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_STEP = 2.0**-52
_FEW = 4
"""Number of generators below which it is faster to create them one by one."""


_SCENE = frozenset({"data", "limit", "hold out", "partition", "attack", "feature noise", "init"}) | {
    *("placement", "profile", "speed", "waves", "asymmetry"),
    *("shadowing", "los", "environment", "indoor", "building", "depth", "penetration"),
}
"""First elements of the names of the random streams that define the scene: data, initial model, positions, hardware,
shadowing."""


class Streams:
    """Random streams of one run by name; `streams("batch", 3, 12)` is the generator of device 3's batches in round 12.

    `scene_seed`, by default `seed`, seeds the scene: data, initial model, positions, hardware, shadowing.
    """

    def __init__(self, seed: int, scene_seed: int | None = None) -> None:
        self.seed, self.scene_seed = seed, seed if scene_seed is None else scene_seed

    def _seed_of(self, name: tuple[Name, ...]) -> int:
        scene = bool(name) and (name[0] in _SCENE or name == ("groups",))
        return self.scene_seed if scene else self.seed

    def __call__(self, *name: Name) -> np.random.Generator:
        """Return a new random generator at the start of the stream `name`."""
        words = np.frombuffer(_digest(name), "<u4").tolist()
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self._seed_of(name), spawn_key=words)))

    def many(self, names: Sequence[tuple[Name, ...]]) -> list[np.random.Generator]:
        """Return a generator for each name, as a call with this name does, but ten times faster for dozens of names.

        Names of scene streams are not allowed, because only `seed` is used.
        """
        if len(names) < _FEW:
            return [self(*name) for name in names]
        digests = b"".join(map(_digest, names))
        return generators(self.seed, np.frombuffer(digests, "<u4").reshape(len(names), -1).astype(np.uint32))

    def key(self, *name: Name) -> int:
        """Return the 64-bit key of the stream `name`, to be passed to `uniform` and `uniforms`."""
        return int.from_bytes(blake2b(_spelt((self._seed_of(name), *name)), digest_size=8).digest(), "little")


def _digest(name: tuple[Name, ...]) -> bytes:
    """Return the 16-byte hash of a name, which seeds the generator of this name together with the seed of the run."""
    return blake2b(_spelt(name), digest_size=16).digest()


def _spelt(name: Name) -> bytes:
    return repr(_plain(name)).encode()


def _plain(name: Name) -> Name:
    """Return the name with NumPy numbers converted to Python numbers, because the hash depends on their `repr`."""
    if isinstance(name, tuple):
        return tuple(map(_plain, name))
    return str(name) if isinstance(name, str) else index(name)


def mix(key: int, counter: int) -> int:
    """Return the 64-bit key with index `counter` (0 or more) in the sequence of keys derived from `key`."""
    x = (key + _GOLDEN * (counter + 1)) & _MASK
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)


def uniform(key: int, counter: int) -> float:
    """Return the random number with index `counter` for `key`, uniformly distributed in the open interval (0, 1)."""
    x = (key + _GOLDEN * (counter + 1)) & _MASK  # `mix`, without the call
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return (((x ^ (x >> 31)) >> 12) + 0.5) * _STEP


def mixes(key: int | Keys, counter: IntArray) -> Keys:
    """Return 64-bit keys as `mix` does, for arrays of keys and counters, which are broadcast."""
    with np.errstate(over="ignore"):
        x = np.asarray(key, np.uint64) + np.uint64(_GOLDEN) * (counter.astype(np.uint64) + np.uint64(1))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
        mixed: Keys = x ^ (x >> np.uint64(31))
    return mixed


def uniforms(key: int | Keys, counter: IntArray) -> Array:
    """Return the random numbers of `uniform`, bit-identical, for broadcast arrays of keys and counters."""
    return ((mixes(key, counter) >> np.uint64(12)).astype(np.float64) + 0.5) * _STEP


_POOL = 4
"""Number of 32-bit words in the entropy pool of a `SeedSequence`, and in the spawn keys of this file."""
_INIT_A, _MULT_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULT_B = 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)


def generators(seed: int, keys: Words) -> list[np.random.Generator]:
    """Return a generator for each spawn key [n, 4], equal to a new `PCG64(SeedSequence(seed, spawn_key=key))`.

    Seeding a generator takes longer than drawing a batch, and most of this time is spent in `SeedSequence`. The
    algorithm of `SeedSequence`, which NumPy keeps stable, is O'Neill's `seed_seq_fe`
    (https://www.pcg-random.org/posts/developing-a-seed_seq-alternative.html); here the algorithm is vectorised over
    keys.
    """
    known = [cast(np.random.SeedSequence, _Known(own)) for own in _states(seed, keys)]  # typed too narrowly by NumPy
    return [np.random.Generator(np.random.PCG64(own)) for own in known]


@final
class _Known(np.random.bit_generator.ISeedSequence):
    """Seed sequence of NumPy with a precomputed state."""

    def __init__(self, state: Keys) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Keys:
        return self._state


def _states(seed: int, keys: Words) -> Keys:
    """Return `SeedSequence(seed, spawn_key=key).generate_state(4, uint64)` for each key, as an array [n, 4]."""
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


@cache
def _constants(init: int, mult: int, skipped: int, count: int) -> Words:
    """Return constants [2, count] of the hash steps after the first `skipped`: XOR operands, then factors."""
    powers = [init * pow(mult, power, 2**32) % 2**32 for power in range(skipped, skipped + count + 1)]
    return np.array([powers[:-1], powers[1:]], np.uint32)

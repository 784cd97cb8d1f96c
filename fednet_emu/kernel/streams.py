"""Random numbers keyed by device and purpose, never by the order of calls.

Adding a device, a plot or a log line does not change any other draw, and two algorithms with the same seed see the same
channel, stragglers and data splits. `Streams` gives generators by name; `uniform` and `uniforms` are counter-based
hashes (SplitMix64's finaliser, Steele, Lea and Flood, OOPSLA 2014) for the draws of hot paths, with no state at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from operator import index

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys
from fednet_emu.kernel.seeding import generators

Name = str | int | tuple["Name", ...]
"""The name of a stream: a string, an integer (Python's or NumPy's), or a tuple of names."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_STEP = 2.0**-52
_FEW = 4
"""Below this number of generators, creating them one by one is faster."""


class Streams:
    """All randomness of one run; `streams("batch", 3, 12)` is device 3's generator for round 12."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, *name: Name) -> np.random.Generator:
        """Return a new generator at the start of the stream with this name."""
        words = np.frombuffer(_digest(name), "<u4").tolist()
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=words)))

    def many(self, names: Sequence[tuple[Name, ...]]) -> list[np.random.Generator]:
        """Return `self(*name)` for each name, in a tenth of the time when there are dozens."""
        if len(names) < _FEW:
            return [self(*name) for name in names]
        digests = b"".join(map(_digest, names))
        return generators(self.seed, np.frombuffer(digests, "<u4").reshape(len(names), -1).astype(np.uint32))

    def key(self, *name: Name) -> int:
        """Return a 64-bit key for this name, to be passed to `uniform` and `uniforms`."""
        return int.from_bytes(blake2b(_spelt((self.seed, *name)), digest_size=8).digest(), "little")


def _digest(name: tuple[Name, ...]) -> bytes:
    """Return the 16-byte hash of a name, which seeds the stream's generator together with the seed of the run."""
    return blake2b(_spelt(name), digest_size=16).digest()


def _spelt(name: Name) -> bytes:
    return repr(_plain(name)).encode()


def _plain(name: Name) -> Name:
    """Convert NumPy numbers in a name to Python's, because their `repr`, which is hashed, differs."""
    if isinstance(name, tuple):
        return tuple(map(_plain, name))
    return str(name) if isinstance(name, str) else index(name)


def mix(key: int, counter: int) -> int:
    """The 64-bit key of item `counter` (0 or more) of a keyed family."""
    x = (key + _GOLDEN * (counter + 1)) & _MASK
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)


def uniform(key: int, counter: int) -> float:
    """Draw number `counter` of a keyed family: uniform in the open interval (0, 1)."""
    x = (key + _GOLDEN * (counter + 1)) & _MASK  # `mix`, without the call
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return (((x ^ (x >> 31)) >> 12) + 0.5) * _STEP


def mixes(key: int | Keys, counter: IntArray) -> Keys:
    """Vectorised `mix`, broadcasting keys against counters."""
    with np.errstate(over="ignore"):
        x = np.asarray(key, np.uint64) + np.uint64(_GOLDEN) * (counter.astype(np.uint64) + np.uint64(1))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
        mixed: Keys = x ^ (x >> np.uint64(31))
    return mixed


def uniforms(key: int | Keys, counter: IntArray) -> Array:
    """Vectorised `uniform`, bit for bit the same numbers."""
    draws: Array = ((mixes(key, counter) >> np.uint64(12)).astype(np.float64) + 0.5) * _STEP
    return draws

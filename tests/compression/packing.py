"""A second implementation of the formats, by hand: packs what a receiver reads into bits, and unpacks it again.

A message is a text of zeros and ones. Nothing here uses the package's own formulas of sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np

Bits = Iterator[str]


def binary(number: int, width: int) -> str:
    text = format(number, "b").zfill(width) if width else ""
    assert len(text) == width, (number, width)
    return text


def take(bits: Bits, width: int) -> int:
    return int("0" + "".join(next(bits) for _ in range(width)), 2)


def single(number: float) -> str:
    return binary(struct.unpack("<I", struct.pack("<f", number))[0], 32)


def take_single(bits: Bits) -> np.float32:
    return np.float32(struct.unpack("<f", struct.pack("<I", take(bits, 32)))[0])


def omega(number: int) -> str:
    """Elias' omega code of a number of 1 or more, as in the textbook."""
    code = "0"
    while number > 1:
        digits = format(number, "b")
        code, number = digits + code, len(digits) - 1
    return code


def take_omega(bits: Bits) -> int:
    number = 1
    while (first := next(bits)) == "1":
        number = int(first + "".join(next(bits) for _ in range(number)), 2)
    return number


def level_of(x: float, norm: np.float32, s: int) -> int:
    """The level, with sign, of a number that a receiver of QSGD reads."""
    level = round(float(x) / float(norm) * s) if norm else 0
    assert abs(float(x) - float(norm) * level / s) <= 1e-6 * abs(float(norm))
    return level


def pack_qsgd(read: np.ndarray, norm: np.float32, s: int) -> str:
    """Norm, and for each entry a sign and a level."""
    width = len(format(s, "b"))
    levels = [level_of(x, norm, s) for x in read]
    return single(norm) + "".join(("1" if level < 0 else "0") + binary(abs(level), width) for level in levels)


def unpack_qsgd(bits: Bits, n: int, s: int) -> np.ndarray:
    norm, width = take_single(bits), len(format(s, "b"))
    pairs = [(take(bits, 1), take(bits, width)) for _ in range(n)]
    return np.array([(-1) ** sign * norm * level / s for sign, level in pairs])


def pack_elias(read: np.ndarray, norm: np.float32, s: int) -> str:
    """Norm, how many levels are not zero, and each of these after the gap before it."""
    text, last = single(norm), -1
    levels = [level_of(x, norm, s) for x in read]
    text += omega(1 + sum(level != 0 for level in levels))
    for place, level in enumerate(levels):
        if level:
            text += omega(place - last) + ("1" if level < 0 else "0") + omega(abs(level))
            last = place
    return text


def unpack_elias(bits: Bits, n: int, s: int) -> np.ndarray:
    norm, place, read = take_single(bits), -1, np.zeros(n)
    for _ in range(take_omega(bits) - 1):
        place += take_omega(bits)
        sign, level = take(bits, 1), take_omega(bits)
        read[place] = (-1) ** sign * norm * level / s
    return read


def pack_sparse(read: np.ndarray, k: int, values: Callable[[np.ndarray], str]) -> str:
    """The places of k entries, each in as many bits as tell n apart, and their values."""
    n, width = len(read), len(format(len(read) - 1, "b")) if len(read) > 1 else 0
    places = np.flatnonzero(read).tolist()
    places = sorted([*places, *[place for place in range(n) if place not in places][: k - len(places)]])
    assert len(places) == k
    return "".join(binary(place, width) for place in places) + values(read[places])


def unpack_sparse(bits: Bits, n: int, k: int, values: Callable[[Bits, int], np.ndarray]) -> np.ndarray:
    width, read = len(format(n - 1, "b")) if n > 1 else 0, np.zeros(n)
    places = [take(bits, width) for _ in range(k)]
    read[places] = values(bits, k)
    return read


def pack_singles(read: np.ndarray) -> str:
    return "".join(map(single, read))


def unpack_singles(bits: Bits, n: int) -> np.ndarray:
    return np.array([take_single(bits) for _ in range(n)])


def pack_signs(read: np.ndarray) -> str:
    return single(abs(read[0])) + "".join("1" if x < 0 else "0" for x in read)


def unpack_signs(bits: Bits, n: int) -> np.ndarray:
    size = take_single(bits)
    return np.array([-size if take(bits, 1) else size for _ in range(n)])


def pack_uniform(read: np.ndarray, low: float, high: float, width: int) -> str:
    """The ends of the range, and a code for each entry."""
    step = (high - low) / (2**width - 1)
    codes = [round((float(x) - low) / step) if step else 0 for x in read]
    return single(low) + single(high) + "".join(binary(code, width) for code in codes)


def unpack_uniform(bits: Bits, n: int, width: int) -> np.ndarray:
    low, high = take_single(bits), take_single(bits)
    return np.array([low + (high - low) / (2**width - 1) * take(bits, width) for _ in range(n)])

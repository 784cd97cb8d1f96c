"""NumPy array types, elementary functions with bit-identical results on every processor, and bisection.

The shape of an array is stated where the array is used.

NumPy chooses its implementation of `log`, `exp`, `sin`, ... according to the processor's vector instructions, and the
results differ in the last bit. Such a difference can move an event by a nanosecond once in days of simulated time.
Simulated time must depend only on the scenario and the seed. So every calculation of simulated time uses the functions
of this module instead of NumPy's. They call the C library for one element at a time, or SciPy where speed matters.
Sums, products, quotients and roots are correctly rounded by every processor. Remaining limit: results of another C
library, or of the same C library on another processor family, may differ in the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Mask = NDArray[np.bool_]
Words = NDArray[np.uint32]
Keys = NDArray[np.uint64]
"""Array of keys for counter-based random number generation."""

least = np.minimum.reduce
"""Minimum of an array; takes half the time of the method `min`, whose overhead dominates for small arrays."""

_LN_10 = math.log(10.0)


def _each(function: Callable[[float], float]) -> Callable[[Any], Array]:
    ufunc = np.frompyfunc(function, 1, 1)

    def apply(x: Any) -> Array:
        return np.asarray(ufunc(x), np.float64)

    return apply


sin, cos = _each(math.sin), _each(math.cos)


def exp(x: Any) -> Array:
    """Return e^x; infinity where the result overflows."""
    value: Array = scipy.special.inv_boxcox(x, 0.0)  # calls the C library's exp, 20 times as fast as `_each`
    return value


def log(x: Any) -> Array:
    """Return the natural logarithm of `x`; minus infinity at 0."""
    value: Array = scipy.special.xlogy(1.0, x)
    return value


def log10(x: Any) -> Array:
    """Return the logarithm of `x` to base 10; minus infinity at 0."""
    return log(x) / _LN_10


def log1p(x: Any) -> Array:
    """Return ln(1 + x), also accurate for small x."""
    value: Array = scipy.special.log1p(x)
    return value


def expm1(x: Any) -> Array:
    """Return e^x - 1, also accurate for small x."""
    value: Array = scipy.special.expm1(x)
    return value


def exp10(x: Any) -> Array:
    """Return 10^x."""
    value: Array = scipy.special.exp10(x)
    return value


_POWER = np.frompyfunc(math.pow, 2, 1)


def power(x: Any, exponent: Any) -> Array:
    """Return `x` to the power of `exponent`, element by element."""
    return np.asarray(_POWER(x, exponent), np.float64)


def bisected(is_low: Callable[[float], bool], low: float, high: float, halvings: int) -> tuple[float, float]:
    """Narrow an interval by `halvings` bisections.

    `is_low` must be true at the lower end and false at the upper end.
    """
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return low, high

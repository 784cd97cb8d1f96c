"""Amounts of transmitted data as exact integers, in units so small that every rate is a whole number of units per ns.

A transfer of b bits is b * BIT units of work; a rate of r bit/s completes `work_per_ns(r)` units per nanosecond. Sums
over thousands of fading blocks, and over changes of the set of active transfers, have no rounding errors. The end time
of a transfer therefore does not depend on how often its progress is updated.
"""

from __future__ import annotations

from fednet_emu.kernel.clock import NS_PER_S

SCALE = 2.0**64
"""Units of work per nanosecond at a rate of 1 bit/s; `int(rate_bps * SCALE)` is exact above 2^-11 bit/s."""
BIT = NS_PER_S << 64
"""Units of work per transmitted bit."""


def work_per_ns(rate_bps: float) -> int:
    """Return the units of work per nanosecond, as an integer, at a rate of `rate_bps` in bit/s."""
    return int(rate_bps * SCALE)


def done_ns(work: int, per_ns: int) -> int:
    """Return the time in nanoseconds, rounded up, for `work` units at `per_ns` units per nanosecond."""
    return -(-work // per_ns)

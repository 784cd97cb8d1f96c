"""Bits on the air, counted exactly: whole numbers of a unit so small that every rate is a multiple of it.

A transfer of b bits is b * BIT units of work; a rate of r bit/s does `work_per_ns(r)` of them in a nanosecond. Sums
over thousands of fading blocks and changes of the active set then have no rounding noise, and a transfer ends in the
same nanosecond however often it was looked at on its way.
"""

from __future__ import annotations

from fednet_emu.kernel.clock import NS_PER_S

SCALE = 2.0**64
"""Units of work that a rate of 1 bit/s does in a nanosecond: `int(rate_bps * SCALE)` is exact above 2^-11 bit/s."""
BIT = NS_PER_S << 64
"""Units of work in a bit."""


def work_per_ns(rate_bps: float) -> int:
    """Units of work that a rate does in a nanosecond."""
    return int(rate_bps * SCALE)


def done_ns(work: int, per_ns: int) -> int:
    """Nanoseconds that some work takes, rounded up."""
    return -(-work // per_ns)

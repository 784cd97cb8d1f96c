"""Exact integer amounts of transmitted data, in a unit so small that every rate is a multiple of it.

A transfer of b bits is b * BIT units of work; a rate of r bit/s does `work_per_ns(r)` units per nanosecond. Sums over
thousands of fading blocks and changes of the active set have no rounding errors, and the end of a transfer does not
depend on the number of updates of its progress.
"""

from __future__ import annotations

from fednet_emu.kernel.clock import NS_PER_S

SCALE = 2.0**64
"""Units of work that a rate of 1 bit/s does in a nanosecond: `int(rate_bps * SCALE)` is exact above 2^-11 bit/s."""
BIT = NS_PER_S << 64
"""Units of work in a bit."""


def work_per_ns(rate_bps: float) -> int:
    """Units of work that a rate in bit/s does per nanosecond."""
    return int(rate_bps * SCALE)


def done_ns(work: int, per_ns: int) -> int:
    """Nanoseconds that `work` units take at `per_ns` units per nanosecond, rounded up."""
    return -(-work // per_ns)

"""Link adaptation by counted block errors, as in OpenAirInterface: each transfer climbs from a low scheme."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray

WINDOW_NS = 100_000_000
"""Time in ns between two decisions: ten frames."""

_START, FLOOR = 9, 6
_LOW, _HIGH, _OLD = 0.05, 0.15, 0.9
_FIRST, _LATER = 32, 256


class Climb(NamedTuple):
    """Efficiencies in bit/s/Hz of a loop that counts errors on a constant link, at SNRs [points]."""

    first: Array  # [windows, points] efficiency in each of the first windows of a transfer
    settled: Array  # [points] mean efficiency in the long run


def climb(efficiency_bps_hz: Array, errors: Array) -> Climb:
    """Simulate the loop of OpenAirInterface at many SNRs, with the expected share of failed blocks in each window.

    The loop begins at MCS 9 with an error share of 0. After each window of 100 ms the error share becomes 0.9 of the
    old value plus 0.1 of the window's share. Below 5 % the scheme moves up by one, above 15 % down by one, to at least
    MCS 6 (`get_mcs_from_bler`, 2024). Of each MCS, [schemes, points], `errors` is the share of first transmissions that
    fail, and the mean efficiency counts all attempts.
    """
    points = np.arange(errors.shape[1])
    mcs: IntArray = np.full(len(points), _START)
    share = np.zeros(len(points))
    first, total = np.empty((_FIRST, len(points))), np.zeros(len(points))
    for window in range(_FIRST + _LATER):
        carried = efficiency_bps_hz[mcs, points]
        if window < _FIRST:
            first[window] = carried
        else:
            total += carried
        share = _OLD * share + (1.0 - _OLD) * errors[mcs, points]
        mcs = mcs + ((share < _LOW) & (mcs < len(errors) - 1)).astype(np.int64) - ((share > _HIGH) & (mcs > FLOOR))
    return Climb(first, total / _LATER)

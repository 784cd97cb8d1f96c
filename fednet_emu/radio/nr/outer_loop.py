"""Link adaptation by block error counts, as in OpenAirInterface: each transfer starts with a slow scheme and climbs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray

WINDOW_NS = 100_000_000
"""Time in ns between two decisions of the loop: ten frames of 10 ms."""

_START, FLOOR = 9, 6
_LOW, _HIGH, _OLD = 0.05, 0.15, 0.9
_FIRST, _LATER = 32, 256


class Climb(NamedTuple):
    """Efficiencies in bit/s/Hz of a loop that counts block errors on constant links with several SNRs [points]."""

    first: Array  # [windows, points] efficiency in each of the first windows of a transfer
    settled: Array  # [points] mean efficiency in the long run


def climb(efficiency_bps_hz: Array, errors: Array) -> Climb:
    """Simulate the loop of OpenAirInterface at many SNRs, with the expected share of failed blocks in each window.

    The loop begins at MCS 9 with an estimated error share of 0. After each window of 100 ms, the estimate becomes 0.9
    times its old value plus 0.1 times the share of failed blocks in the window. The MCS moves up by one if the estimate
    is below 5 %, and down by one, but not below MCS 6, if the estimate is above 15 % (`get_mcs_from_bler`, 2024).
    `errors` [schemes, points] is the share of first transmissions that fail; `efficiency_bps_hz` [schemes, points] is
    the mean efficiency over all attempts.
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

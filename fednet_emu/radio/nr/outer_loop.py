"""Link adaptation by counted block errors alone, as OpenAirInterface has it: each transfer climbs from a low scheme."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray

WINDOW_NS = 100_000_000
"""Time between two decisions: ten frames."""

_START, FLOOR = 9, 6
_LOW, _HIGH, _OLD = 0.05, 0.15, 0.9
_FIRST, _LATER = 32, 256


class Climb(NamedTuple):
    """What a loop that counts errors sends on a link that does not change, in bit/s/Hz at some SNRs.

    Attributes:
        first: [windows, points] in each of the first windows of a transfer.
        settled: [points] in the mean, in the long run.
    """

    first: Array
    settled: Array


def climb(efficiency_bps_hz: Array, errors: Array) -> Climb:
    """Play the loop of OpenAirInterface at many SNRs, with the expected share of failed blocks in each window.

    It begins at MCS 9 with a share of errors of 0. After each window of 100 ms the share is nine tenths of the old one
    and a tenth of that of the window; below 5 % the next scheme follows, above 15 % the one before, down to MCS 6.
    Source: `get_mcs_from_bler` of OpenAirInterface, 2024.

    Args:
        efficiency_bps_hz: [schemes, points] what each MCS carries in the mean, all attempts counted.
        errors: [schemes, points] share of its first transmissions that fail.
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
